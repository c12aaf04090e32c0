"""When a long run reached its steady state, when it began to throttle, and its step times. Pure.

Steady means that neither temperature nor clocks change any more: the temperature is flat over two
minutes, and the mean clocks of one minute equal those of the next.
"""

from collections.abc import Sequence
from statistics import fmean

from agent.collect.readings import Readings, Span
from agent.collect.runner_output import StepWindow, span_ns
from agent.phone.cooling_model import TempReading, slope_c_per_min
from workloads.protocol.phone_facts import ThermalZone

SECOND_NS = 10**9
WINDOW_S, WINDOW_STEP_S = 120, 30
SLOPE_MAX_C_PER_MIN = 0.15
CLOCK_TOLERANCE = 0.01
FULL_SPEED_S = 10.0  # the first seconds of a run show its full clock
THROTTLED_SHARE, THROTTLED_READINGS = 0.97, 3
CURVE_POINTS = 60


def steady_from_ns(
    timed: Readings, zones: Sequence[ThermalZone], clock_nodes: Sequence[str], span: Span
) -> int | None:
    """The moment from which a run was steady to its end; None if it was not steady at the end."""
    start, end = span
    temps = [TempReading(t_ns / SECOND_NS, temp_c) for t_ns, temp_c in timed.hottest_c(zones)]
    steady_from = None
    from_ns = end - WINDOW_S * SECOND_NS
    while from_ns >= start:
        to_ns = from_ns + WINDOW_S * SECOND_NS
        window = [reading for reading in temps if from_ns <= reading.t_s * SECOND_NS <= to_ns]
        flat = len(window) > 3 and abs(slope_c_per_min(window)) <= SLOPE_MAX_C_PER_MIN
        if not flat or not all(_is_constant(timed, path, from_ns, to_ns) for path in clock_nodes):
            return steady_from
        steady_from = from_ns
        from_ns -= WINDOW_STEP_S * SECOND_NS
    return steady_from


def throttled_after_s(timed: Readings, clock_nodes: Sequence[str], span: Span) -> float | None:
    """Seconds until a clock fell below its first value, and stayed there for some readings."""
    moments_s = []
    for path in clock_nodes:
        clocks = timed.series(path)
        early = [khz for t_ns, khz in clocks if t_ns <= span[0] + FULL_SPEED_S * SECOND_NS]
        if not early:
            continue
        full_khz, slow_readings = max(early), 0
        for t_ns, khz in clocks:
            slow_readings = slow_readings + 1 if khz < THROTTLED_SHARE * full_khz else 0
            if slow_readings == 1:
                since_ns = t_ns
            if slow_readings >= THROTTLED_READINGS:
                moments_s.append((since_ns - span[0]) / SECOND_NS)
                break
    return min(moments_s, default=None)


def step_time_curve(windows: Sequence[StepWindow]) -> tuple[tuple[float, float], ...]:
    """Seconds since the start and mean step time in ms, at some dozens of moments of the run."""
    start, end = span_ns(windows)
    width_ns = max((end - start) / CURVE_POINTS, 1)
    bins: dict[int, list[StepWindow]] = {}
    for window in windows:
        bins.setdefault(int((window.t_ns - start) / width_ns), []).append(window)
    return tuple(
        (
            round((index + 0.5) * width_ns / SECOND_NS, 3),
            round(sum(window.ns for window in group) / sum(window.n for window in group) / 1e6, 6),
        )
        for index, group in sorted(bins.items())
    )


def _is_constant(timed: Readings, path: str, start: int, end: int) -> bool:
    """Whether the mean clock is the same in both halves of an interval."""
    middle = (start + end) // 2
    halves = [timed.within(half).series(path) for half in ((start, middle), (middle, end))]
    if not all(halves):
        return False
    first, second = (fmean(khz for _, khz in half) for half in halves)
    return abs(second - first) <= CLOCK_TOLERANCE * first
