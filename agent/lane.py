"""The lane: the way of one job over one phone, from the fence to the outcome.

Nothing gets out of it but an Outcome, and whatever it changed on the phone is put back.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from agent.control.arrival import arrive
from agent.control.charge import charge_up
from agent.control.clocks import can_pin, check_clocks_possible, choose_clocks
from agent.control.cooldown import Glance, cool_down
from agent.control.fence import check_fence
from agent.control.gpu_clock import choose_gpu_clock
from agent.control.guard import SILENCE_S, Guard
from agent.control.journal import Journal, Page, kill_runner, restore_leftovers
from agent.control.pin import pin
from agent.control.placement import Placement, check_cores_allowed, look_at_threads
from agent.control.quiet import hush
from agent.deadline import Deadline
from agent.lane_view import LaneView
from agent.phone.install import install_runner
from agent.phone.link import LINK_LOST
from agent.phone.memory import remember
from agent.phone.phone import Phone, whole_nodes
from agent.run.canary import (
    NO_CANARY,
    Canary,
    bring_canary,
    canary_key,
    run_canary,
    updated_record,
)
from agent.run.data import install_data
from agent.run.energy import POWER_NODES, Points, PowerMeter
from agent.run.external import install_program, launch_program, watch_program
from agent.run.kernels import install_kernels
from agent.run.lines import Output
from agent.run.runner import Ask, Progress, launch, watch, write_plan
from agent.run.scene import Beside, Harvest, Scene, Snapshot, set_scene, weigh
from agent.run.telemetry import bring_in, rest_readings
from agent.run.tuning import install_tuned
from kernels.manifest import RunnerBuild, kernel_shelf, runner_for
from workloads.catalogue import Case, is_known, launch_of, threads_of, workload_of
from workloads.fault import (
    Cancelled,
    FarmError,
    FarmTrouble,
    Fault,
    LeaseLost,
    Refused,
)
from workloads.measure import Standing, Verdict
from workloads.messages import Job, Report, Resolved, chunks_of
from workloads.noun import digest_of
from workloads.phone import CoreSet, choose_cores
from workloads.text import safe_text

RESTORE_PATIENCE_S = 5.0


@dataclass
class Desk:
    """What a lane is given beside job and phone."""

    host: str
    state_dir: Path
    cancel: threading.Event = field(default_factory=threading.Event)
    view: LaneView = field(default_factory=LaneView)
    runner_for: Callable[[str], RunnerBuild] = runner_for
    silence_s: float = SILENCE_S
    canary: bool = True
    meter: PowerMeter | None = None
    files: Path | None = None  # of foreign programs, by digest; None: beside the state

    @property
    def shelf(self) -> Path:
        """Where the files of foreign programs lie."""
        return self.files or self.state_dir / "files"


@dataclass(frozen=True)
class Outcome:
    """What became of a job: the report, and the telemetry that it names."""

    report: Report
    telemetry: bytes | None = None


def attempt(job: Job, phone: Phone, desk: Desk) -> Outcome:
    """Do one job. Never raises: every failure is a report with its fault."""
    return _Lane(job, phone, desk).outcome()


class _Lane:
    """One job on its way; `_measure` is its story."""

    def __init__(self, job: Job, phone: Phone, desk: Desk) -> None:
        self.job = job
        self.phone = phone
        self.desk = desk
        self.stage_s: dict[str, float] = {}
        self.started_at = datetime.now(UTC)
        self.stage = "start"
        self.boot_id: str | None = None
        self.resolved = Resolved()
        self.journal: Journal | None = None
        self.guard: Guard | None = None
        self.launched = False
        self.pid: int | None = None
        self.placement: Placement | None = None
        self.canary = NO_CANARY
        self.metered: Points | None = None
        self.harvest: Harvest | None = None
        self.verdict: Verdict | None = None

    def outcome(self) -> Outcome:
        fault: Fault | None = None
        try:
            if not is_known(self.job.case):
                raise Refused(f"This agent does not know the workload '{self.job.case.workload}'.")
            if workload_of(self.job.case).on_phone:
                self._measure()
            else:
                self.verdict = Verdict(standing=Standing.VALID)
        except FarmError as error:
            fault = error.fault(self.stage)
        except Exception as error:  # noqa: BLE001 - a lane answers, whatever breaks in it
            text = f"{type(error).__name__}: {safe_text(error)}"
            fault = FarmTrouble(text).fault(self.stage)
        self.desk.view.end()
        report = self._report(fault)
        telemetry = self.harvest.telemetry if self.harvest and report.telemetry else None
        return Outcome(report, telemetry)

    def _measure(self) -> None:
        cores = self._resolve()
        try:
            with self._stage("fence"):
                build = self.desk.runner_for(self.phone.known.abi).which(self.phone.known.runner)
                found = arrive(self.phone, self.job.fence, self.desk.host, build)
                restore_leftovers(self.phone, self.desk.state_dir, ours=True, seen=found.left)
            with self._stage("install"):
                runner = install_runner(self.phone, build, seen=found.runner)
            with self._stage("guard"):
                self._open_journal(runner, found.boot_id)
            with self._stage("charge"):
                charge_up(self.phone, self.job.condition, self._sleep, self._tell)
            with self._stage("quiet"):
                hush(self.phone, self._journal)
            with self._stage("prepare"):
                scene, ask = self._prepare(runner, cores)
            with self._stage("cool"):
                self._cool_down(scene)
            with self._stage("pin"):
                self._pin(scene)
            with self._stage("canary"):
                first_ms = self._canary(ask)
            with self._stage("run"):
                before, output = self._run(scene, ask)
            with self._stage("canary_after"):
                self._compare_canary(ask, first_ms)
            with self._stage("harvest"):
                harvest = self._harvest(scene, before, output)
                self.harvest, self.verdict = harvest, harvest.verdict
        finally:
            self._restore()
            remember(self.desk.state_dir, self.phone.known.serial, self.phone.memory)

    def _resolve(self) -> CoreSet:
        """Turn names into cores and clocks, and refuse before anything is touched."""
        with self._stage("resolve"):
            facts, condition = self.phone.known, self.job.condition
            if facts.runner_absent is not None:
                raise Refused(facts.runner_absent)
            cores = choose_cores(facts, condition.cores)
            check_cores_allowed(facts, cores)
            check_clocks_possible(facts, condition.freq)
            self.resolved = Resolved(
                cpus=cores.cpus,
                mask=f"{cores.mask:x}",
                clocks_khz=choose_clocks(facts, cores, condition.freq),
                gpu_khz=choose_gpu_clock(facts, condition.gpu_freq),
                threads=threads_of(self.job.case, len(cores.cpus)),
            )
            return cores

    def _open_journal(self, runner: str, boot_id: str) -> None:
        self.boot_id = boot_id
        page = Page(serial=self.phone.known.serial, boot_id=boot_id, fence=self.job.fence)
        self.guard = Guard(self.phone, runner, self.job.fence, self.desk.silence_s)
        self.journal = Journal(self.phone, self.desk.state_dir, page, self.guard)
        self.journal.open()
        self.guard.start()

    @property
    def _journal(self) -> Journal:
        assert self.journal is not None
        return self.journal

    def _prepare(self, runner: str, cores: CoreSet) -> tuple[Scene, Ask]:
        """Write plan and node list before the phone cools: what heats, heats before."""
        scene = set_scene(self.phone, cores, self.resolved.clocks_khz, self.boot_id or "")
        launching = launch_of(self.job.case, self.job.condition.launch)
        ask = Ask(runner, self.job.case, cores, launching, scene.sampled)
        if ask.case.data is not None:
            ask = replace(ask, data=install_data(self.phone, ask.case.data, self.desk.shelf))
        if ask.case.backend == "opencl":
            there = install_kernels(self.phone, kernel_shelf())
            found = install_tuned(self.phone, self.desk.state_dir)
            ask = replace(ask, kernels=there, tuned=found)
        if ask.case.manifest is None:
            write_plan(self.phone, ask, dare=self.job.condition.too_large == "try")
        else:
            install_program(self.phone, ask, self.desk.shelf)
        return scene, ask

    def _cool_down(self, scene: Scene) -> None:
        looking = (scene.coolers.keys(), POWER_NODES)
        cool_down(self.phone, self.job.condition, self._sleep, self._tell, *looking)

    def _pin(self, scene: Scene) -> None:
        condition, coolers = self.job.condition, scene.coolers
        pin(self.phone, condition, scene.cores, self.resolved, coolers, self._journal)
        locked = self.resolved.clocks_khz if can_pin(self.phone.known) else {}
        self.desk.view.locked_khz = dict(locked)

    def _run(self, scene: Scene, ask: Ask) -> tuple[Snapshot, Output]:
        assert self.guard is not None
        self.guard.check()
        self.phone.heat.disturbed()
        self.launched = True
        foreign = ask.case.manifest is not None
        start, follow = (launch_program, watch_program) if foreign else (launch, watch)
        seen, self.pid = start(self.phone, ask, before=scene.looking())
        with self._metered(), self._unless_overtaken():
            output = follow(self.phone, ask, self.pid, self.boot_id, self._sleep, self._progress)
        self.launched = False
        return scene.snapshot(whole_nodes(seen.text)), output

    @contextmanager
    def _unless_overtaken(self) -> Iterator[None]:
        """Blame nobody for a run that was ended by whoever holds the phone now."""
        try:
            yield
        except FarmError:
            with suppress(*LINK_LOST):
                check_fence(self.phone, self.job.fence)
            raise

    @contextmanager
    def _metered(self) -> Iterator[None]:
        """Let an external meter look at the run, where there is one."""
        meter = self.desk.meter
        if meter is None:
            yield
            return
        meter.start()
        try:
            yield
        finally:
            clock = self.phone.clock
            self.metered = [(round(1e9 * clock.to_phone_s(at)), w) for at, w in meter.stop()]

    def _canary(self, ask: Ask) -> float | None:
        """A moment of the same small work: what it takes tells of the phone, not of the job."""
        if not self.desk.canary:
            return None
        plan = bring_canary(self.phone, ask.cores)
        return run_canary(self.phone, ask.runner, plan, ask.cores)

    def _compare_canary(self, ask: Ask, first_ms: float | None) -> None:
        if first_ms is None:
            return
        key = canary_key(ask.cores, self.resolved.clocks_khz)
        record_ms = self.phone.memory.canary_ms.get(key)
        self.canary = Canary(first_ms, self._canary(ask), record_ms)
        if self.canary.is_sound:
            self.phone.note_canary(key, updated_record(record_ms, first_ms))

    def _harvest(self, scene: Scene, before: Snapshot, output: Output) -> Harvest:
        job = self.job
        nodes, readings = bring_in(self.phone, scene.looking(), job.fence)
        snapshots = (before, scene.snapshot(nodes))
        rest, idle_w = rest_readings(self.phone.rest_looks), self.phone.memory.idle_w
        beside = Beside(self.placement, self.canary, rest, idle_w, self.metered)
        found = weigh(scene, job.case, job.condition, snapshots, output, readings, beside)
        self.phone.note_power(found.gauge, found.idle_w)
        return found

    def _restore(self) -> None:
        if self.journal is None:
            return
        failed_stage = self.stage
        try:
            self._put_back(self.journal)
        finally:
            self.journal.close()
            self.stage = failed_stage

    def _put_back(self, journal: Journal) -> None:
        with self._stage("restore"):
            patience = time.monotonic() + RESTORE_PATIENCE_S
            while True:
                try:
                    if self.launched or journal.page.changes:
                        check_fence(self.phone, self.job.fence)
                    if self.launched:  # it works on, whatever became of our link
                        kill_runner(self.phone)
                    journal.restore()
                    break
                except LeaseLost:
                    # Whoever holds the phone now has put it back before touching it.
                    journal.forget()
                    break
                except FarmError as error:
                    if time.monotonic() > patience:
                        self._doubt(error)
                        break
                    time.sleep(0.2)

    def _doubt(self, error: FarmError) -> None:
        """The figures stand, but say that the phone was not put back; the journal stays open."""
        if self.verdict is not None:
            reasons = (*self.verdict.reasons, f"not put back: {safe_text(error)}")
            self.verdict = self.verdict.model_copy(update={"reasons": reasons})

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        self.stage = name
        self.desk.view.begin(name)
        began = time.monotonic()
        try:
            if name != "restore" and self.desk.cancel.is_set():
                raise Cancelled
            self._feed_guard()
            yield
        finally:
            self.stage_s[name] = round(time.monotonic() - began, 4)

    def _sleep(self, seconds: float) -> None:
        """Sleep host seconds, awake to a cancel, and keep the dead-man fed."""
        until = Deadline.after(seconds)
        while not until.expired:
            if self.desk.cancel.wait(min(until.remaining, self.desk.silence_s / 4)):
                raise Cancelled
            self._feed_guard()

    def _feed_guard(self) -> None:
        if self.guard is not None:
            with suppress(*LINK_LOST):  # whoever looks at the phone next finds out
                self.guard.feed()

    def _tell(self, seen: Glance, ready_s: tuple[float, float, float] | None) -> None:
        view = self.desk.view
        view.temp_c, view.battery_pct, view.ready_s = seen.temp_c, seen.battery_pct, ready_s

    def _progress(self, now: Progress) -> None:
        self.desk.view.follow(now)
        if self.placement is None and self.pid is not None:
            with suppress(*LINK_LOST):  # whoever looks at the phone next finds out
                self.placement = look_at_threads(self.phone, self.pid)

    def _report(self, fault: Fault | None) -> Report:
        facts = self.phone.facts
        harvest = self.harvest if fault is None else None
        kept = harvest if self.job.telemetry else None
        return Report(
            run=self.job.run,
            host=self.desk.host,
            phone=self.job.phone,
            case_digest=case_digest(self.job.case),
            condition_digest=self.job.condition.digest,
            started_at=self.started_at,
            ended_at=datetime.now(UTC),
            stage_s=self.stage_s,
            control=facts.control if facts else None,
            boot_id=self.boot_id,
            runner=facts.runner if facts else None,
            resolved=self.resolved,
            metrics=harvest.metrics if harvest else (),
            verdict=self.verdict if fault is None else None,
            fault=fault,
            curve=harvest.curve if harvest else (),
            telemetry=kept.digest if kept else None,
            chunks=len(chunks_of(kept.digest, kept.telemetry)) if kept else 0,
        )


def case_digest(case: Case) -> str:
    """A case's identity, also where this agent does not know its workload."""
    return case.digest if is_known(case) else digest_of(case.model_dump(mode="json"))
