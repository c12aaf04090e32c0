"""Rules of the verdict that look at the work itself: step times, cores, claimed speed. Pure."""

from collections.abc import Iterator

from agent.collect.cpu_usage import core_ticks
from agent.collect.thread_affinity import moved_threads
from agent.judge.run_observation import RunObservation
from agent.judge.step_checks import (
    CHANGE_MIN,
    Clocks,
    group_by_clocks,
    step_changes,
    two_modes,
)
from workloads.protocol.condition import Protocol
from workloads.protocol.verdict import Reason, ReasonCode

# Upper bounds: no core of a phone has more than four, none of a computer more than eight vector
# units of four floats that multiply and add at once; no GPU of a phone reaches 20 TFLOP/s.
CORE_FLOPS_PER_CYCLE = 64
GPU_FLOPS_MAX = 20e12
UNKNOWN_CLOCK_KHZ = 6_000_000
COVERED_MIN = 0.98  # of the timed part: windows follow one another
CLOCK_SLACK_S = 1.0  # of uptimes that are read before and after a run
UNACCOUNTED_S, UNACCOUNTED_SHARE = 20.0, 0.2


def check_step_times(run: RunObservation) -> Iterator[Reason]:
    """Steps took the same time throughout, at equal clocks.

    A long run may become slower for reasons that no clock shows, such as a throttled memory bus;
    but then it stays slow.
    """
    windows = run.measured_windows
    if not windows:
        return
    groups = group_by_clocks(windows, _clocks(run))
    is_cold = run.condition.protocol is Protocol.COLD
    objection = Reason.void if is_cold and run.probe.requested_khz else Reason.suspect
    for found in step_changes(groups, windows[0].t_ns):
        if is_cold or found.returned:
            yield objection(
                ReasonCode.STEP_TIMES_CHANGED,
                change=found.change,
                share=found.share,
                limit=CHANGE_MIN,
                at_s=found.start_ns / 1e9,
            )
    distance = two_modes(groups) if is_cold else None
    if distance is not None:
        yield Reason.suspect(ReasonCode.STEP_TIMES_TWO_MODES, distance=distance)


def _clocks(run: RunObservation) -> list[Clocks]:
    nodes = list(run.probe.clock_nodes)
    if run.output.device is not None and run.probe.facts.gpu is not None:
        nodes.append(run.probe.gpu_clock_node)
    return [series for node in nodes if (series := run.readings.series(node))]


def check_online_cores(run: RunObservation) -> Iterator[Reason]:
    """Every requested core was online in every reading: /proc/stat lists no others."""
    start_ns = run.span[0]
    for t_ns, ticks in core_ticks(run.readings.within(run.span)):
        missing = [cpu for cpu in run.probe.cores.cpus if ticks and cpu not in ticks]
        if missing:
            yield Reason.void(ReasonCode.CORE_OFFLINE, cpu=missing[0], at_s=(t_ns - start_ns) / 1e9)
            return


def check_threads(run: RunObservation) -> Iterator[Reason]:
    """Every thread could run on all requested cores and on no others, at every moment."""
    moved = moved_threads(run.readings.within(run.span), run.probe.cores.mask)
    if moved is not None:
        yield Reason.void(
            ReasonCode.THREADS_MOVED,
            actual=f"{moved[1]:x}",
            requested=f"{run.probe.cores.mask:x}",
            at_s=(moved[0] - run.span[0]) / 1e9,
        )


def check_claimed_speed(run: RunObservation) -> Iterator[Reason]:
    """The program accounts for the time that passed, and for no more arithmetic than possible."""
    windows = run.output.windows
    claimed_s = sum(window.ns for window in windows) / 1e9
    between_s = sum(evaluation.ns for evaluation in run.output.evaluations) / 1e9
    elapsed_s = _elapsed_s(run)
    if (
        claimed_s + between_s < COVERED_MIN * run.span_s
        or (elapsed_s is not None and run.span_s > elapsed_s + CLOCK_SLACK_S)
        or _unaccounted_s(run, elapsed_s) > UNACCOUNTED_S + UNACCOUNTED_SHARE * run.span_s
    ):
        passed_s = run.span_s if elapsed_s is None else elapsed_s
        yield Reason.void(ReasonCode.TIME_MISMATCH, claimed_s=claimed_s, elapsed_s=passed_s)
    steps = sum(window.n for window in windows)
    rate = run.claimed.cost.flops * steps / max(claimed_s, 1e-9)
    limit = GPU_FLOPS_MAX if run.output.device is not None else _cpu_flops_max(run)
    if rate > limit:
        yield Reason.void(ReasonCode.SPEED_IMPOSSIBLE, gflops=rate / 1e9, limit_gflops=limit / 1e9)


def _elapsed_s(run: RunObservation) -> float | None:
    """How long the run took by the phone's uptime, which the agent reads before and after it."""
    before_s, after_s = run.before.uptime_s, run.after.uptime_s
    return None if before_s is None or after_s is None else after_s - before_s


def _unaccounted_s(run: RunObservation, elapsed_s: float | None) -> float:
    """Time that passed before the first and after the last record of the program.

    The second canary and the agent's polling are part of it. On a simulated phone, whose clock may
    run a thousand times faster, these alone take minutes.
    """
    if elapsed_s is None or run.output.hello is None or not run.claimed.is_real:
        return 0.0
    return elapsed_s - (run.claimed.done.t_ns - run.output.hello.t_ns) / 1e9


def _cpu_flops_max(run: RunObservation) -> float:
    """The most arithmetic that the requested cores can do per second, at their highest clocks."""
    top_khz = {
        cpu: max(cluster.ladder_khz, default=UNKNOWN_CLOCK_KHZ)
        for cluster in run.probe.facts.clusters
        for cpu in cluster.cpus
    }
    clocks = (top_khz.get(cpu, UNKNOWN_CLOCK_KHZ) for cpu in run.probe.cores.cpus)
    return 1000.0 * CORE_FLOPS_PER_CYCLE * sum(clocks)
