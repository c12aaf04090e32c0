"""Battery wear: what phones tell, what they invent, and the hours that they were full."""

from datetime import UTC, date, datetime

import pytest

from agent.phone.adb import AdbServer
from agent.phone.battery_wear import (
    CYCLES,
    DESIGN,
    FIRST_USED,
    FULL,
    HEALTH,
    MADE,
    STATE_OF_HEALTH,
    BatteryHours,
    series_cells,
)
from agent.phone.battery_wear import parse_battery_condition as parse
from agent.phone.phone_driver import Phone
from agent.phone.phone_memory import PhoneMemory
from agent.phone.phone_snapshot import take_snapshot
from tests.agent.virtual_phones import VirtualPhone, open_phone
from workloads.protocol.phone_facts import BatteryCondition


def test_nodes_tell_cycles_capacity_and_health() -> None:
    nodes = {CYCLES: "612", FULL: "3900000", DESIGN: "5000000", HEALTH: "Good\n"}
    assert parse(nodes, "") == BatteryCondition(cycles=612, capacity_share=0.78, health="good")
    dump = "Current Battery Service state:\n  status: 2\n  health: 3\n"
    assert parse({}, dump) == BatteryCondition(health="overheat")
    assert parse({}, "") is None
    told = BatteryCondition(capacity_share=0.91, first_used=date(2023, 7, 19))
    assert parse({STATE_OF_HEALTH: "91", FIRST_USED: "0", MADE: "1689787603"}, "") == told


@pytest.mark.parametrize(
    ("maker", "design", "voltage", "more", "cells"),
    [
        ("OnePlus", "2200000", "4100000", {}, 2),  # a 9 Pro, sold as 4500 mAh
        ("realme", "2150", "4100", {}, 2),
        ("OnePlus", "2200000", "8200000", {}, 1),  # the voltage of the pack
        ("OnePlus", "4300000", "4100000", {}, 1),
        ("Palm", "2200000", "4100000", {}, 1),  # a small phone
        ("Sony", "2500000", "4100000", {"energy_full_design": "19350000"}, 2),
        ("OnePlus", "", "", {}, 1),
    ],
)
def test_a_gauge_that_shows_one_of_two_cells(
    maker: str, design: str, voltage: str, more: dict[str, str], cells: int
) -> None:
    folder = DESIGN.rpartition("/")[0]
    nodes = {DESIGN: design, f"{folder}/voltage_now": voltage}
    nodes |= {f"{folder}/{name}": text for name, text in more.items()}
    assert series_cells(nodes, maker) == cells


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (CYCLES, "0"),  # a driver that does not count
        (CYCLES, "-22"),
        (CYCLES, "99999999"),
        (CYCLES, "many"),
        (DESIGN, "0"),
        (DESIGN, "5000"),  # mAh beside µAh
        (DESIGN, "-1"),
        (FIRST_USED, "1234"),
        (FIRST_USED, "99999999999999999999"),
        (STATE_OF_HEALTH, "-22"),
    ],
)
def test_what_cannot_be_is_left_out(node: str, text: str) -> None:
    assert parse({FULL: "3900000", node: text}, "health: 9") is None


def test_hours_are_counted_at_the_level_that_was_seen() -> None:
    hours = BatteryHours().after(3600, 91).after(1800, 90).after(1800, 100)
    assert (hours.hours, hours.hours_above_90) == (2.0, 1.5)


def test_the_hours_of_a_phone_on_its_charger_survive_the_agent(
    adb: AdbServer, phone: Phone, virtual_phone: VirtualPhone
) -> None:
    told = BatteryCondition(
        cycles=211, capacity_share=0.96, health="good", first_used=date(2023, 8, 5)
    )
    assert phone.facts.battery == told
    for t_s, level_pct in ((1e6, 95), (1e6 + 5400, 95), (1e6 + 9000, 80), (1e6 + 12600, 99)):
        phone.watch_battery(t_s, level_pct)
    phone.watch_battery(1e6 + 30000, 99)  # what happened in this gap is unknown
    phone.watch_battery(5.0, 99)  # a restart
    since = datetime.now(UTC).date()
    hours = {"hours": 3, "hours_above_90": 2, "watched_since": since}
    watched = told.model_copy(update=hours)
    assert phone.facts.battery == watched
    again = open_phone(adb, virtual_phone.address)
    again.memory = PhoneMemory.model_validate_json(phone.memory.model_dump_json())
    assert again.facts.battery == watched
    again.close()


def test_a_snapshot_looks_at_the_battery(phone: Phone) -> None:
    take_snapshot(phone)
    phone.shell(["sleep", "5"])
    take_snapshot(phone)
    assert phone.memory.battery.hours > 0
