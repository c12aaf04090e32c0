"""Figures: windows and readings turned into the metrics of a report. Pure.

A family of metrics that this phone does not offer yields nothing, and nothing is derived across
families.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from statistics import median

from agent.phone.nodes import SUPPLY, believable
from agent.run.activity import core_use, gpu_node, gpu_util_pct
from agent.run.energy import NO_POWER, VOLTAGE, Power
from agent.run.lines import Done, Output, Window
from agent.run.rails import rails_w
from agent.run.telemetry import Readings
from workloads.catalogue import Work
from workloads.measure import Metric, Provenances, kind_of
from workloads.phone import PhoneFacts, ThermalZone
from workloads.timeline import Course, copied_share, spans_of, step_similarity

FULL_CHARGE = f"{SUPPLY}/battery/charge_full_design"
MINUTE_NS = 60 * 10**9
LONG_NS = 2 * MINUTE_NS


@dataclass(frozen=True)
class Measured:
    """Everything that a run left behind, as far as figures are made of it."""

    work: Work
    output: Output
    done: Done
    readings: Readings
    facts: PhoneFacts
    cpus: Collection[int]
    start_temp_c: float | None
    clock_held_share: float | None
    charge_uah: int | None = None  # of the full battery, as the phone states it
    swapped_mb: float | None = None
    courses: Mapping[str, Course] = field(default_factory=dict)
    power: Power = NO_POWER
    idle_w: float | None = None
    soaked_ns: int | None = None  # only what comes after it is measured
    throttled_after_s: float | None = None

    @property
    def windows(self) -> Sequence[Window]:
        """The timed steps."""
        if self.soaked_ns is None:
            return self.output.windows
        return [window for window in self.output.windows if window.t_ns >= self.soaked_ns]

    @property
    def steps(self) -> int:
        """How many they are."""
        return sum(window.n for window in self.windows)

    @property
    def span(self) -> tuple[int, int]:
        """First and last moment of the timed part."""
        return span_ns(self.windows)


Values = Iterator[tuple[str, float | None]]


def figures(run: Measured, provenances: Provenances) -> tuple[Metric, ...]:
    """The metrics that this run supports, each with its provenance."""
    metrics = []
    for name, value in _values(run):
        kind = kind_of(name)
        assert kind is not None, name
        provenance = provenances.of_family(kind.family)
        if value is not None and provenance is not None and isfinite(value):
            # Rails have meters of their own; what comes from gauges carries their grade.
            graded = kind.family == "energy" and not name.startswith("rail_")
            grade = run.power.grade.value if graded else ""
            metrics.append(
                Metric(name=name, value=value, unit=kind.unit, provenance=provenance, grade=grade)
            )
    return tuple(metrics)


def _values(run: Measured) -> Values:
    if run.windows:
        yield from _times(run)
        yield from _phases(run.windows)
        yield from _opencl(run.windows)
        yield from _traced(run)
        yield from _use(run)
        yield from _energy(run)
        for rail, watts in rails_w(run.courses, run.span).items():
            yield f"rail_power_w.{rail}", watts
    if run.output.device is not None:
        yield "build_ms", run.output.device.build_ns / 1e6
    yield from _answers(run)
    yield from _memory(run)
    yield "start_temp_c", run.start_temp_c
    yield "peak_temp_c", max(hottest_trace(run.readings, run.facts.cpu_zones), default=None)
    yield "clock_held_share", run.clock_held_share
    yield "time_to_throttle_s", run.throttled_after_s


def _times(run: Measured) -> Values:
    windows = run.windows
    step_ms = median_step_ms(windows)
    total_ns = sum(window.ns for window in windows)
    yield "step_ms", step_ms
    yield "step_p90_ms", quantile(sorted(window.step_ms for window in windows), 0.9)
    if run.work.samples_per_step:
        samples = run.work.samples_per_step * sum(window.n for window in windows)
        yield "samples_per_s", samples * 1e9 / total_ns
    if run.work.flops:
        yield "gflops", run.work.flops / step_ms / 1e6
    start, end = run.span
    if end - start >= LONG_NS:
        first = [window for window in windows if window.t_ns < start + MINUTE_NS]
        last = [window for window in windows if window.t_ns + window.ns > end - MINUTE_NS]
        yield "first_minute_step_ms", median_step_ms(first)
        yield "last_minute_step_ms", median_step_ms(last)
        yield "sustained_share", median_step_ms(first) / median_step_ms(last)
    if run.soaked_ns is not None:
        yield "soak_s", (run.soaked_ns - run.output.windows[0].t_ns) / 1e9


def _phases(windows: Sequence[Window]) -> Values:
    """Mean times of the phases; a workload that tells no phase apart has none of them."""
    told = [(window.n, window.phases_ns) for window in windows if window.phases_ns is not None]
    if len(told) < len(windows):
        return
    steps = sum(n for n, _ in told)
    for index, name in enumerate(("load_ms", "forward_ms", "backward_ms", "update_ms")):
        yield name, sum(phases[index] for _, phases in told) / steps / 1e6


def _opencl(windows: Sequence[Window]) -> Values:
    """Where an OpenCL device's time went, a step; nothing where it did not say so throughout."""
    told = [window.device_ns for window in windows if window.device_ns is not None]
    if not told or len(told) < len(windows):
        return
    steps = sum(window.n for window in windows)
    for index, name in enumerate(("copy_ms", "queue_ms", "compute_ms")):
        yield name, sum(times[index] for times in told) / steps / 1e6
    yield "copy_share", sum(times[0] for times in told) / sum(window.ns for window in windows)


def _traced(run: Measured) -> Values:
    spans = spans_of(run.output.trace_tuples)
    yield "step_similarity", step_similarity(spans)
    if run.output.device is not None:
        return  # a device tells itself what it copied
    copied = copied_share(spans, [op.kind for op in run.work.ops])
    phases = [window.phases_ns for window in run.windows if window.phases_ns is not None]
    if copied is not None and phases:
        load = sum(times[0] for times in phases) / max(sum(map(sum, phases)), 1)
        yield "copy_share", load + (1 - load) * copied


def _use(run: Measured) -> Values:
    cores = core_use(run.readings, run.span)
    ours = [core.util_pct for core in cores if core.cpu in run.cpus]
    if ours and len(ours) == len(run.cpus):
        yield "cpu_util_pct", sum(ours) / len(ours)
    for core in cores:
        yield f"core_util_pct.{core.cpu}", core.util_pct
        yield f"core_idle_share.{core.cpu}", core.idle_share
    yield "gpu_util_pct", gpu_util_pct(run.readings, gpu_node(run.facts.gpu), run.span)
    cost = run.output.sampler
    if cost is not None:
        yield "sampler_share", cost.cpu_ns / max(run.span[1] - run.span[0], 1)
        yield "sampler_late_ms", cost.late_p99_ns / 1e6


def _answers(run: Measured) -> Values:
    yield "loss_first", run.done.loss_first
    yield "loss_last", run.done.loss_last
    if run.output.evaluations:
        yield "accuracy_first", run.output.evaluations[0].accuracy
        yield "accuracy_last", run.output.evaluations[-1].accuracy


def _memory(run: Measured) -> Values:
    if run.done.peak_rss_kb:
        yield "peak_rss_mb", run.done.peak_rss_kb / 1024
    if run.output.memory is not None:
        for kind in type(run.output.memory).model_fields:
            yield f"{kind}_mb", getattr(run.output.memory, kind) / 2**20
    yield "swapped_mb", run.swapped_mb


def _energy(run: Measured) -> Values:
    energy_j = run.power.energy_j(run.span)
    yield "idle_power_w", run.idle_w
    if energy_j is None or not run.steps:
        return
    step_j = energy_j / run.steps
    yield "energy_j", energy_j
    if run.idle_w is not None:
        yield "energy_net_j", energy_j - run.idle_w * (run.span[1] - run.span[0]) / 1e9
    yield "energy_per_step_mj", 1000 * step_j
    if run.work.samples_per_step:
        yield "energy_per_sample_mj", 1000 * step_j / run.work.samples_per_step
    yield "power_w", energy_j * 1e9 / (run.span[1] - run.span[0])
    volts = mean_volts(run.readings)
    if run.charge_uah and volts and step_j > 0:
        yield "steps_per_charge", run.charge_uah * 1e-6 * 3600 * volts / step_j


def median_step_ms(windows: Sequence[Window]) -> float:
    """The median over steps, each step taken as long as its window's mean."""
    ordered = sorted((window.step_ms, window.n) for window in windows)
    half = sum(n for _, n in ordered) / 2
    passed = 0
    for at, (step_ms, n) in enumerate(ordered):
        passed += n
        if passed == half:
            return (step_ms + ordered[at + 1][0]) / 2
        if passed > half:
            return step_ms
    raise ValueError("no windows")


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value that this share of a sorted list stays under, interpolated."""
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def span_ns(windows: Sequence[Window]) -> tuple[int, int]:
    """First and last moment of the timed part."""
    return windows[0].t_ns, windows[-1].t_ns + windows[-1].ns


def hottest_trace(readings: Readings, zones: tuple[ThermalZone, ...]) -> list[float]:
    """The hottest CPU zone at each moment where one could be believed."""
    return readings.once(("hottest", zones), lambda: _hottest_trace(readings, zones))


def _hottest_trace(readings: Readings, zones: tuple[ThermalZone, ...]) -> list[float]:
    columns = [(readings.numbers(zone.path), zone.scale) for zone in zones]
    trace = []
    for row in range(len(readings.t_ns)):
        temps = [believable(column[row], scale) for column, scale in columns if column]
        known = [temp for temp in temps if temp is not None]
        if known:
            trace.append(max(known))
    return trace


def mean_volts(readings: Readings) -> float | None:
    """The battery's mean voltage."""
    known = [voltage for voltage in readings.numbers(VOLTAGE) if voltage]
    return sum(known) / len(known) * _volt(readings) if known else None


def _volt(readings: Readings) -> float:
    """What a number of the voltage's node has to be multiplied by."""
    known = [voltage for voltage in readings.numbers(VOLTAGE) if voltage]
    return 1e-6 if known and median(known) > 100_000 else 1e-3
