"""The lane: one attempt at one job on one phone, from the fence to the report.

Every failure becomes a report with a fault, and everything that was changed on the phone is
restored.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

from agent.collect.process_memory import NO_MEMORY, read_process_memory
from agent.collect.rail_log import fetch_rail_log, read_rails, resting_rails_w, start_rail_log
from agent.collect.readings import fetch_readings, readings_from_snapshots
from agent.collect.run_probe import ProbeSnapshot, RunProbe, build_run_probe
from agent.collect.runner_output import RunnerOutput
from agent.collect.shell_view import (
    ShellView,
    ViewsAroundRun,
    read_charging,
    read_shell_view,
)
from agent.collect.thread_affinity import ThreadAffinity, read_thread_affinity
from agent.judge.observe_disturbances import disturbing_reasons
from agent.judge.run_observation import AgentObservations, RunObservation, observe
from agent.judge.run_result import RunResult, evaluate_run
from agent.judge.work_rate_rules import step_unrest
from agent.lane_context import LaneContext, LaneResult
from agent.lane_stages import LAST_STAGE, LaneStages
from agent.launch.canary import CanaryRounds
from agent.launch.external_process import launch_program, watch_program
from agent.launch.launch_files import prepare_launch
from agent.launch.launch_spec import LaunchSpec
from agent.launch.opencl_kernels import install_kernels
from agent.launch.runner_process import RunProgress, launch_runner, watch_runner
from agent.phone.canary_reference import CanaryTimes
from agent.phone.phone_driver import Phone
from agent.phone.phone_memory import save_phone_memory
from agent.phone.phone_snapshot import record_snapshot, snapshot_command
from agent.phone.phone_waits import PhoneWaits
from agent.phone.power_stats import RailTotals
from agent.phone.runner_install import install_runner
from agent.phone.shell_command import ShellResult, parse_complete_nodes
from agent.phone.shell_link import LINK_LOST
from agent.phone.start_limit import NO_START_LIMIT
from agent.prepare.charge import charge_battery
from agent.prepare.cooldown import cool_again, cool_down, wait_for_rest
from agent.prepare.pinning import pin_phone, resolve_condition
from agent.prepare.quiesce import quiesce, quiet_queries
from agent.restore.fence import blame_lease_loss
from agent.restore.restore_leftovers import restore_leftovers
from agent.restore.restore_session import RestoreSession
from agent.restore.take_phone import take_phone
from kernels.runner_builds import kernel_sources
from workloads.catalogue import Case, is_known, workload_of
from workloads.protocol.base import digest_of
from workloads.protocol.condition import Protocol
from workloads.protocol.faults import FarmError, FarmTrouble, Fault, InvalidRequest
from workloads.protocol.messages import AppliedCondition, Job, Report, split_into_chunks
from workloads.protocol.phone_facts import CanaryKind, CoreSet
from workloads.protocol.stage import Stage
from workloads.protocol.verdict import Validity, Verdict
from workloads.text import safe_text


def run_attempt(job: Job, phone: Phone, context: LaneContext) -> LaneResult:
    """Run one attempt at a job. Never raises: every failure is a report with its fault."""
    return _Lane(job, phone, context).run()


class _Lane:
    """One job on its way through the stages; `_measure` shows all of them in order."""

    def __init__(self, job: Job, phone: Phone, context: LaneContext) -> None:
        self.job = job
        self.phone = phone
        self.context = context
        phone.timeouts = context.timeouts
        self.session = RestoreSession(phone, job.fence, context.state_dir)
        self.stages = LaneStages(
            context.status, context.cancel, self.session.send_heartbeat, lambda: phone.clock_s
        )
        self.waits = PhoneWaits(phone, context.cancel)
        self.started_at = datetime.now(UTC)
        self.boot_id: str | None = None
        self.applied = AppliedCondition()
        self.pid: int | None = None
        self.affinity: ThreadAffinity | None = None
        self.memory = NO_MEMORY
        self.rounds: CanaryRounds | None = None
        self.canaries: Mapping[CanaryKind, CanaryTimes] = {}
        self.resting_rails_w: float | None = None
        self.start = NO_START_LIMIT
        self.launched_s = (0.0, 0.0)  # host's clock before and after the snapshot and the launch
        self.view_before = self.view_during = ShellView()
        self.result: RunResult | None = None
        self.verdict: Verdict | None = None
        self.restore_error: str | None = None
        self.known_canaries = frozenset(phone.memory.canaries)

    def _measure(self) -> None:
        job, phone, stage = self.job, self.phone, self.stages
        with stage(Stage.RESOLVE):
            cores, self.applied = resolve_condition(phone.facts, job.case, job.condition)
        try:
            with stage(Stage.FENCE):
                build = self.context.runner_for(phone.facts.abi).with_digest(phone.facts.runner)
                queries = [snapshot_command(phone), *quiet_queries(phone)]
                taken = take_phone(phone, job.fence, self.context.host, build, queries)
                snapshot = record_snapshot(phone, taken.answers[0].text)
                is_stale = restore_leftovers(phone, self.context.state_dir, True, taken.leftovers)
            with stage(Stage.INSTALL):
                runner = install_runner(phone, build, digest=taken.runner_digest)
            with stage(Stage.WATCHDOG):
                self.boot_id = taken.boot_id
                self.session.begin(runner, taken.boot_id)
            with stage(Stage.CHARGE):
                show = self.context.status.show_snapshot
                is_stale |= charge_battery(phone, job.condition, self.waits.sleep, show, snapshot)
            with stage(Stage.QUIESCE):
                self._quiesce(() if is_stale else taken.answers[1:])
            with stage(Stage.PREPARE):
                probe, spec = self._prepare(runner, cores)
            with stage(Stage.COOL):
                self._cool_down(probe)
            with stage(Stage.PIN):
                self._pin(probe)
            with stage(Stage.CANARY_BEFORE):
                self.rounds = CanaryRounds(phone, runner, cores, self.applied, spec.kernels)
                if self.context.canary:
                    self.rounds.run_first(self.context.relearn)
            with stage(Stage.COOL):
                if self.context.canary:
                    cool_again(phone, job.condition, self.start, self.waits.sleep)
            with stage(Stage.RUN):
                before, output = self._run(probe, spec)
            with stage(Stage.CANARY_AFTER):
                # Free or throttled clocks would be taken for a drift of the phone.
                is_cold = job.condition.protocol is Protocol.COLD
                self.canaries = self.rounds.run_second(accumulate=is_cold)
            with stage(Stage.COLLECT):
                self.result = self._collect(probe, before, output)
                self.verdict = self.result.verdict
        finally:
            self._restore()
            if self.verdict is None or disturbing_reasons(self.verdict):
                phone.forget_new_canaries(self.known_canaries)
            elif self.rounds is not None:
                self.rounds.learn_from_run()
            save_phone_memory(self.context.state_dir, phone.facts.serial, phone.memory)

    def _quiesce(self, answers: Sequence[ShellResult]) -> None:
        refused = quiesce(self.phone, self.session.journal, answers)
        self.applied = self.applied.model_copy(update={"refused": refused})

    def _prepare(self, runner: str, cores: CoreSet) -> tuple[RunProbe, LaunchSpec]:
        probe = build_run_probe(self.phone, cores, self.applied, self.boot_id or "")
        folders = self.context.files_dir, self.context.state_dir
        spec = prepare_launch(self.phone, self.job, runner, probe, *folders)
        if self.context.relearn and self.phone.facts.opencl is not None:  # also the GPU's canary
            spec = replace(spec, kernels=install_kernels(self.phone, kernel_sources()))
        return probe, spec

    def _cool_down(self, probe: RunProbe) -> None:
        nodes = (probe.coolers.keys(), probe.power_nodes)
        show = self.context.status.show_snapshot
        if self.context.learns_rest:
            wait_for_rest(self.phone, self.job.condition, self.waits.sleep)
        before = read_rails(self.phone)
        self.start = cool_down(self.phone, self.job.condition, self.waits.sleep, show, *nodes)
        self.applied = self.applied.model_copy(update=self.start.as_applied())
        self.resting_rails_w = resting_rails_w(before, read_rails(self.phone))
        self.phone.cooling.finish_trace()

    def _pin(self, probe: RunProbe) -> None:
        condition, journal = self.job.condition, self.session.journal
        pin_phone(self.phone, condition, probe.cores, self.applied, probe.coolers, journal)
        locked = self.applied.clocks_khz if self.phone.facts.clocks_writable else {}
        self.context.status.locked_khz = dict(locked)

    def _run(self, probe: RunProbe, spec: LaunchSpec) -> tuple[ProbeSnapshot, RunnerOutput]:
        phone = self.phone
        self.session.check()
        self.view_before = read_shell_view(phone)
        phone.cooling.trace.clear()
        is_external = spec.case.manifest is not None
        launch = launch_program if is_external else launch_runner
        watch = watch_program if is_external else watch_runner
        self.session.runner_alive = True
        sooner_s = host_clock_s()
        before, self.pid = launch(phone, spec, probe.snapshot_command())
        self.launched_s = (sooner_s, host_clock_s())
        with suppress(*LINK_LOST):  # watching the run waits for a lost link
            start_rail_log(phone, self.pid, probe.cores, spec.launch.max_seconds)
        with blame_lease_loss(phone, self.job.fence):
            output = watch(phone, spec, self.pid, self.boot_id, self.waits, self._show_progress)
        self.session.runner_alive = False
        if spec.checkpoint:
            phone.shell(["rm", "-f", spec.checkpoint])
        return probe.parse_snapshot(parse_complete_nodes(before.text)), output

    def _collect(self, probe: RunProbe, before: ProbeSnapshot, output: RunnerOutput) -> RunResult:
        job, phone = self.job, self.phone
        rails = fetch_rail_log(phone)
        least_s = host_clock_s() - self.launched_s[1]
        nodes, readings = fetch_readings(phone, probe.snapshot_command(), job.fence)
        host_s = (least_s, host_clock_s() - self.launched_s[0])
        snapshots = (before, probe.parse_snapshot(nodes))
        views = ViewsAroundRun(self.view_before, read_shell_view(phone), self.view_during)
        screen = tuple(filter(None, (views.before.wakefulness, views.after.wakefulness)))
        seen = {"screen": screen, "locked": views.before.locked}
        self.applied = self.applied.model_copy(update=seen)
        agent = self._agent_observations(rails, views, host_s)
        observation = observe(probe, job.case, job.condition, snapshots, output, readings, agent)
        result = evaluate_run(observation)
        self._remember(observation, result.verdict)
        return result

    def _agent_observations(
        self, rails: Sequence[RailTotals], views: ViewsAroundRun, host_s: tuple[float, float]
    ) -> AgentObservations:
        """Return what this attempt and earlier ones observed besides the runner."""
        memory = self.phone.memory
        return AgentObservations(
            affinity=self.affinity,
            memory=self.memory,
            canaries=self.canaries,
            idle=readings_from_snapshots(self.phone.idle_samples),
            remembered_idle_w={memory.idle_meter: memory.idle_w},
            rails=rails,
            resting_rails_w=self.resting_rails_w,
            views=views,
            refused=self.applied.refused,
            usual_limits_khz=memory.limits_khz,
            earlier_unrest=memory.unrest.get(self._clocks_name, ()),
            temp_step_c=memory.temp_step_c,
            core_flops=memory.core_flops,
            host_s=host_s,
            start=self.start,
        )

    def _remember(self, observation: RunObservation, verdict: Verdict) -> None:
        """Keep what later runs on this phone are compared with."""
        phone = self.phone
        phone.remember_limits(observation.limits_khz)
        meter = observation.power.grade.meter
        phone.remember_power(observation.gauge, observation.idle_w, meter)
        if verdict.validity is Validity.VALID and not observation.has_reported_limit:
            phone.remember_temp_step(observation.finest_temp_step_c)
        if not disturbing_reasons(verdict):
            phone.remember_unrest(self._clocks_name, step_unrest(observation))

    @property
    def _clocks_name(self) -> str:
        """What the noise of steps depends on."""
        return "held" if self.applied.clocks_khz else "free"

    def _restore(self) -> None:
        if not self.session.has_begun:
            return
        failed_stage = self.stages.current
        try:
            with self.stages(LAST_STAGE):
                error = self.session.end()
        finally:
            self.stages.current = failed_stage
        if error is None:
            return
        # A phone that disappeared is restored when it returns.
        if self.verdict is not None or not isinstance(error, LINK_LOST):
            self.restore_error = safe_text(error, 300)

    def _show_progress(self, progress: RunProgress) -> None:
        self.context.status.show_progress(progress)
        if self.affinity is None and self.pid is not None:
            with suppress(*LINK_LOST):  # the next command on the phone reports the loss
                self.affinity = read_thread_affinity(self.phone, self.pid)
                self.memory = read_process_memory(self.phone, self.pid)
                if not self.phone.facts.rooted:
                    self.view_during = read_charging(self.phone)

    def run(self) -> LaneResult:
        """Do the job, and report on it."""
        fault: Fault | None = None
        try:
            if not is_known(self.job.case):
                raise InvalidRequest(
                    f"the workload '{self.job.case.workload}' is unknown to this host's agent; "
                    "update it"
                )
            if workload_of(self.job.case).on_phone:
                self._measure()
            else:
                self.verdict = Verdict(validity=Validity.VALID)
        except FarmError as error:
            fault = error.fault(self.stages.current)
        except Exception as error:  # noqa: BLE001 - a lane reports, whatever fails in it
            text = f"{type(error).__name__}: {safe_text(error)}"
            fault = FarmTrouble(text).fault(self.stages.current)
        self.context.status.end()
        report = self._report(fault)
        telemetry = self.result.telemetry if self.result and report.telemetry else None
        return LaneResult(report, telemetry, self.result.observation if self.result else None)

    def _report(self, fault: Fault | None) -> Report:
        facts = self.phone.facts if self.phone.is_probed else None
        result = self.result if fault is None else None
        sent = result if self.job.telemetry else None
        return Report(
            run=self.job.run,
            host=self.context.host,
            phone=self.job.phone,
            case_digest=case_digest(self.job.case),
            condition_digest=self.job.condition.digest,
            started_at=self.started_at,
            ended_at=datetime.now(UTC),
            stage_seconds=self.stages.seconds,
            control=facts.control if facts else None,
            boot_id=self.boot_id,
            runner=facts.runner if facts else None,
            applied=self.applied,
            metrics=result.metrics if result else (),
            programs=result.programs if result else (),
            verdict=self.verdict if fault is None else None,
            fault=fault,
            restore_error=self.restore_error,
            step_time_curve=result.step_time_curve if result else (),
            telemetry=sent.telemetry_digest if sent else None,
            chunks=len(split_into_chunks(sent.telemetry_digest, sent.telemetry)) if sent else 0,
        )


def host_clock_s() -> float:
    """The host's clock, which continues while the host is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def case_digest(case: Case) -> str:
    """A case's digest, also if this agent does not know its workload."""
    return case.digest if is_known(case) else digest_of(case.model_dump(mode="json"))
