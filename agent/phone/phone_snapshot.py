"""Reads a phone's uptime, temperature, battery level and thermal caps in one adb round trip.

The temperature is also added to the phone's cooling history, and the power to its idle samples.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from agent.deadline import Deadline
from agent.phone.kernel_nodes import (
    SUPPLY,
    dumpsys_battery_level_pct,
    dumpsys_battery_temp_c,
    hottest_c,
    is_cooler_active,
    parse_level_pct,
    supply_node,
)
from agent.phone.phone_driver import Phone
from agent.phone.phone_paths import UPTIME
from agent.phone.shell_command import ShellCommand, parse_complete_nodes, read_nodes_command
from agent.phone.thermal_zones import battery_temp_c

BATTERY_LEVEL, BATTERY_TEMP = f"{SUPPLY}/battery/capacity", f"{SUPPLY}/battery/temp"
IDLE_SAMPLES_MAX = 40


class PhoneSnapshot(NamedTuple):
    """The state of a phone at one time of the phone's clock."""

    t_s: float
    temp_c: float | None  # of the hottest CPU zone; None if no zone gives a plausible value
    battery_pct: int | None
    capped: bool = False  # a cooling device limits the CPU clocks
    zones_c: Mapping[str, float] = {}  # of each CPU zone, by its type
    battery_c: float | None = None


def take_snapshot(
    phone: Phone,
    deadline: Deadline | None = None,
    coolers: Collection[str] = (),
    power_nodes: Collection[str] = (),
) -> PhoneSnapshot:
    """Read temperature, clock, battery and caps in one round trip; record the temperature.

    `coolers` are the state nodes of the cooling devices that cap the CPUs; the values of
    `power_nodes` are kept as idle samples.
    """
    command = snapshot_command(phone, (*coolers, *power_nodes))
    text = phone.shell_batch([command], deadline)[0].text
    return record_snapshot(phone, text, coolers, power_nodes)


def snapshot_command(phone: Phone, nodes: Collection[str] = ()) -> ShellCommand:
    """The command that reads what a snapshot shows, and other nodes."""
    body = phone.facts.body_zone
    zones = (*phone.facts.cpu_zones, *((body,) if body is not None else ()))
    supply = phone.facts.gauge_supply
    battery = (supply_node(node, supply) for node in (BATTERY_LEVEL, BATTERY_TEMP))
    return read_nodes_command([UPTIME, *battery, *(zone.path for zone in zones), *nodes])


def record_snapshot(
    phone: Phone, text: str, coolers: Collection[str] = (), power_nodes: Collection[str] = ()
) -> PhoneSnapshot:
    """Parse what snapshot_command printed, and record temperature, battery level and power."""
    nodes = parse_complete_nodes(text)
    zones, body = phone.facts.cpu_zones, phone.facts.body_zone
    body_zones = (body,) if body is not None else ()
    level = supply_node(BATTERY_LEVEL, phone.facts.gauge_supply)
    t_s, temp_c = phone.parse_uptime(nodes.get(UPTIME, "")), hottest_c(zones, nodes)
    if temp_c is not None:
        phone.cooling.record(t_s, temp_c, hottest_c(body_zones, nodes))
    if power_nodes:
        idle = {path: nodes[path] for path in power_nodes if path in nodes}
        phone.idle_samples = [*phone.idle_samples[-IDLE_SAMPLES_MAX:], (t_s, idle)]
    capped = any(is_cooler_active(path, nodes.get(path)) for path in coolers)
    level_pct = parse_level_pct(nodes.get(level, ""))
    if level_pct is not None:
        phone.watch_battery(t_s, level_pct)
    zones_c: dict[str, float] = {}
    for zone in zones:
        zone_c = hottest_c((zone,), nodes)
        if zone_c is not None:
            zones_c[zone.type] = max(zone_c, zones_c.get(zone.type, zone_c))
    return PhoneSnapshot(t_s, temp_c, level_pct, capped, zones_c, battery_temp_c(nodes))


def read_battery_pct(phone: Phone, snapshot: PhoneSnapshot) -> int | None:
    """The battery level; None where the phone does not give it."""
    if snapshot.battery_pct is not None:
        return snapshot.battery_pct
    # Some phones hide the battery nodes from the shell.
    return dumpsys_battery_level_pct(phone.shell(["dumpsys", "battery"]).text)


def with_battery_temp(phone: Phone, snapshot: PhoneSnapshot) -> PhoneSnapshot:
    """The snapshot with the framework's battery temperature if the nodes are hidden."""
    if snapshot.battery_c is not None:
        return snapshot
    text = phone.shell(["dumpsys", "battery"]).text
    return snapshot._replace(battery_c=dumpsys_battery_temp_c(text))


def with_battery_level(phone: Phone, snapshot: PhoneSnapshot) -> PhoneSnapshot:
    """The snapshot of an idle phone, with the framework's level if the nodes are hidden."""
    level_pct = read_battery_pct(phone, snapshot)
    if level_pct is not None and snapshot.battery_pct is None:
        phone.watch_battery(snapshot.t_s, level_pct)
    return snapshot._replace(battery_pct=level_pct)
