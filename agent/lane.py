"""The lane: the way of one job over one phone, from the fence to the outcome.

Nothing gets out of it but an Outcome, and whatever it changed on the phone is put back.
"""

from contextlib import suppress
from datetime import UTC, datetime

from agent.control.arrival import arrive
from agent.control.charge import charge_up
from agent.control.clocks import can_pin
from agent.control.cooldown import Glance, cool_down
from agent.control.custody import Custody
from agent.control.fence import unless_overtaken
from agent.control.journal import restore_leftovers
from agent.control.pin import pin
from agent.control.placement import Placement, look_at_threads
from agent.control.quiet import hush
from agent.control.resolve import resolve
from agent.desk import Desk, Outcome
from agent.phone.install import install_runner
from agent.phone.link import LINK_LOST
from agent.phone.memory import remember
from agent.phone.phone import Phone, whole_nodes
from agent.run.canary import NO_CANARY, first_canary, second_canary
from agent.run.energy import POWER_NODES, Points
from agent.run.external import launch_program, watch_program
from agent.run.lines import Output
from agent.run.meter import metered
from agent.run.prepare import prepare
from agent.run.runner import Ask, Progress, launch, watch
from agent.run.scene import Beside, Harvest, Scene, Snapshot, set_scene, weigh
from agent.run.telemetry import bring_in, rest_readings
from agent.stages import LAST, Stages
from workloads.catalogue import Case, is_known, workload_of
from workloads.fault import FarmError, FarmTrouble, Fault, Refused
from workloads.measure import Standing, Verdict
from workloads.messages import Job, Report, Resolved, chunks_of
from workloads.noun import digest_of
from workloads.phone import CoreSet
from workloads.text import safe_text


def attempt(job: Job, phone: Phone, desk: Desk) -> Outcome:
    """Do one job. Never raises: every failure is a report with its fault."""
    return _Lane(job, phone, desk).outcome()


class _Lane:
    """One job on its way; `_measure` is its story."""

    def __init__(self, job: Job, phone: Phone, desk: Desk) -> None:
        self.job = job
        self.phone = phone
        self.desk = desk
        self.custody = Custody(phone, job.fence, desk.state_dir, desk.silence_s)
        self.stages = Stages(desk.view, desk.cancel, self.custody.feed, desk.silence_s / 4)
        self.started_at = datetime.now(UTC)
        self.boot_id: str | None = None
        self.resolved = Resolved()
        self.pid: int | None = None
        self.placement: Placement | None = None
        self.canary = NO_CANARY
        self.metered: Points = []
        self.harvest: Harvest | None = None
        self.verdict: Verdict | None = None
        self.left_changed = ""

    def _measure(self) -> None:
        job, phone, stage = self.job, self.phone, self.stages
        with stage("resolve"):
            cores, self.resolved = resolve(phone.known, job.case, job.condition)
        try:
            with stage("fence"):
                build = self.desk.runner_for(phone.known.abi).which(phone.known.runner)
                found = arrive(phone, job.fence, self.desk.host, build)
                restore_leftovers(phone, self.desk.state_dir, ours=True, seen=found.left)
            with stage("install"):
                runner = install_runner(phone, build, seen=found.runner)
            with stage("guard"):
                self.boot_id = found.boot_id
                self.custody.begin(runner, found.boot_id)
            with stage("charge"):
                charge_up(phone, job.condition, stage.sleep, self._tell)
            with stage("quiet"):
                hush(phone, self.custody.journal)
            with stage("prepare"):
                scene, ask = self._prepare(runner, cores)
            with stage("cool"):
                self._cool_down(scene)
            with stage("pin"):
                self._pin(scene)
            with stage("canary"):
                first_ms = first_canary(phone, runner, cores) if self.desk.canary else None
            with stage("run"):
                before, output = self._run(scene, ask)
            with stage("canary_after"):
                clocks = self.resolved.clocks_khz
                self.canary = second_canary(phone, runner, cores, clocks, first_ms)
            with stage("harvest"):
                self.harvest = self._harvest(scene, before, output)
                self.verdict = self.harvest.verdict
        finally:
            self._restore()
            remember(self.desk.state_dir, phone.known.serial, phone.memory)

    def _prepare(self, runner: str, cores: CoreSet) -> tuple[Scene, Ask]:
        scene = set_scene(self.phone, cores, self.resolved, self.boot_id or "")
        folders = self.desk.shelf, self.desk.state_dir
        return scene, prepare(self.phone, self.job, runner, scene, *folders)

    def _cool_down(self, scene: Scene) -> None:
        looking = (scene.coolers.keys(), POWER_NODES)
        cool_down(self.phone, self.job.condition, self.stages.sleep, self._tell, *looking)

    def _pin(self, scene: Scene) -> None:
        condition, journal = self.job.condition, self.custody.journal
        pin(self.phone, condition, scene.cores, self.resolved, scene.coolers, journal)
        locked = self.resolved.clocks_khz if can_pin(self.phone.known) else {}
        self.desk.view.locked_khz = dict(locked)

    def _run(self, scene: Scene, ask: Ask) -> tuple[Snapshot, Output]:
        phone, sleep = self.phone, self.stages.sleep
        self.custody.check()
        phone.heat.disturbed()
        foreign = ask.case.manifest is not None
        start, follow = (launch_program, watch_program) if foreign else (launch, watch)
        self.custody.working = True
        seen, self.pid = start(phone, ask, before=scene.looking())
        with (
            metered(self.desk.meter, phone.clock) as self.metered,
            unless_overtaken(phone, self.job.fence),
        ):
            output = follow(phone, ask, self.pid, self.boot_id, sleep, self._progress)
        self.custody.working = False
        return scene.snapshot(whole_nodes(seen.text)), output

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
        if not self.custody.held:
            return
        failed_stage = self.stages.now
        try:
            with self.stages(LAST):
                error = self.custody.end()
        finally:
            self.stages.now = failed_stage
        if error is None:
            return
        left = f"not put back: {safe_text(error, 300)}"
        if self.verdict is not None:  # the figures stand
            reasons = (*self.verdict.reasons, left)
            self.verdict = self.verdict.model_copy(update={"reasons": reasons})
        elif not isinstance(error, LINK_LOST):  # who is away is put back when it returns
            self.left_changed = f" ({left})"

    def _tell(self, seen: Glance, ready_s: tuple[float, float, float] | None) -> None:
        view = self.desk.view
        view.temp_c, view.battery_pct, view.ready_s = seen.temp_c, seen.battery_pct, ready_s

    def _progress(self, now: Progress) -> None:
        self.desk.view.follow(now)
        if self.placement is None and self.pid is not None:
            with suppress(*LINK_LOST):  # whoever looks at the phone next finds out
                self.placement = look_at_threads(self.phone, self.pid)

    def outcome(self) -> Outcome:
        """Do the job, and tell what became of it."""
        fault: Fault | None = None
        try:
            if not is_known(self.job.case):
                raise Refused(f"This agent does not know the workload '{self.job.case.workload}'.")
            if workload_of(self.job.case).on_phone:
                self._measure()
            else:
                self.verdict = Verdict(standing=Standing.VALID)
        except FarmError as error:
            fault = error.fault(self.stages.now)
        except Exception as error:  # noqa: BLE001 - a lane answers, whatever breaks in it
            text = f"{type(error).__name__}: {safe_text(error)}"
            fault = FarmTrouble(text).fault(self.stages.now)
        self.desk.view.end()
        if fault is not None:
            fault = fault.model_copy(update={"text": fault.text + self.left_changed})
        report = self._report(fault)
        telemetry = self.harvest.telemetry if self.harvest and report.telemetry else None
        return Outcome(report, telemetry)

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
            stage_s=self.stages.took_s,
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
