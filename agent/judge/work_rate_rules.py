"""Rules of the verdict that look at the work itself: step times, cores, claimed speed. Pure."""

from collections.abc import Iterator

from agent.collect.cpu_usage import (
    core_ticks,
    gpu_load_node,
    gpu_util_pct,
)
from agent.collect.thread_affinity import moved_threads
from agent.judge.observe_cycles import COUNTED_CHANGE_MAX, clock_blocks, cycle_mismatch
from agent.judge.observe_steps import (
    CHANGE_MIN,
    CLOCKS_HIDDEN_CHANGE,
    Clocks,
    StepSeries,
    change_limit,
    group_by_clocks,
    step_changes,
    two_modes,
    unrest,
)
from agent.judge.run_observation import RunObservation
from agent.phone.kernel_nodes import GPU_POLICY
from workloads.protocol.condition import Protocol
from workloads.protocol.metrics import Source
from workloads.protocol.verdict import Reason, ReasonCode

# Upper bounds by the widest instructions that the runner found: units that multiply and add at
# once, times floats. Six of four (Cortex-X925), two of eight, two of sixteen; no other core has
# more. No GPU of a phone reaches 20 TFLOP/s.
FLOPS_PER_CYCLE = {"avx512f": 64, "sve": 64, "asimd": 48, "avx2": 32}
CORE_FLOPS_PER_CYCLE = 64  # of an unknown processor
GPU_FLOPS_MAX = 20e12
UNKNOWN_CLOCK_KHZ = 6_000_000
CANARY_RATES_MAX = 2.0  # no workload reaches a multiple of the rate of a good matrix product
COVERED_MIN, COVERED_MAX = 0.98, 1.02  # of the timed part: windows follow one another
CLOCK_SLACK_S = 1.0  # of uptimes that are read before and after a run
UNACCOUNTED_S, UNACCOUNTED_SHARE = 20.0, 0.2
CLOCK_RATE_MAX, CLOCK_ROUNDING_S = 0.005, 0.05  # of a phone's clock; good ones differ by 1e-4
GPU_SHARED_PCT_MAX = 15.0


def check_step_times(run: RunObservation) -> Iterator[Reason]:
    """Steps took the same time throughout, at equal clocks.

    In a long run a phone may become slower for reasons that no clock shows, such as a throttled
    memory bus; but then it stays slow, something reports a limit, and no clock has changed.
    """
    windows = run.measured_windows
    if not windows:
        return
    series, groups = _step_groups(run)
    least = change_limit(
        run.earlier_unrest, CHANGE_MIN if _shows_clocks(run) else CLOCKS_HIDDEN_CHANGE
    )
    is_cold = run.condition.protocol is Protocol.COLD
    objection = Reason.void if is_cold and run.probe.requested_khz else Reason.suspect
    last_ns = int(series.end_ns[-1] - series.t_ns[0])
    for found in step_changes(groups, windows[0].t_ns, least):
        is_last = found.end_ns > 0.9 * last_ns
        if not is_cold and run.has_hidden_limit and is_last == (found.change > 0):
            continue
        values = {"change": found.change, "share": found.share, "at_s": found.start_ns / 1e9}
        if found.is_harmless:
            effect = {"effect": found.effect, "error": found.effect_error}
            yield Reason.remark(ReasonCode.STEP_TIMES_CHANGED, **values, **effect)
        else:
            yield objection(ReasonCode.STEP_TIMES_CHANGED, **values, limit=least)
    distance = two_modes(groups, least) if is_cold or not run.has_hidden_limit else None
    if distance is None and is_cold and not run.has_reported_limit:
        distance = two_modes([series], least)  # a governor that alternates between two clocks
    if distance is not None:
        yield Reason.suspect(ReasonCode.STEP_TIMES_TWO_MODES, distance=distance)


def step_unrest(run: RunObservation) -> float | None:
    """How much the steps of a run changed, at equal clocks: what is normal on this phone."""
    return unrest(_step_groups(run)[1]) if run.measured_windows else None


def _step_groups(run: RunObservation) -> tuple[StepSeries, list[StepSeries]]:
    series = StepSeries.of(run.measured_windows)
    if run.claimed.source is Source.HOST:  # a computer interrupts single steps all the time
        series = series._replace(longest_ms=series.others_ms)
    return series, group_by_clocks(series, _clocks(run))


def _shows_clocks(run: RunObservation) -> bool:
    return run.provenance is None or run.provenance.clock is not None


def check_counted_clock(run: RunObservation) -> Iterator[Reason]:
    """The cycles of the run's threads agree with the clocks that the nodes show, at every moment.

    Computers change their clocks more often than they are sampled.
    """
    if run.claimed.source is Source.HOST:
        return
    found = cycle_mismatch(clock_blocks(run.probe, run.readings.within(run.measured_span)))
    if found is not None:
        yield Reason.suspect(
            ReasonCode.CLOCK_NOT_COUNTED,
            counted_khz=round(found.khz),
            shown_khz=found.shown_khz,
            change=found.khz / found.shown_khz - 1,
            share=found.share,
            limit=COUNTED_CHANGE_MAX,
            at_s=(found.at_ns - run.span[0]) / 1e9,
        )


def check_gpu_work(run: RunObservation) -> Iterator[Reason]:
    """Nothing else used the GPU, and its limit was as high as usual."""
    timed = run.readings.within(run.measured_span)
    busy_pct = gpu_util_pct(timed, gpu_load_node(run.probe.facts.gpu))
    if busy_pct is not None:
        device_ns = [window.device_ns for window in run.measured_windows if window.device_ns]
        own_ns = sum(copy_ns + compute_ns for copy_ns, _, compute_ns in device_ns)
        total_ns = sum(window.ns for window in run.measured_windows)
        others_pct = busy_pct - 100 * own_ns / max(total_ns, 1)
        if others_pct > GPU_SHARED_PCT_MAX:
            limit = GPU_SHARED_PCT_MAX
            yield Reason.suspect(ReasonCode.GPU_SHARED, busy_pct=others_pct, limit=limit)
    if run.output.device is None or run.condition.protocol is not Protocol.COLD:
        return
    khz, _ = run.limits_khz.get(GPU_POLICY, (0, 0))
    usual_khz = run.usual_limits_khz.get(GPU_POLICY, 0)
    if run.probe.requested_gpu_khz is None and 0 < khz < usual_khz:
        yield Reason.suspect(ReasonCode.GPU_CLOCK_LOWERED, khz=khz, usual_khz=usual_khz)


def _clocks(run: RunObservation) -> list[Clocks]:
    nodes = list(run.probe.clock_nodes)
    if run.output.device is not None and run.probe.facts.gpu is not None:
        nodes.append(run.probe.gpu_clock_node)
    return [series for node in nodes if (series := run.readings.series(node))]


def check_online_cores(run: RunObservation) -> Iterator[Reason]:
    """Every requested core was online in every reading: /proc/stat lists no others."""
    timed = run.readings.within(run.span)
    ticks = core_ticks(timed)
    listed = set(ticks.row.tolist())
    for cpu in run.probe.cores.cpus:
        missing = listed.difference(ticks.row[ticks.cpu == cpu].tolist())
        if missing:
            at_s = (timed.t_ns[min(missing)] - run.span[0]) / 1e9
            yield Reason.void(ReasonCode.CORE_OFFLINE, cpu=cpu, at_s=at_s)
            return


def check_threads(run: RunObservation) -> Iterator[Reason]:
    """Every thread stayed on its core, and all within the requested ones, at every moment."""
    mask = run.probe.cores.mask
    moved = moved_threads(run.readings.within(run.span), mask, run.threads)
    if moved is not None:
        yield Reason.void(
            ReasonCode.THREADS_MOVED,
            count=moved.pinned,
            threads=run.threads,
            actual=f"{moved.cores:x}",
            requested=f"{mask:x}",
            at_s=(moved.t_ns - run.span[0]) / 1e9,
        )


def check_claimed_speed(run: RunObservation) -> Iterator[Reason]:
    """The program accounts for the time that passed, and for no more arithmetic than possible."""
    yield from _check_clock_rate(run)
    windows = run.output.windows
    claimed_s = sum(window.ns for window in windows) / 1e9
    between_ns = sum(evaluation.ns for evaluation in run.output.evaluations)
    between_ns += sum(each.ns for each in run.output.checkpoints if each.t_ns < run.span[1])
    accounted_s = claimed_s + between_ns / 1e9
    elapsed_s = _elapsed_s(run)
    is_impossible = accounted_s > COVERED_MAX * run.span_s or (
        elapsed_s is not None and run.span_s > elapsed_s + CLOCK_SLACK_S
    )
    limit_s = UNACCOUNTED_S + UNACCOUNTED_SHARE * run.span_s
    is_missing = accounted_s < COVERED_MIN * run.span_s or _unaccounted_s(run, elapsed_s) > limit_s
    if is_impossible or is_missing:
        # Other work of a computer may stop a good program between two records.
        is_excused = not is_impossible and run.claimed.source is Source.HOST
        objection = Reason.suspect if is_excused else Reason.void
        passed_s = run.span_s if elapsed_s is None else elapsed_s
        yield objection(ReasonCode.TIME_MISMATCH, claimed_s=claimed_s, elapsed_s=passed_s)
    steps = sum(window.n for window in windows)
    rate = run.claimed.cost.flops * steps / max(claimed_s, 1e-9)
    limit = GPU_FLOPS_MAX if run.output.device is not None else _cpu_flops_max(run)
    if rate > limit:
        yield Reason.void(ReasonCode.SPEED_IMPOSSIBLE, gflops=rate / 1e9, limit_gflops=limit / 1e9)
    elif run.core_flops is not None and run.output.device is None:
        # Canaries that were disturbed throughout are slow, and the run may be right.
        shown = CANARY_RATES_MAX * run.core_flops * len(run.probe.cores.cpus)
        if rate > shown:
            gflops, limit_gflops = rate / 1e9, shown / 1e9
            yield Reason.suspect(
                ReasonCode.SPEED_IMPOSSIBLE, gflops=gflops, limit_gflops=limit_gflops
            )


def _check_clock_rate(run: RunObservation) -> Iterator[Reason]:
    """The phone's clock, by which every step is timed, ran as fast as the host's.

    The clock of a simulated phone may have any speed.
    """
    phone_s = _elapsed_s(run)
    if run.host_s is None or phone_s is None or run.claimed.source is Source.SIMULATED:
        return
    least_s, most_s = run.host_s
    slack_s = CLOCK_ROUNDING_S + CLOCK_RATE_MAX * most_s
    if not least_s - slack_s <= phone_s <= most_s + slack_s:
        host_s = (least_s + most_s) / 2
        yield Reason.void(ReasonCode.PHONE_CLOCK_WRONG, phone_s=phone_s, host_s=host_s)


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
    """The most arithmetic that the requested cores can do per second, at their highest clocks.

    Where the runner reports a computer, the nodes may be those of another processor.
    """
    facts = run.probe.facts
    is_computer = facts.provenance is not None and facts.provenance.is_computer
    top_khz = {
        cpu: max(cluster.ladder_khz, default=UNKNOWN_CLOCK_KHZ)
        for cluster in (() if is_computer else facts.clusters)
        for cpu in cluster.cpus
    }
    clocks = (top_khz.get(cpu, UNKNOWN_CLOCK_KHZ) for cpu in run.probe.cores.cpus)
    known = [FLOPS_PER_CYCLE[name] for name in facts.features if name in FLOPS_PER_CYCLE]
    return 1000.0 * max(known, default=CORE_FLOPS_PER_CYCLE) * sum(clocks)
