"""The lane: the way of one job over one phone, from the fence to the outcome.

Nothing gets out of it but an Outcome, and whatever it changed on the phone is put back.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from agent.control.clocks import (
    can_pin,
    check_clocks_possible,
    choose_clocks,
    clusters_of,
    pin_clocks,
    policy_node,
)
from agent.control.cooldown import Glance, cool_down, glance
from agent.control.fence import check_fence, take_fence
from agent.control.guard import SILENCE_S, Guard, lane_file, prepare_lane_dir
from agent.control.journal import Journal, Page, restore_leftovers
from agent.control.quiet import hush
from agent.phone.install import install_runner
from agent.phone.nodes import THERMAL, hottest, parse_cpu_coolers
from agent.phone.phone import BOOT_ID, UPTIME, Command, Phone, reading, split_nodes
from agent.run.figures import CURRENT, STATUS, VOLTAGE, Measured, figures, hottest_trace, span_ns
from agent.run.lines import Output
from agent.run.runner import Ask, launch, watch, write_plan
from agent.run.telemetry import READINGS_BYTES_MAX, Readings, pack, parse_readings
from agent.run.verdict import Evidence, held_share, judge
from kernels.manifest import RunnerBuild, runner_for
from workloads.catalogue import CATALOGUE, work_of
from workloads.fault import (
    FarmError,
    FarmTrouble,
    Fault,
    Hung,
    Interrupted,
    LeaseLost,
    Refused,
    Unreachable,
)
from workloads.measure import Metric, Standing, Verdict
from workloads.messages import Job, Report, Resolved, chunks_of
from workloads.noun import digest_of
from workloads.phone import CoreSet, choose_cores
from workloads.text import safe_text

RESTORE_PATIENCE_S = 5.0


@dataclass
class LaneView:
    """What the heartbeat tells of a lane; written by the lane, read by anyone."""

    stage: str = ""
    progress: float | None = None
    temp_c: float | None = None
    battery_pct: int | None = None
    ready_s: tuple[float, float, float] | None = None


@dataclass
class Desk:
    """What a lane is given beside job and phone."""

    host: str
    state_dir: Path
    cancel: threading.Event = field(default_factory=threading.Event)
    view: LaneView = field(default_factory=LaneView)
    runner_for: Callable[[str], RunnerBuild] = runner_for
    silence_s: float = SILENCE_S


@dataclass(frozen=True)
class Outcome:
    """What became of a job: the report, and the telemetry that it names."""

    report: Report
    telemetry: bytes | None = None


@dataclass(frozen=True)
class _Before:
    """The last look at the phone before the first step."""

    boot_id: str
    temp_c: float | None
    residency: Mapping[int, str]


def attempt(job: Job, phone: Phone, desk: Desk) -> Outcome:
    """Do one job. Never raises: every failure is a report with its fault."""
    return _Lane(job, phone, desk).outcome()


class _Lane:
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
        self._coolers: dict[str, str] = {}
        self.metrics: tuple[Metric, ...] = ()
        self.verdict: Verdict | None = None
        self.blob: tuple[str, bytes] | None = None

    def outcome(self) -> Outcome:
        fault: Fault | None = None
        try:
            if self.job.case.workload not in CATALOGUE:
                raise Refused(f"This agent does not know the workload '{self.job.case.workload}'.")
            if CATALOGUE[self.job.case.workload].on_phone:
                self._measure()
            else:
                self.verdict = Verdict(standing=Standing.VALID)
        except FarmError as error:
            fault = error.fault(self.stage)
        except Exception as error:  # noqa: BLE001 - a lane answers, whatever breaks in it
            text = f"{type(error).__name__}: {safe_text(error)}"
            fault = FarmTrouble(text).fault(self.stage)
        self.desk.view.stage = ""
        return Outcome(self._report(fault), self.blob[1] if self.blob and not fault else None)

    def _measure(self) -> None:
        cores = self._resolve()
        try:
            with self._stage("fence"):
                take_fence(self.phone, self.job.fence, self.desk.host)
                restore_leftovers(self.phone, self.desk.state_dir)
            with self._stage("install"):
                build = self.desk.runner_for(self.phone.known.abi)
                runner = install_runner(self.phone, build)
                self._tell(glance(self.phone), None)
            with self._stage("guard"):
                self._open_journal(runner)
            with self._stage("quiet"):
                hush(self.phone, self._journal)
            with self._stage("prepare"):
                ask = self._prepare(runner, cores)
            with self._stage("cool"):
                cool_down(self.phone, self.job.condition, self._sleep, self._tell)
            with self._stage("pin"):
                if can_pin(self.phone.known):
                    pin_clocks(self.phone, self.resolved.clocks_khz, cores, self._journal)
            with self._stage("run"):
                check_fence(self.phone, self.job.fence)
                before = self._launch(ask)
                output = watch(self.phone, ask, self._sleep, self._progress)
            with self._stage("harvest"):
                self._harvest(ask, before, output)
        finally:
            self.phone.heat.disturbed()
            self._restore()

    def _resolve(self) -> CoreSet:
        """Turn names into cores and clocks, and refuse before anything is touched."""
        with self._stage("resolve"):
            facts, condition = self.phone.known, self.job.condition
            if facts.runner_absent is not None:
                raise Refused(facts.runner_absent)
            cores = choose_cores(facts, condition.cores)
            check_clocks_possible(facts, condition.freq)
            self.resolved = Resolved(
                cpus=cores.cpus,
                mask=f"{cores.mask:x}",
                clocks_khz=choose_clocks(facts, cores, condition.freq),
                threads=len(cores.cpus),
            )
            return cores

    def _open_journal(self, runner: str) -> None:
        self.boot_id = self.phone.boot_id()
        page = Page(serial=self.phone.known.serial, boot_id=self.boot_id, fence=self.job.fence)
        prepare_lane_dir(self.phone)
        self.journal = Journal(self.phone, self.desk.state_dir, page)
        self.journal.open()
        self.guard = Guard(self.phone, runner, self.desk.silence_s)
        self.guard.start()

    @property
    def _journal(self) -> Journal:
        assert self.journal is not None
        return self.journal

    def _prepare(self, runner: str, cores: CoreSet) -> Ask:
        """Write plan and node list while the phone cools anyway."""
        facts = self.phone.known
        coolers = parse_cpu_coolers(self.phone.find_nodes([f"{THERMAL}/cooling_device*/type"]))
        zones = [zone.path for zone in facts.cpu_zones]
        slow = [facts.slow_zone.path] if facts.slow_zone else []
        clocks = [
            policy_node(cluster.policy, name)
            for cluster in clusters_of(facts, cores)
            for name in ("scaling_cur_freq", "scaling_max_freq")
        ]
        nodes = [*zones, *slow, *clocks, *coolers, CURRENT, VOLTAGE, STATUS]
        ask = Ask(runner, self.job.case, cores, self.job.condition.launch, nodes)
        write_plan(self.phone, ask)
        self._coolers = coolers
        return ask

    def _launch(self, ask: Ask) -> _Before:
        answers = launch(self.phone, ask, before=[self._looking()])
        return self._seen(split_nodes(answers[0].text))

    def _looking(self) -> Command:
        zones = (zone.path for zone in self.phone.known.cpu_zones)
        counters = (self._residency_node(policy) for policy in self.resolved.clocks_khz)
        return reading([UPTIME, BOOT_ID, *zones, *counters])

    def _seen(self, nodes: Mapping[str, str]) -> _Before:
        policies = self.resolved.clocks_khz
        return _Before(
            boot_id=safe_text(nodes.get(BOOT_ID, ""), 64),
            temp_c=hottest(self.phone.known.cpu_zones, nodes),
            residency={policy: nodes.get(self._residency_node(policy), "") for policy in policies},
        )

    @staticmethod
    def _residency_node(policy: int) -> str:
        return policy_node(policy, "stats/time_in_state")

    def _harvest(self, ask: Ask, before: _Before, output: Output) -> None:
        answers = self.phone.batch([self._looking()])
        after = self._seen(split_nodes(answers[0].text))
        content = self.phone.pull(lane_file("readings.jsonl"), READINGS_BYTES_MAX)
        readings = parse_readings(content)
        assert output.hello is not None
        assert output.done is not None
        facts, asked = self.phone.known, self.resolved.clocks_khz
        share = held_share(asked, before.residency, after.residency)
        start_ns, end_ns = span_ns(output.windows) if output.windows else (0, 0)
        temps = hottest_trace(readings, facts.cpu_zones)
        evidence = Evidence(
            condition=self.job.condition,
            asked_mask=ask.cores.mask,
            found_mask=int(output.hello.mask, 16),
            asked_khz=asked,
            held_share=share,
            capped_khz=self._caps(readings),
            coolers=self._busy_coolers(readings),
            start_temp_c=before.temp_c,
            temps_c=tuple(temps),
            done=output.done,
            span_s=(end_ns - start_ns) / 1e9,
            boot_ids=(before.boot_id, after.boot_id),
        )
        measured = Measured(
            work=work_of(self.job.case),
            windows=output.windows,
            done=output.done,
            readings=readings,
            cpu_zones=facts.cpu_zones,
            start_temp_c=before.temp_c,
            clock_held_share=share,
        )
        self.verdict = judge(evidence)
        if facts.provenance is not None:
            self.metrics = figures(measured, facts.provenance)
        self.blob = pack(output.windows, readings)

    def _caps(self, readings: Readings) -> dict[int, int]:
        """Policies whose limit was seen below what was written: the mark of a thermal cap."""
        caps = {}
        for policy, khz in self.resolved.clocks_khz.items():
            limits = readings.numbers(policy_node(policy, "scaling_max_freq"))
            lowest = min((limit for limit in limits if limit is not None), default=khz)
            if lowest < khz:
                caps[policy] = lowest
        return caps

    def _busy_coolers(self, readings: Readings) -> tuple[str, ...]:
        busy = {
            name
            for path, name in self._coolers.items()
            if any(filter(None, readings.numbers(path)))
        }
        return tuple(sorted(busy))

    def _restore(self) -> None:
        if self.journal is None:
            return
        failed_stage = self.stage
        with self._stage("restore"):
            patience = time.monotonic() + RESTORE_PATIENCE_S
            while True:
                try:
                    check_fence(self.phone, self.job.fence)
                    self.journal.restore()
                    break
                except LeaseLost:
                    # Whoever holds the phone now has put it back before touching it.
                    self.journal.forget()
                    break
                except FarmError as error:
                    if time.monotonic() > patience:
                        self._doubt(error)
                        break
                    time.sleep(0.2)
        self.stage = failed_stage

    def _doubt(self, error: FarmError) -> None:
        """The figures stand, but say that the phone was not put back; the journal stays open."""
        if self.verdict is not None:
            reasons = (*self.verdict.reasons, f"not put back: {safe_text(error)}")
            self.verdict = self.verdict.model_copy(update={"reasons": reasons})

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        self.stage = name
        self.desk.view.stage = name
        self.desk.view.progress = None
        began = time.monotonic()
        try:
            if name != "restore" and self.desk.cancel.is_set():
                raise Interrupted("The run was cancelled.")
            yield
        finally:
            self.stage_s[name] = round(time.monotonic() - began, 4)

    def _sleep(self, seconds: float) -> None:
        if self.desk.cancel.wait(seconds):
            raise Interrupted("The run was cancelled.")
        if self.guard is not None:
            with suppress(Unreachable, Hung):  # whoever looks at the phone next finds out
                self.guard.feed()

    def _tell(self, seen: Glance, ready_s: tuple[float, float, float] | None) -> None:
        view = self.desk.view
        view.temp_c, view.battery_pct, view.ready_s = seen.temp_c, seen.battery_pct, ready_s

    def _progress(self, share: float) -> None:
        self.desk.view.progress = share

    def _report(self, fault: Fault | None) -> Report:
        facts = self.phone.facts
        sound = fault is None
        telemetry = self.blob if sound else None
        return Report(
            run=self.job.run,
            host=self.desk.host,
            phone=self.job.phone,
            case_digest=self._case_digest(),
            condition_digest=self.job.condition.digest,
            started_at=self.started_at,
            ended_at=datetime.now(UTC),
            stage_s=self.stage_s,
            control=facts.control if facts else None,
            boot_id=self.boot_id,
            runner=facts.runner if facts else None,
            resolved=self.resolved,
            metrics=self.metrics if sound else (),
            verdict=self.verdict if sound else None,
            fault=fault,
            telemetry=telemetry[0] if telemetry else None,
            chunks=len(chunks_of(*telemetry)) if telemetry else 0,
        )

    def _case_digest(self) -> str:
        if self.job.case.workload in CATALOGUE:
            return self.job.case.digest
        return digest_of(self.job.case.model_dump(mode="json"))
