"""Figures: windows and readings turned into the metrics of a report. Pure.

A family of metrics that this phone does not offer yields nothing, and nothing is derived across
families.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from agent.phone.nodes import SUPPLY, believable
from agent.run.lines import Done, Window
from agent.run.telemetry import Readings
from workloads.catalogue import Work
from workloads.measure import METRICS, Metric, Provenances
from workloads.phone import ThermalZone

CURRENT = f"{SUPPLY}/battery/current_now"
VOLTAGE = f"{SUPPLY}/battery/voltage_now"
STATUS = f"{SUPPLY}/battery/status"
MINUTE_NS = 60 * 10**9
LONG_NS = 2 * MINUTE_NS


@dataclass(frozen=True)
class Measured:
    """Everything that a run left behind, as far as figures are made of it."""

    work: Work
    windows: Sequence[Window]
    done: Done
    readings: Readings
    cpu_zones: tuple[ThermalZone, ...]
    start_temp_c: float | None
    clock_held_share: float | None


def figures(run: Measured, provenances: Provenances) -> tuple[Metric, ...]:
    """The metrics that this run supports, each with its provenance."""
    metrics = []
    for name, value in _values(run):
        unit, family, _ = METRICS[name]
        provenance = provenances.of_family(family)
        if value is not None and provenance is not None:
            metrics.append(Metric(name=name, value=value, unit=unit, provenance=provenance))
    return tuple(metrics)


def _values(run: Measured) -> Iterator[tuple[str, float | None]]:
    if run.windows:
        yield from _times(run)
    yield "start_temp_c", run.start_temp_c
    yield "peak_temp_c", max(hottest_trace(run.readings, run.cpu_zones), default=None)
    yield "clock_held_share", run.clock_held_share
    energy_j = battery_energy_j(run.readings, span_ns(run.windows)) if run.windows else None
    yield "energy_j", energy_j
    if energy_j is not None and run.done.steps:
        yield "energy_per_step_mj", 1000 * energy_j / run.done.steps
    if run.done.peak_rss_kb:
        yield "peak_rss_mb", run.done.peak_rss_kb / 1024


def _times(run: Measured) -> Iterator[tuple[str, float]]:
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
    start, end = span_ns(windows)
    if end - start >= LONG_NS:
        first = [window for window in windows if window.t_ns < start + MINUTE_NS]
        last = [window for window in windows if window.t_ns + window.ns > end - MINUTE_NS]
        yield "first_minute_step_ms", median_step_ms(first)
        yield "last_minute_step_ms", median_step_ms(last)


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
    columns = [(readings.numbers(zone.path), zone.scale) for zone in zones]
    trace = []
    for row in range(len(readings.t_ns)):
        temps = [believable(column[row], scale) for column, scale in columns if column]
        known = [temp for temp in temps if temp is not None]
        if known:
            trace.append(max(known))
    return trace


def battery_energy_j(readings: Readings, span: tuple[int, int]) -> float | None:
    """Energy that the battery gave, by trapezoids over real timestamps; None while it charges.

    The sign of current_now differs between vendors, so the status decides, not the sign.
    """
    statuses = readings.columns.get(STATUS, [])
    power = [
        (t_ns, abs(current) * voltage)
        for t_ns, current, voltage, status in zip(
            readings.t_ns,
            readings.numbers(CURRENT),
            readings.numbers(VOLTAGE),
            statuses,
            strict=False,
        )
        if current is not None and voltage and status == "Discharging" and _within(t_ns, span)
    ]
    inside = sum(1 for t_ns in readings.t_ns if _within(t_ns, span))
    if len(power) < 3 or len(power) < 0.9 * inside:
        return None
    middle = median(abs(current or 0) for current in readings.numbers(CURRENT))
    # The ABI says µA and µV; some kernels give mA and mV. No phone works on 20 mA.
    scale = (1e-3 if middle < 20_000 else 1e-6) * _volts(readings)
    pairs = pairwise(power)
    joules = sum((b_ns - a_ns) / 1e9 * (a + b) / 2 for (a_ns, a), (b_ns, b) in pairs)
    return joules * scale


def _volts(readings: Readings) -> float:
    known = [voltage for voltage in readings.numbers(VOLTAGE) if voltage]
    return 1e-6 if known and median(known) > 100_000 else 1e-3


def _within(t_ns: int, span: tuple[int, int]) -> bool:
    return span[0] <= t_ns <= span[1]
