"""RunObservation: everything that was seen before, during and after one run. Pure.

observe() builds it from what was collected; measure() turns it into metrics, judge() into a
verdict.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from agent.collect.cpu_usage import (
    CoreUsage,
    busy_series,
    core_busy_series,
    core_usage,
    gpu_load_node,
    gpu_load_pct,
    memory_used_mb,
    swapped_mb,
)
from agent.collect.energy import (
    COMPUTER_POWER_MAX_W,
    NO_POWER,
    POWER_MAX_W,
    STATUS,
    EnergyGrade,
    PowerObservation,
    gauge_for_run,
    observe_power,
    resting_power_w,
)
from agent.collect.power_rails import rail_series, reported_rail_series
from agent.collect.process_memory import NO_MEMORY, ProcessMemory
from agent.collect.readings import Readings, Span
from agent.collect.run_probe import ProbeSnapshot, RunProbe
from agent.collect.runner_output import HelloRecord, RunnerOutput, StepWindow, span_ns
from agent.collect.shell_view import NO_VIEWS, ViewsAroundRun
from agent.collect.thread_affinity import ThreadAffinity, stray_threads
from agent.judge.observe_clocks import ClockObservation, clock_limits_khz, observe_clocks
from agent.judge.observe_disturbances import NO_DISTURBANCES, Disturbances, observe_disturbances
from agent.judge.steady_state import steady_from_ns, throttled_after_s
from agent.judge.work_rules import ClaimedWork
from agent.phone.canary_reference import CanaryTimes
from agent.phone.kernel_nodes import GPU_POLICY, clock_node, used_clusters
from agent.phone.power_stats import RailTotals
from agent.phone.start_limit import NO_START_LIMIT, StartLimit
from workloads.catalogue import Case, cost_of, launch_for, thread_count
from workloads.protocol.condition import Condition, Protocol
from workloads.protocol.faults import RunnerFailed
from workloads.protocol.metrics import Provenances, Source
from workloads.protocol.phone_facts import CanaryKind, FuelGauge, PhoneFacts
from workloads.protocol.telemetry import (
    BUSY,
    CLOCK,
    CORE,
    ENERGY,
    GPU_BUSY,
    GPU_CLOCK,
    MEMORY,
    Series,
    sampled,
)


@dataclass(frozen=True)
class AgentObservations:
    """What the agent itself observed around a run: threads, canaries, and power at rest."""

    affinity: ThreadAffinity | None = None
    memory: ProcessMemory = NO_MEMORY
    canaries: Mapping[CanaryKind, CanaryTimes] = field(default_factory=dict)
    idle: Readings = field(default_factory=Readings)
    # By meter; used if this wait was too short to measure it.
    remembered_idle_w: Mapping[str, float | None] = field(default_factory=dict)
    rails: Sequence[RailTotals] = ()  # of the power statistics, during the run
    resting_rails_w: float | None = None
    views: ViewsAroundRun = NO_VIEWS
    refused: Sequence[str] = ()  # settings that the phone did not accept
    usual_limits_khz: Mapping[int, int] = field(default_factory=dict)  # highest so far, by policy
    earlier_unrest: Sequence[float] = ()  # the largest changes of the steps within earlier runs
    temp_step_c: float | None = None  # smallest change of the CPU temperature in earlier runs
    core_flops: float | None = None  # of a core, in the fastest canary step this phone ever did
    # Host seconds between the snapshots before and after the run: at least, at most.
    host_s: tuple[float, float] | None = None
    start: StartLimit = NO_START_LIMIT


NO_AGENT_OBSERVATIONS = AgentObservations()


class SamplingGap(NamedTuple):
    """The longest time of a run without a reading, and when it began."""

    seconds: float
    at_s: float


NO_GAP = SamplingGap(0.0, 0.0)


@dataclass(frozen=True)
class RunObservation:
    """One run as it was observed."""

    condition: Condition
    probe: RunProbe
    before: ProbeSnapshot
    after: ProbeSnapshot
    output: RunnerOutput
    readings: Readings
    claimed: ClaimedWork
    found_mask: int  # the cores on which the runner found itself
    threads: int  # that work, each pinned to a core by the runner
    provenance: Provenances | None = None
    clocks: ClockObservation = field(default_factory=ClockObservation)
    strays: Mapping[int, int] = field(default_factory=dict)  # threads with other masks
    clamp_max: int | None = None  # uclamp.max of the run, of 1024
    sampled_temps_c: tuple[float, ...] = ()  # of the CPU
    sampling_gap: SamplingGap = NO_GAP
    core_usage: tuple[CoreUsage, ...] = ()  # in the measured part
    disturbances: Disturbances = NO_DISTURBANCES
    canaries: Mapping[CanaryKind, CanaryTimes] = field(default_factory=dict)
    power: PowerObservation = NO_POWER
    gauge: FuelGauge | None = None
    idle_w: float | None = None
    swapped_mb: float | None = None
    steady_from_ns: int | None = None  # for the soaked protocol: only what follows is measured
    throttled_after_s: float | None = None
    series: Mapping[str, Series] = field(default_factory=dict)
    views: ViewsAroundRun = NO_VIEWS
    refused: Sequence[str] = ()
    memory: ProcessMemory = NO_MEMORY
    limits_khz: Mapping[int, tuple[int, int]] = field(default_factory=dict)  # lowest and highest
    usual_limits_khz: Mapping[int, int] = field(default_factory=dict)
    earlier_unrest: Sequence[float] = ()
    temp_step_c: float | None = None
    core_flops: float | None = None
    host_s: tuple[float, float] | None = None
    start: StartLimit = NO_START_LIMIT

    @property
    def finest_temp_step_c(self) -> float | None:
        """The smallest change of the CPU temperature in this run."""
        steps = (round(abs(later - sooner), 3) for sooner, later in pairwise(self.temps_c))
        return min((step_c for step_c in steps if step_c), default=None)

    @property
    def has_reported_limit(self) -> bool:
        """Whether the phone reported a limit on the processor that the run uses."""
        clocks, views = self.clocks, self.views
        return bool(
            clocks.active_coolers
            or clocks.capped_khz
            or self.throttled_after_s is not None
            or any(
                low < high
                for policy, (low, high) in self.limits_khz.items()
                if policy != GPU_POLICY or self.output.device is not None
            )
            or views.status
            or (views.siop_level or 0) > 0
            or (views.headroom or 0.0) >= 1
        )

    @property
    def has_hidden_limit(self) -> bool:
        """Whether a limit was reported, and no clock of the run's cores shows it."""
        is_shown = self.throttled_after_s is not None or bool(self.clocks.capped_khz)
        return self.has_reported_limit and not is_shown

    @property
    def span(self) -> Span:
        """The first and last moment of the timed part."""
        return span_ns(self.output.windows)

    @property
    def span_s(self) -> float:
        """The length of the timed part."""
        return (self.span[1] - self.span[0]) / 1e9

    @property
    def measured_windows(self) -> Sequence[StepWindow]:
        """The windows that count: all, or those since the run became steady."""
        return measured_windows(self.output.windows, self.steady_from_ns)

    @property
    def measured_span(self) -> Span:
        """The first and last moment of the part that counts."""
        return span_ns(self.measured_windows)

    @property
    def temps_c(self) -> tuple[float, ...]:
        """The CPU temperatures of the run; from before and after it if it could not be sampled."""
        if self.probe.samples_temperature:
            return self.sampled_temps_c
        return tuple(
            snapshot.temp_c for snapshot in (self.before, self.after) if snapshot.temp_c is not None
        )


def measured_windows(
    windows: Sequence[StepWindow], steady_from_ns: int | None
) -> Sequence[StepWindow]:
    """The windows that count: all, or those since the run became steady."""
    if steady_from_ns is None:
        return windows
    return [window for window in windows if window.t_ns >= steady_from_ns]


def observe(
    probe: RunProbe,
    case: Case,
    condition: Condition,
    snapshots: tuple[ProbeSnapshot, ProbeSnapshot],
    output: RunnerOutput,
    readings: Readings,
    agent: AgentObservations = NO_AGENT_OBSERVATIONS,
) -> RunObservation:
    """Build the observation of a run from everything that was collected."""
    if output.hello is None or output.done is None or not output.windows:
        raise RunnerFailed("the runner finished without measuring anything")
    before, after = snapshots
    provenance = _run_provenance(output.hello, probe.facts)
    time = provenance.time if provenance is not None else None
    warmup = launch_for(case, condition.launch).warmup
    source = time.source if time else None
    affinity = agent.affinity
    observation = RunObservation(
        condition=condition,
        probe=probe,
        before=before,
        after=after,
        output=output,
        readings=readings,
        claimed=ClaimedWork(cost_of(case), output.done, warmup, source),
        found_mask=int(output.hello.mask, 16),
        threads=thread_count(case, len(probe.cores.cpus)),
        provenance=provenance,
        strays=stray_threads(affinity, probe.cores.mask) if affinity else {},  # guard: strays
        clamp_max=affinity.clamp_max if affinity else None,
        sampled_temps_c=tuple(temp_c for _, temp_c in readings.hottest_c(probe.facts.cpu_zones)),
        canaries=agent.canaries,
        swapped_mb=swapped_mb(readings, before.swap_used_kb),
        views=agent.views,
        refused=agent.refused,
        memory=agent.memory,
        limits_khz=clock_limits_khz(probe, readings),
        usual_limits_khz=agent.usual_limits_khz,
        earlier_unrest=agent.earlier_unrest,
        temp_step_c=agent.temp_step_c,
        core_flops=agent.core_flops,
        host_s=agent.host_s,
        start=agent.start,
    )
    observation = _observe_timed_part(observation, is_external=case.manifest is not None)
    return _observe_power(observation, agent)


def _run_provenance(hello: HelloRecord, facts: PhoneFacts) -> Provenances | None:
    """The sources of a run's metrics: the runner's, and on a computer also those of its sensors."""
    own = hello.provenance
    if own is None or facts.provenance is None:
        return own or facts.provenance
    if own.time is None or own.time.source is not Source.HOST:
        return own
    return own.model_copy(
        update={
            family: own.for_family(family) or facts.provenance.for_family(family)
            for family in ("clock", "heat", "energy")
        }
    )


def _observe_timed_part(run: RunObservation, is_external: bool) -> RunObservation:
    """Add what the readings of the timed part show."""
    probe, span = run.probe, run.span
    timed = run.readings.within(span)
    protocol = run.condition.protocol
    steady_ns = None
    if protocol is Protocol.SOAKED:
        steady_ns = steady_from_ns(timed, probe.body_zones, probe.clock_nodes, span)
    usage = core_usage(timed)
    disturbances = observe_disturbances(
        timed, usage, probe.cores.cpus, probe.facts.body_zone, probe.clock_nodes
    )
    if not any(timed.column(STATUS)):  # hidden from the shell: the framework was asked
        disturbances = replace(disturbances, charging_share=run.views.charging_share)
    if is_external:  # sampled by another process, whose processor time is not that of the run
        disturbances = replace(disturbances, own_cores_shared_pct=None)
    measured = measured_windows(run.output.windows, steady_ns)
    if steady_ns is not None and measured:
        usage = core_usage(run.readings.within(span_ns(measured)))
    throttled_s = None
    if protocol is not Protocol.COLD:
        throttled_s = throttled_after_s(timed, probe.clock_nodes, span)
    return replace(
        run,
        clocks=observe_clocks(probe, run.before, run.after, run.readings, timed),
        sampling_gap=longest_gap(run.readings.t_ns, span),
        core_usage=usage,
        disturbances=disturbances,
        steady_from_ns=steady_ns,
        throttled_after_s=throttled_s,
    )


def _observe_power(run: RunObservation, agent: AgentObservations) -> RunObservation:
    """Add power, energy and everything else that accumulates during a run."""
    timed = run.readings.within(run.span)
    gauge = gauge_for_run(run.probe.facts.gauge, agent.idle, timed, run.probe.facts.gauge_cells)
    is_computer = run.claimed.source is Source.HOST
    limit_w = COMPUTER_POWER_MAX_W if is_computer else POWER_MAX_W
    power = observe_power(
        run.readings, run.span, gauge, run.probe.rails, limit_w, rails=agent.rails
    )
    meter = power.grade.meter
    idle_w = resting_power_w(agent.idle, gauge, run.probe.rails, meter)
    if power.grade is EnergyGrade.RAILS:
        idle_w = agent.resting_rails_w
    return replace(
        run,
        gauge=gauge,
        power=power,
        idle_w=idle_w or agent.remembered_idle_w.get(meter),
        series=_series(run.probe, run.readings, run.provenance, power, agent.rails),
    )


def _series(
    probe: RunProbe,
    readings: Readings,
    provenance: Provenances | None,
    power: PowerObservation,
    rails: Sequence[RailTotals],
) -> dict[str, Series]:
    """The quantities that accumulate during a run, of the families that this phone offers."""
    if provenance is None:
        return {}
    facts = probe.facts
    series: dict[str, Series | None] = {BUSY: busy_series(readings, probe.cores.cpus)}
    cores = {cpu for cluster in facts.clusters for cpu in cluster.cpus}
    busy = core_busy_series(readings)
    series |= {f"{CORE}{cpu}": busy[cpu] for cpu in sorted(busy.keys() & cores)}
    load = gpu_load_pct(readings, gpu_load_node(facts.gpu))
    series[GPU_BUSY] = sampled([(t_ns, pct / 100) for t_ns, pct in load])
    series[MEMORY] = sampled(memory_used_mb(readings))
    if provenance.clock is not None:
        for cluster in used_clusters(facts, probe.cores):
            clocks = readings.series(clock_node(cluster, "scaling_cur_freq"))
            series[f"{CLOCK}{cluster.policy}"] = sampled([(t, float(khz)) for t, khz in clocks])
        if facts.gpu is not None:
            clocks = probe.gpu_series_khz(readings, probe.gpu_clock_node)
            series[GPU_CLOCK] = sampled([(t_ns, float(khz)) for t_ns, khz in clocks])
    if provenance.energy is not None:
        series[ENERGY] = power.series
        series |= rail_series(readings, probe.rails) | reported_rail_series(rails)
    return {name: values for name, values in series.items() if values and len(values.t_ns) > 1}


def longest_gap(t_ns: Sequence[int], span: Span) -> SamplingGap:
    """The longest time within a span in which nothing was read."""
    moments = [span[0], *(moment for moment in t_ns if span[0] <= moment <= span[1]), span[1]]
    sooner, later = max(pairwise(moments), key=lambda pair: pair[1] - pair[0])
    return SamplingGap((later - sooner) / 1e9, (sooner - span[0]) / 1e9)
