"""Calibrate a fuel gauge (sign, unit, update period) from its values at rest and under load.

Vendors use three sign conventions and two units, and no node says which; but a phone under load
always draws more from its battery, or charges it less, than the same phone at rest. Pure.
"""

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from workloads.protocol.phone_facts import FuelGauge

LOAD_READINGS_MIN = 5
STEP_MIN_A = 0.05  # a smaller difference between rest and load may have other causes
LOAD_MAX_A = 10.0  # no phone draws more: a larger number is in µA
_UNITS_A = (1e-6, 1e-3)


def calibrate_gauge(idle: Sequence[int], load: Sequence[tuple[float, int]]) -> FuelGauge | None:
    """Calibrate the gauge from current_now at rest, and from (seconds, current_now) under load."""
    if not idle or len(load) < LOAD_READINGS_MIN:
        return None
    rest, work = median(idle), median(raw for _, raw in load)
    unit_a = _unit_a(max(abs(rest), *(abs(raw) for _, raw in load)))
    step_a = (work - rest) * unit_a
    if abs(step_a) < STEP_MIN_A:
        return None
    return FuelGauge(
        discharge_sign=1 if step_a > 0 else -1, unit_a=unit_a, period_s=_period_s(load)
    )


def _unit_a(largest: float) -> float:
    """µA by the kernel's ABI, mA on some phones: a load draws a few amperes, not thousands."""
    micro, milli = _UNITS_A
    return micro if largest * milli > LOAD_MAX_A else milli


def _period_s(load: Sequence[tuple[float, int]]) -> float:
    """How often the gauge gives a new value: the median time between two changes."""
    changes = [t_s for (_, before), (t_s, after) in pairwise(load) if after != before]
    gaps = [later - sooner for sooner, later in pairwise(changes)]
    if not gaps:
        return load[-1][0] - load[0][0]
    return round(median(gaps), 3)
