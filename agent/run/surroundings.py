"""Surroundings: what went on around a run that is no part of it. Pure.

Other work beside it or on its own cores, a sleep, a charger that heated, a body that warmed.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from agent.phone.nodes import SUPPLY, believable
from agent.run.activity import TICKS_A_SECOND, core_use, inside_pct, moments
from agent.run.telemetry import Readings
from workloads.phone import ThermalZone

STATUS = f"{SUPPLY}/battery/status"
CHARGING = "Charging"


@dataclass(frozen=True)
class Surroundings:
    """What was seen beside the work within the timed part."""

    others_pct: float | None = None  # how busy the cores were that the run may not use
    inside_pct: float | None = None  # how much of its own cores went to others
    slept_s: float = 0.0
    charging_share: float = 0.0
    body_rise_c: float | None = None
    steady_share: float | None = None  # of the readings that show the commonest clock


NOTHING_AROUND = Surroundings()


def look_around(
    readings: Readings,
    span: tuple[int, int],
    cpus: tuple[int, ...],
    body: ThermalZone | None,
    clocks: Sequence[str] = (),
) -> Surroundings:
    """See what went on beside a run on these cores, whose clocks are read there."""
    idle = [core.util_pct for core in core_use(readings, span) if core.cpu not in cpus]
    return Surroundings(
        others_pct=fmean(idle) if idle else None,
        inside_pct=inside_pct(readings, span, cpus),
        slept_s=slept_s(readings, span),
        charging_share=_charging_share(readings, span),
        body_rise_c=_rise_c(readings, span, body),
        steady_share=min(_steady_shares(readings, span, clocks), default=None),
    )


def slept_s(readings: Readings, span: tuple[int, int]) -> float:
    """Seconds of a span that no core counted: the clock of boot goes on while a phone sleeps."""
    seen = list(moments(readings, span))
    if len(seen) < 2:
        return 0.0
    (start_ns, first), (end_ns, last) = seen[0], seen[-1]
    passed_s = (end_ns - start_ns) / 1e9
    counted = [
        (last[cpu][1] - first[cpu][1]) / TICKS_A_SECOND for cpu in first.keys() & last.keys()
    ]
    # A core that was off counts nothing; the one that counted most was always on.
    return max(0.0, passed_s - max(counted)) if counted and max(counted) > 0 else 0.0


def _steady_shares(
    readings: Readings, span: tuple[int, int], clocks: Sequence[str]
) -> Iterator[float]:
    for path in clocks:
        pairs = zip(readings.t_ns, readings.numbers(path), strict=False)
        seen = [khz for t_ns, khz in pairs if khz is not None and span[0] <= t_ns <= span[1]]
        if seen:
            yield max(Counter(seen).values()) / len(seen)


def _charging_share(readings: Readings, span: tuple[int, int]) -> float:
    column = readings.columns.get(STATUS, [])
    seen = [
        status == CHARGING
        for t_ns, status in zip(readings.t_ns, column, strict=False)
        if span[0] <= t_ns <= span[1]
    ]
    return sum(seen) / len(seen) if seen else 0.0


def _rise_c(readings: Readings, span: tuple[int, int], body: ThermalZone | None) -> float | None:
    if body is None:
        return None
    temps = [
        temp
        for t_ns, raw in zip(readings.t_ns, readings.numbers(body.path), strict=False)
        if span[0] <= t_ns <= span[1] and (temp := believable(raw, body.scale)) is not None
    ]
    return temps[-1] - temps[0] if len(temps) > 1 else None
