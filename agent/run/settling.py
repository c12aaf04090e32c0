"""Settling: when a long run became steady, when it began to throttle, and its curve. Pure.

Steady means that neither heat nor clocks go anywhere any more: the temperature is flat over two
minutes, and the clocks of one minute are those of the next.
"""

from collections.abc import Sequence
from statistics import fmean

from agent.phone.nodes import believable
from agent.run.lines import Window
from agent.run.telemetry import Readings
from workloads.heat import Reading, slope_c_per_min
from workloads.phone import ThermalZone

SECOND_NS = 10**9
LOOK_S, STEP_S = 120, 30
SLOPE_MAX_C_PER_MIN = 0.15
CLOCK_SLACK = 0.01
FULL_SPEED_S = 10.0  # a run's first seconds tell its full clock
SLOWER_SHARE, SLOWER_LOOKS = 0.97, 3
CURVE_POINTS = 60


def settled_ns(
    readings: Readings,
    zones: Sequence[ThermalZone],
    clocks: Sequence[str],
    span: tuple[int, int],
) -> int | None:
    """The moment from which a run was steady to its end; None when it was not at the end."""
    start, end = span
    temps = _trace(readings, zones, span)
    settled = None
    at = end - LOOK_S * SECOND_NS
    while at >= start:
        after = at + LOOK_S * SECOND_NS
        seen = [reading for reading in temps if at <= reading.t_s * SECOND_NS <= after]
        flat = len(seen) > 3 and abs(slope_c_per_min(seen)) <= SLOPE_MAX_C_PER_MIN
        if not flat or not all(_level(readings, path, at, after) for path in clocks):
            return settled
        settled = at
        at -= STEP_S * SECOND_NS
    return settled


def throttled_after_s(
    readings: Readings, clocks: Sequence[str], span: tuple[int, int]
) -> float | None:
    """Seconds until a clock fell below what the run began with, and stayed there for some looks."""
    firsts = []
    for path in clocks:
        seen = _inside(readings, path, span)
        early = [khz for t_ns, khz in seen if t_ns <= span[0] + FULL_SPEED_S * SECOND_NS]
        if not early:
            continue
        full, slower = max(early), 0
        for t_ns, khz in seen:
            slower = slower + 1 if khz < SLOWER_SHARE * full else 0
            if slower == 1:
                began = t_ns
            if slower >= SLOWER_LOOKS:
                firsts.append((began - span[0]) / SECOND_NS)
                break
    return min(firsts, default=None)


def curve_of(windows: Sequence[Window]) -> tuple[tuple[float, float], ...]:
    """Seconds since the start and mean step time in ms, at some dozens of moments of the run."""
    start, end = windows[0].t_ns, windows[-1].t_ns + windows[-1].ns
    width = max((end - start) / CURVE_POINTS, 1)
    bins: dict[int, list[Window]] = {}
    for window in windows:
        bins.setdefault(int((window.t_ns - start) / width), []).append(window)
    return tuple(
        (
            round((at + 0.5) * width / SECOND_NS, 3),
            round(sum(w.ns for w in some) / sum(w.n for w in some) / 1e6, 6),
        )
        for at, some in sorted(bins.items())
    )


def _trace(
    readings: Readings, zones: Sequence[ThermalZone], span: tuple[int, int]
) -> list[Reading]:
    """The hottest of some zones over the run."""
    columns = [(readings.numbers(zone.path), zone.scale) for zone in zones]
    trace = []
    for row, t_ns in enumerate(readings.t_ns):
        if span[0] <= t_ns <= span[1]:
            temps = [believable(column[row], scale) for column, scale in columns if column]
            known = [temp for temp in temps if temp is not None]
            if known:
                trace.append(Reading(t_ns / SECOND_NS, max(known)))
    return trace


def _level(readings: Readings, path: str, start: int, end: int) -> bool:
    """Whether a clock was the same in both halves of a time."""
    middle = (start + end) // 2
    halves = [_inside(readings, path, part) for part in ((start, middle), (middle, end))]
    if not all(halves):
        return False
    first, second = (fmean(khz for _, khz in half) for half in halves)
    return abs(second - first) <= CLOCK_SLACK * first


def _inside(readings: Readings, path: str, span: tuple[int, int]) -> list[tuple[int, int]]:
    column = readings.numbers(path)
    return [
        (t_ns, value)
        for t_ns, value in zip(readings.t_ns, column, strict=False)
        if value is not None and span[0] <= t_ns <= span[1]
    ]
