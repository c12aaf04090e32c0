"""Charging: a phone whose battery is too low is charged before it is measured, and waited for."""

from collections.abc import Callable
from typing import NamedTuple

from agent.control.cooldown import Glance, battery_pct, glance
from agent.phone.phone import Phone
from workloads.condition import Condition
from workloads.fault import BatteryLow

MARGIN_PCT = 1  # so that the wait for the cold does not end below the floor again
RISE_S = 1200.0  # a charger that gives nothing in that time gives nothing
POLL_MIN_S, POLL_MAX_S = 0.1, 5.0


class Level(NamedTuple):
    """The battery at a moment of the phone's clock."""

    t_s: float
    pct: int


def is_charged(first: Level, now: Level, condition: Condition) -> bool:
    """Whether the wait is over; BatteryLow when waiting is of no use."""
    floor = condition.battery_min_pct
    if now.pct >= min(floor + MARGIN_PCT, 100) or (now is first and now.pct >= floor):
        return True
    said = f"The battery is at {now.pct} %, asked are {floor} %"
    if now.pct < first.pct:
        raise BatteryLow(f"{said}, and it falls.")
    if now.pct == first.pct and now.t_s - first.t_s > RISE_S:
        raise BatteryLow(f"{said}, and it does not charge.")
    if now.t_s - first.t_s > condition.cool_wait_max_s:
        raise BatteryLow(f"{said}, after {condition.cool_wait_max_s:.0f} s of charging.")
    return False


def charge_up(
    phone: Phone,
    condition: Condition,
    sleep: Callable[[float], None],
    told: Callable[[Glance, None], None],
) -> None:
    """Wait until the battery is above the floor; a phone that hides its level is not held up."""
    first: Level | None = None
    while True:
        seen = glance(phone)
        told(seen, None)
        level = battery_pct(phone, seen)
        if level is None:
            return
        now = Level(seen.t_s, level)
        first = first or now
        if is_charged(first, now, condition):
            return
        sleep(min(max(60.0 / phone.clock.value, POLL_MIN_S), POLL_MAX_S))
