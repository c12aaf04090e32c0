"""The metrics of a run, computed from its observation. Pure.

A family of metrics that this phone does not offer yields nothing, and no metric is derived across
families. A run that continued from a checkpoint has no metric of what happened before it.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import isfinite
from statistics import correlation, pstdev

from agent.collect.cpu_usage import gpu_load_node, gpu_util_pct
from agent.collect.energy import VOLTAGE, EnergyGrade, volts_per_unit
from agent.collect.power_rails import mean_rail_power_w
from agent.collect.readings import Readings
from agent.collect.runner_output import StepWindow, median_step_ms, span_ns
from agent.judge.coverage import COVERED_MIN, covered_shares, group_of
from agent.judge.loss_metrics import loss_values
from agent.judge.run_observation import RunObservation
from agent.phone.power_stats import rails_to_add_up
from workloads.protocol.metrics import Metric, metric_kind
from workloads.protocol.telemetry import (
    BUSY,
    ENERGY,
    GPU_BUSY,
    MEMORY,
    SampledSeries,
    copy_share,
    op_spans,
    part_rates,
    similarity,
    step_similarity,
)

MINUTE_NS = 60 * 10**9
LONG_RUN_NS = 2 * MINUTE_NS
PART_NS = 500_000_000  # of a run, for similarities: shorter parts count too few ticks
PROFILE_STEPS, PROFILE_FACTOR = 10, 5
CORRELATED_MIN = 8
LOAD_SPREAD_MIN = 0.01  # of a core or the GPU; a load that hardly changes correlates with nothing

Values = Iterator[tuple[str, float | None]]


def measure(run: RunObservation) -> tuple[Metric, ...]:
    """The metrics that this run supports, each with its provenance."""
    if run.provenance is None:
        return ()
    metrics, shares = [], covered_shares(run)
    for name, value in _all_values(run):
        kind = metric_kind(name)
        assert kind is not None, name
        provenance = run.provenance.for_family(kind.family)
        if value is not None and provenance is not None and isfinite(value):
            # Rails have their own meters; energies from gauges carry the grade of the gauges.
            graded = kind.family == "energy" and not name.startswith("rail_")
            grade = run.power.grade.value if graded else ""
            covered = shares.get(group_of(name))
            if covered is not None and covered < COVERED_MIN:
                continue
            found = {"name": name, "value": value, "unit": kind.unit, "grade": grade}
            metrics.append(Metric(**found, provenance=provenance, coverage=covered))
    return tuple(metrics)


def _all_values(run: RunObservation) -> Values:
    windows = run.measured_windows
    if windows:
        yield from _step_times(run)
        yield from _phase_times(windows)
        yield from _opencl_times(windows)
        yield from _trace_values(run)
        yield from _utilisation(run)
        yield from _energy(run)
        yield from _predictability(run)
        for rail, watts in mean_rail_power_w(run.series, run.measured_span).items():
            yield f"rail_power_w.{rail}", watts
    if run.output.device is not None:
        yield "build_ms", run.output.device.build_ns / 1e6
    yield from _training_results(run)
    yield from loss_values(run)
    yield from _memory(run)
    yield "start_temp_c", run.before.temp_c
    rest_c = run.start.rest.hottest_c if run.start.rest else None
    if rest_c is not None and run.before.temp_c is not None:
        yield "start_above_rest_k", run.before.temp_c - rest_c
    yield "peak_temp_c", max(run.sampled_temps_c, default=None)
    yield "pinned_clock_share", run.clocks.pinned_share
    yield "time_to_throttle_s", run.throttled_after_s
    for kind, times in run.canaries.items():
        yield f"canary_{kind}_ms", times.before_ms


def _step_times(run: RunObservation) -> Values:
    windows, cost = run.measured_windows, run.claimed.cost
    step_ms = median_step_ms(windows)
    total_ns = sum(window.ns for window in windows)
    yield "step_ms", step_ms
    yield "step_p90_ms", quantile(sorted(window.step_ms for window in windows), 0.9)
    if cost.samples_per_step:
        samples = cost.samples_per_step * sum(window.n for window in windows)
        yield "samples_per_s", samples * 1e9 / total_ns
    if cost.tokens_per_step:
        tokens = cost.tokens_per_step * sum(window.n for window in windows)
        yield "tokens_per_s", tokens * 1e9 / total_ns
    if cost.flops:
        yield "gflops", cost.flops / step_ms / 1e6
    start, end = run.measured_span
    if end - start >= LONG_RUN_NS:
        first = [window for window in windows if window.t_ns < start + MINUTE_NS]
        last = [window for window in windows if window.t_ns + window.ns > end - MINUTE_NS]
        yield "first_minute_step_ms", median_step_ms(first)
        yield "last_minute_step_ms", median_step_ms(last)
        if run.output.resume is None:
            yield "sustained_speed_ratio", median_step_ms(first) / median_step_ms(last)
    if run.steady_from_ns is not None:
        yield "time_to_steady_s", (run.steady_from_ns - run.output.windows[0].t_ns) / 1e9


def _phase_times(windows: Sequence[StepWindow]) -> Values:
    """Mean times of the phases; nothing for a workload that does not separate phases."""
    phases = [(window.n, window.phases_ns) for window in windows if window.phases_ns is not None]
    if len(phases) < len(windows):
        return
    steps = sum(n for n, _ in phases)
    for index, name in enumerate(("load_ms", "forward_ms", "backward_ms", "update_ms")):
        yield name, sum(times[index] for _, times in phases) / steps / 1e6
    total_ns = sum(window.ns for window in windows)
    yield "load_share", sum(times[0] for _, times in phases) / max(total_ns, 1)


def _opencl_times(windows: Sequence[StepWindow]) -> Values:
    """How an OpenCL device spent its time per step; nothing unless every window has it."""
    device = [window.device_ns for window in windows if window.device_ns is not None]
    if not device or len(device) < len(windows):
        return
    steps = sum(window.n for window in windows)
    for index, name in enumerate(("copy_ms", "queue_ms", "compute_ms")):
        yield name, sum(times[index] for times in device) / steps / 1e6
    yield "copy_share", sum(times[0] for times in device) / sum(window.ns for window in windows)


def _trace_values(run: RunObservation) -> Values:
    spans = op_spans(run.output.trace_tuples)
    yield "step_similarity", step_similarity(spans)
    if run.output.device is not None:
        return  # an OpenCL device reports its copies itself
    copied = copy_share(spans, [op.kind for op in run.claimed.cost.ops])
    windows = run.measured_windows
    phases = [window.phases_ns for window in windows if window.phases_ns is not None]
    if copied is not None and phases:
        load = sum(times[0] for times in phases) / max(sum(map(sum, phases)), 1)
        yield "copy_share", load + (1 - load) * copied


def _utilisation(run: RunObservation) -> Values:
    cpus, span = run.probe.cores.cpus, run.measured_span
    own_pct = [core.util_pct for core in run.core_usage if core.cpu in cpus]
    if own_pct and len(own_pct) == len(cpus):
        yield "cpu_util_pct", sum(own_pct) / len(own_pct)
    for core in run.core_usage:
        yield f"core_util_pct.{core.cpu}", core.util_pct
        yield f"core_idle_share.{core.cpu}", core.idle_share
    moments = run.readings.within(span).t_ns
    if len(moments) > 1:
        yield "readings_per_s", (len(moments) - 1) / ((moments[-1] - moments[0]) / 1e9)
    gpu_node = gpu_load_node(run.probe.facts.gpu)
    yield "gpu_util_pct", gpu_util_pct(run.readings.within(span), gpu_node)
    sampler = run.output.sampler
    if sampler is not None:
        yield "sampler_share", sampler.cpu_ns / max(span[1] - span[0], 1)
        yield "sampler_late_ms", sampler.late_p99_ns / 1e6


def _predictability(run: RunObservation) -> Values:
    """Whether steps repeat, and how well the first ones predict the whole run."""
    windows, span = run.measured_windows, run.measured_span
    steps, total_ns = sum(w.n for w in windows), sum(w.ns for w in windows)
    part_ns = max(PART_NS, total_ns // max(steps, 1))
    for name, key in (
        ("util_similarity", BUSY),
        ("power_similarity", ENERGY),
        ("memory_similarity", MEMORY),
    ):
        series = run.series.get(key)
        yield name, similarity(part_rates(series, span, part_ns)) if series else None
    yield "cpu_gpu_correlation", _cpu_gpu_correlation(run)
    profile = first_windows(windows, PROFILE_STEPS)
    profiled = sum(window.n for window in profile)
    if steps < PROFILE_FACTOR * profiled:
        return
    predicted_ns = steps * sum(window.ns for window in profile) / profiled
    yield "time_prediction_error", abs(predicted_ns / total_ns - 1)
    energy_j, part_j = run.power.energy_j(span), run.power.energy_j(span_ns(profile))
    if energy_j and part_j is not None:
        yield "energy_prediction_error", abs(steps * part_j / profiled / energy_j - 1)


def first_windows(windows: Sequence[StepWindow], steps: int) -> Sequence[StepWindow]:
    """The first windows that together have at least this many steps."""
    count = 0
    for index, window in enumerate(windows):
        count += window.n
        if count >= steps:
            return windows[: index + 1]
    return windows


def _cpu_gpu_correlation(run: RunObservation) -> float | None:
    busy, gpu = run.series.get(BUSY), run.series.get(GPU_BUSY)
    if busy is None or not isinstance(gpu, SampledSeries):
        return None
    if max(gpu.rate) - min(gpu.rate) < LOAD_SPREAD_MIN:
        return None  # a GPU without work, in most runs: skipped, because of the time it takes
    start, end = run.measured_span
    moments = [t_ns for t_ns in busy.t_ns if start <= t_ns <= end]
    pairs = [
        (cpu * 1e9 / (last - first), load * 1e9 / (last - first))
        for first, last in pairwise(moments)
        if last > first
        and (cpu := busy.between(first, last)) is not None
        and (load := gpu.between(first, last)) is not None
    ]
    cpu_loads, gpu_loads = [cpu for cpu, _ in pairs], [load for _, load in pairs]
    if len(pairs) < CORRELATED_MIN or min(map(pstdev, (cpu_loads, gpu_loads))) < LOAD_SPREAD_MIN:
        return None
    return correlation(cpu_loads, gpu_loads)


def _training_results(run: RunObservation) -> Values:
    resume, evaluations = run.output.resume, run.output.evaluations
    if resume is not None and resume.lost_ns is not None:
        yield "resume_lost_s", resume.lost_ns / 1e9
    if resume is None and run.claimed.done.first_step_ns is not None:
        yield "first_step_ms", run.claimed.done.first_step_ns / 1e6
    yield "loss_first", run.claimed.done.loss_first
    yield "loss_last", run.claimed.done.loss_last
    if evaluations:
        yield "accuracy_first", evaluations[0].accuracy if resume is None else None
        yield "accuracy_last", evaluations[-1].accuracy


def _memory(run: RunObservation) -> Values:
    peak_kb, memory = run.claimed.done.peak_rss_kb, run.output.memory
    if peak_kb:
        yield "peak_rss_mb", peak_kb / 1024
        if run.before.available_kb:
            yield "memory_share", peak_kb / run.before.available_kb
    if memory is not None:
        for kind in type(memory).model_fields:
            yield f"{kind}_mb", getattr(memory, kind) / 2**20
    yield "swapped_mb", run.swapped_mb
    yield from run.memory._asdict().items()


def _energy(run: RunObservation) -> Values:
    span = run.measured_span
    seconds = (span[1] - span[0]) / 1e9
    steps = sum(window.n for window in run.measured_windows)
    energy_j = run.power.energy_j(span)
    yield "idle_power_w", run.idle_w
    if energy_j is None or not steps:
        return
    step_j = energy_j / steps
    if run.output.resume is None:
        yield "energy_j", energy_j
        if run.idle_w is not None:
            yield "energy_net_j", energy_j - run.idle_w * seconds
    yield "energy_per_step_mj", 1000 * step_j
    samples = run.claimed.cost.samples_per_step
    if samples:
        yield "energy_per_sample_mj", 1000 * step_j / samples
    if run.claimed.cost.tokens_per_step:
        yield "energy_per_token_mj", 1000 * step_j / run.claimed.cost.tokens_per_step
    yield "power_w", energy_j / seconds
    rails_w = mean_rail_power_w(run.series, span)
    if rails_w and run.power.grade in {EnergyGrade.GAUGE, EnergyGrade.BOTH}:
        metered_w = sum(rails_w[rail] for rail in rails_to_add_up(rails_w))
        yield "rail_energy_share", metered_w * seconds / energy_j
    volts, charge_uah = mean_volts(run.readings), run.before.full_charge_uah
    if charge_uah and volts and step_j > 0 and run.power.grade.meter == EnergyGrade.GAUGE.meter:
        yield "steps_per_charge", charge_uah * 1e-6 * 3600 * volts / step_j


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which this share of a sorted list lies, interpolated."""
    position = share * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def mean_volts(readings: Readings) -> float | None:
    """The battery's mean voltage."""
    voltages = [voltage for voltage in readings.numbers(VOLTAGE) if voltage]
    return sum(voltages) / len(voltages) * volts_per_unit(voltages) if voltages else None
