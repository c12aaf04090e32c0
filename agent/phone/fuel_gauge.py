"""Calibrate a fuel gauge (sign, unit, update period) from its values at rest and under load.

Vendors use three sign conventions and two units, and no node states them; but a phone under load
always draws more from its battery, or charges it less, than the same phone at rest. Pure.
"""

from collections.abc import Collection, Sequence
from itertools import pairwise
from statistics import median

from workloads.protocol.phone_facts import FuelGauge

LOAD_READINGS_MIN = 5
STEP_MIN_A = 0.05  # a smaller difference between rest and load may have other causes
LOAD_MAX_A = 10.0  # no phone draws more: a larger number is in µA
REST_MAX_A = 1.5  # that a battery delivers to a phone at rest
# States of a battery that carries almost no current, because the charger supplies the phone.
BALANCED = {"Full", "Not charging"}
_MICRO, _MILLI = 1e-6, 1e-3


def calibrate_gauge(
    idle: Sequence[int],
    load: Sequence[tuple[float, int]],
    statuses: Collection[int | str | None] = (),
) -> FuelGauge | None:
    """Calibrate the gauge from current_now at rest, and from (seconds, current_now) under load.

    `statuses` are those of the battery in the same readings.
    """
    if not idle or len(load) < LOAD_READINGS_MIN:
        return None
    rest, work = median(idle), median(raw for _, raw in load)
    unit_a = current_unit_a([rest, *(raw for _, raw in load)], statuses)
    if unit_a is None:
        return None
    step_a = (work - rest) * unit_a
    discharge_a = rest * unit_a * (1 if step_a > 0 else -1)
    if abs(step_a) < STEP_MIN_A or discharge_a > REST_MAX_A:
        return None
    return FuelGauge(
        discharge_sign=1 if step_a > 0 else -1, unit_a=unit_a, period_s=_period_s(load)
    )


def current_unit_a(
    raws: Collection[float], statuses: Collection[int | str | None] = ()
) -> float | None:
    """Amperes per unit of current_now: µA by the kernel's ABI, mA on some phones; None: not clear.

    A few hundred to a few thousand are a load in mA. But a Pixel 3a that runs on its charger shows
    976 µA, and a full Pixel 6a between -5000 and 5000 µA:
    https://github.com/MatteCarra/AccA/issues/35
    https://github.com/dijia1124/PlusPlusBattery/issues/71
    """
    if max(map(abs, raws), default=0) * _MILLI > LOAD_MAX_A:
        return _MICRO
    return None if BALANCED.intersection(statuses) else _MILLI


def _period_s(load: Sequence[tuple[float, int]]) -> float:
    """How often the gauge gives a new value: the median time between two changes."""
    changes = [t_s for (_, before), (t_s, after) in pairwise(load) if after != before]
    gaps = [later - sooner for sooner, later in pairwise(changes)]
    if not gaps:
        return load[-1][0] - load[0][0]
    return round(median(gaps), 3)
