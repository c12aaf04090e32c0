"""Charge a phone whose battery is too low for the run, and wait until it is charged."""

from collections.abc import Callable
from typing import NamedTuple

from agent.phone.phone_driver import Phone
from agent.phone.phone_snapshot import PhoneSnapshot, read_battery_pct, take_snapshot
from workloads.protocol.condition import Condition
from workloads.protocol.faults import BatteryLow

MARGIN_PCT = 1  # so that the cooldown that follows does not end below the minimum again
NO_RISE_S = 1200.0  # phone seconds without a higher level, after which charging has failed
POLL_S = 60.0  # phone seconds


class BatteryLevel(NamedTuple):
    """The battery level at a moment of the phone's clock."""

    t_s: float
    pct: int


def is_charged(first: BatteryLevel, now: BatteryLevel, condition: Condition) -> bool:
    """Whether the wait is over; BatteryLow if waiting longer is useless."""
    minimum = condition.battery_min_pct
    if now.pct >= min(minimum + MARGIN_PCT, 100) or (now is first and now.pct >= minimum):
        return True
    level = f"the battery is at {now.pct} %, at least {minimum} % is required"
    waited_s = now.t_s - first.t_s
    if now.pct < first.pct:
        raise BatteryLow(f"{level}; the level falls although the phone is connected")
    if now.pct == first.pct and waited_s > NO_RISE_S:
        raise BatteryLow(f"{level}; it did not charge for {waited_s:.0f} s")
    if waited_s > condition.cool_wait_max_s:
        raise BatteryLow(
            f"{level}; not reached within {condition.cool_wait_max_s:.0f} s (cool_wait_max)"
        )
    return False


def charge_battery(
    phone: Phone,
    condition: Condition,
    sleep: Callable[[float], None],
    on_snapshot: Callable[[PhoneSnapshot], None],
    snapshot: PhoneSnapshot,
) -> bool:
    """Wait until the battery is above the minimum, and return whether that took time.

    A phone that hides its level does not wait.
    """
    first: BatteryLevel | None = None
    while True:
        on_snapshot(snapshot)
        level_pct = read_battery_pct(phone, snapshot)
        if level_pct is None:
            return False
        now = BatteryLevel(snapshot.t_s, level_pct)
        first = first or now
        if is_charged(first, now, condition):
            return now is not first
        sleep(POLL_S)
        snapshot = take_snapshot(phone)
