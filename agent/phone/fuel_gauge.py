"""The battery's gauge: its sign, unit and pace, found by what it says at rest and under load. Pure.

Three conventions of sign and two of unit are in use, and no node tells which; but a phone at work
always takes more out of its battery, or puts less into it, than the same phone at rest.
"""

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from workloads.phone import Gauge

LOAD_LOOKS_MIN = 5
STEP_MIN_A = 0.05  # a smaller difference between rest and work may be anything
WORK_MAX_A = 10.0  # no phone takes more; what seems to is in µA
_UNITS_A = (1e-6, 1e-3)


def calibrate(idle: Sequence[int], load: Sequence[tuple[float, int]]) -> Gauge | None:
    """Tell how the gauge speaks from current_now at rest, and (seconds, current_now) under load."""
    if not idle or len(load) < LOAD_LOOKS_MIN:
        return None
    rest, work = median(idle), median(raw for _, raw in load)
    unit_a = _unit_a(max(abs(rest), *(abs(raw) for _, raw in load)))
    step_a = (work - rest) * unit_a
    if abs(step_a) < STEP_MIN_A:
        return None
    return Gauge(discharge_sign=1 if step_a > 0 else -1, unit_a=unit_a, period_s=_period_s(load))


def _unit_a(largest: float) -> float:
    """µA by the ABI, mA on some: a phone at work takes some amperes, not thousands of them."""
    micro, milli = _UNITS_A
    return micro if largest * milli > WORK_MAX_A else milli


def _period_s(load: Sequence[tuple[float, int]]) -> float:
    """How often it says something new: the usual time between two changes."""
    changes = [t_s for (_, before), (t_s, after) in pairwise(load) if after != before]
    gaps = [later - sooner for sooner, later in pairwise(changes)]
    if not gaps:
        return load[-1][0] - load[0][0]
    return round(median(gaps), 3)
