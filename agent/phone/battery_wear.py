"""The wear of a battery: what the phone reports, and the hours in which it was full. Pure.

A phone in a lab is always on a charger, and a lithium cell ages fastest when it is full and warm.
"""

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime

from agent.phone.kernel_nodes import SUPPLY, first_number
from workloads.protocol.base import WireModel
from workloads.protocol.phone_facts import BatteryCondition
from workloads.text import safe_text

_BATTERY = f"{SUPPLY}/battery"
HEALTH, CYCLES = f"{_BATTERY}/health", f"{_BATTERY}/cycle_count"
FULL, DESIGN = f"{_BATTERY}/charge_full", f"{_BATTERY}/charge_full_design"
# In seconds since 1970 and in percent; the names are those of Android's health HAL:
# https://android.googlesource.com/platform/system/core healthd/BatteryMonitor.cpp
FIRST_USED, MADE = f"{_BATTERY}/first_usage_date", f"{_BATTERY}/manufacturing_date"
STATE_OF_HEALTH = f"{_BATTERY}/state_of_health"
WEAR_NODES = (HEALTH, CYCLES, FULL, DESIGN, FIRST_USED, MADE, STATE_OF_HEALTH)
_ENERGY_DESIGN, _VOLTAGE = f"{_BATTERY}/energy_full_design", f"{_BATTERY}/voltage_now"
CELL_NODES = (_ENERGY_DESIGN, _VOLTAGE)
_CELL_V, _PACK_MIN_V, _TWICE = 3.87, 5.5, (1.6, 2.4)
# They sell phones with two cells in series, whose gauges show one of them: a OnePlus 9 Pro of 4500
# mAh has a design of 2200 (https://github.com/crdroidandroid/issue_tracker/issues/760). None of
# their phones with Android 10 or newer has a single cell that small.
_TWO_CELL_MAKERS = {
    "oppo",
    "oneplus",
    "realme",
    "xiaomi",
    "redmi",
    "vivo",
    "iqoo",
    "nubia",
    "meizu",
}
_SMALL_CELL_MAH = (1500, 2700)
TWO_CELLS_SDK = 29
FULL_PCT = 90
GAP_MAX_S = 2 * 3600.0  # of the phone's clock; a longer one was not watched
CYCLES_MAX = 10_000
FIRST_PHONES = date(2012, 1, 1)
_CAPACITY_SHARES = (0.2, 1.3)  # a gauge that learns may exceed the design a little
# Of BatteryManager, as `dumpsys battery` prints them.
_HEALTHS = ("unknown", "good", "overheat", "dead", "over voltage", "unspecified failure", "cold")
_DUMPED_HEALTH = re.compile(r"^\s*health: ([1-7])$", re.MULTILINE)


class BatteryHours(WireModel):
    """How long a battery was watched, and how much of that time it was above 90 %."""

    since: date | None = None
    hours: float = 0.0
    hours_above_90: float = 0.0

    def after(self, seconds: float, level_pct: int) -> "BatteryHours":
        """The hours after some more seconds at a level."""
        hours = seconds / 3600
        full = hours if level_pct > FULL_PCT else 0.0
        return BatteryHours(
            since=self.since, hours=self.hours + hours, hours_above_90=self.hours_above_90 + full
        )


def parse_battery_condition(nodes: Mapping[str, str], dump: str) -> BatteryCondition | None:
    """Parse nodes, and `dumpsys battery` where they are hidden; None if neither has a value."""
    cycles = first_number(nodes.get(CYCLES, ""))
    full, design = first_number(nodes.get(FULL, "")), first_number(nodes.get(DESIGN, ""))
    percent = first_number(nodes.get(STATE_OF_HEALTH, ""))
    share = full / design if full and design and design > 0 else (percent or 0) / 100
    lowest, highest = _CAPACITY_SHARES
    dumped = _DUMPED_HEALTH.search(dump)
    health = _HEALTHS[int(dumped[1]) - 1] if dumped else ""
    condition = BatteryCondition(
        # Many drivers print 0 or a negative number where they do not count.
        cycles=cycles if cycles is not None and 0 < cycles <= CYCLES_MAX else None,
        capacity_share=round(share, 2) if lowest <= share <= highest else None,
        first_used=_date(nodes.get(FIRST_USED, "")) or _date(nodes.get(MADE, "")),
        health=safe_text(nodes.get(HEALTH, ""), 24).strip().lower() or health,
    )
    return None if condition == BatteryCondition() else condition


def series_cells(nodes: Mapping[str, str], maker: str, sdk: int = TWO_CELLS_SDK) -> int:
    """How many cells in series a gauge shows as one; 1 where its voltage is that of the pack."""
    micro_v, design = (first_number(nodes.get(path, "")) or 0 for path in (_VOLTAGE, DESIGN))
    volts = micro_v * (1e-6 if micro_v > 100_000 else 1e-3)
    mah = design / 1000 if design > 20_000 else design
    energy_wh = (first_number(nodes.get(_ENERGY_DESIGN, "")) or 0) * 1e-6
    if volts > _PACK_MIN_V or mah <= 0:
        return 1
    if _TWICE[0] < energy_wh / (mah * 1e-3 * _CELL_V) < _TWICE[1]:
        return 2
    is_small = _SMALL_CELL_MAH[0] <= mah <= _SMALL_CELL_MAH[1]
    return 2 if is_small and maker.lower() in _TWO_CELL_MAKERS and sdk >= TWO_CELLS_SDK else 1


def _date(text: str) -> date | None:
    """The day of some seconds since 1970; None if no phone can be that old or that new."""
    seconds = first_number(text) or 0
    day = datetime.fromtimestamp(seconds, UTC).date() if 0 < seconds < 2**32 else None
    return day if day is not None and day >= FIRST_PHONES else None


def with_hours(condition: BatteryCondition, hours: BatteryHours) -> BatteryCondition:
    """The condition with whole hours, so that it rarely changes."""
    whole = {"hours": int(hours.hours), "hours_above_90": int(hours.hours_above_90)}
    return condition.model_copy(update={**whole, "watched_since": hours.since})
