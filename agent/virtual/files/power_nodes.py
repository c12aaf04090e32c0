"""/sys/class/power_supply: the gauge with its vendor's sign, unit and period, and the charger.

A gauge shows the value it last sampled, so two looks within its period read the same.
"""

import errno
import stat
from zlib import crc32

from agent.virtual.files.nodes import Link, Live, live, live_number
from agent.virtual.files.tree import FileTree, failed
from agent.virtual.physics.battery import Battery
from agent.virtual.physics.soc import Soc

_SUPPLY = "/sys/devices/platform/soc/power_supply"


class Gauge:
    """The battery as its chip sees it, sampled once a period."""

    def __init__(self, soc: Soc) -> None:
        self._soc = soc
        self._taken = float("-inf")
        self._seen: tuple[int, int, int] = (0, 0, 0)

    def look(self) -> tuple[int, int, int]:
        """Current (vendor's sign and unit), voltage in µV, charge in µAh."""
        now = self._soc.timeline.now
        battery = self._soc.battery
        if now - self._taken >= battery.profile.gauge_period_s:
            self._soc.settle()
            self._taken = now
            volts = round(battery.volts() * 1000) * 1000
            # A shunt of some milliohms: the last per cent of a current is noise.
            noise = crc32(f"{now:.3f}".encode()) % 2001 / 1000 - 1
            current = round(battery.gauge_current() * (1 + 0.01 * noise))
            self._seen = (current, volts, round(battery.charge_uah))
        return self._seen


def battery_status(battery: Battery) -> str:
    """The word the framework and sysfs use."""
    if battery.power_w > 0.005 or not battery.charging_allowed:
        return "Discharging"
    return "Full" if battery.full else "Charging"


def battery_tenths(soc: Soc) -> int:
    """Battery temperature in tenths of a degree."""
    soc.settle()
    return round(soc.heat.node("battery") * 10)


def plant_power_nodes(tree: FileTree, soc: Soc) -> None:
    """Put battery and charger into the tree."""
    supplies = {"battery": _battery_nodes(soc), "usb": _usb_nodes(soc)}
    for supply, nodes in supplies.items():
        for leaf, node in nodes.items():
            tree.put(f"{_SUPPLY}/{supply}/{leaf}", node)
        target = f"../../devices/platform/soc/power_supply/{supply}"
        tree.put(f"/sys/class/power_supply/{supply}", Link(stat.S_IFLNK | 0o777, target=target))


def _battery_nodes(soc: Soc) -> dict[str, Live]:
    battery = soc.battery
    gauge = Gauge(soc)
    nodes = {
        "type": live(lambda: "Battery\n"),
        "present": live(lambda: "1\n"),
        "health": live(lambda: "Good\n"),
        "technology": live(lambda: "Li-ion\n"),
        "capacity": live(lambda: f"{int(battery.percent + 0.05)}\n"),
        "status": live(lambda: f"{battery_status(battery)}\n"),
        "temp": live_number(lambda: battery_tenths(soc)),
        "current_now": live_number(lambda: gauge.look()[0]),
        "voltage_now": live_number(lambda: gauge.look()[1]),
        "charge_counter": live_number(lambda: gauge.look()[2]),
        "charge_full": live(lambda: f"{battery.profile.capacity_uah}\n"),
        "charge_full_design": live(lambda: f"{battery.profile.capacity_uah}\n"),
        "cycle_count": live(lambda: "211\n"),
    }
    if battery.profile.switch == "input_suspend":
        nodes["input_suspend"] = _switch(soc, allowed_when="0")
    elif battery.profile.switch == "charging_enabled":
        nodes["charging_enabled"] = _switch(soc, allowed_when="1")
    return nodes


def _usb_nodes(soc: Soc) -> dict[str, Live]:
    battery = soc.battery
    usb_v = battery.profile.usb_v
    return {
        "type": live(lambda: "USB\n"),
        "present": live(lambda: "1\n"),
        "online": live(lambda: f"{int(battery.charging_allowed)}\n"),
        "current_max": live(lambda: f"{round(battery.profile.usb_a * 1e6)}\n"),
        "voltage_now": live(lambda: f"{round(battery.profile.usb_v * 1e6)}\n"),
        "input_current_now": live(lambda: f"{round(battery.usb_w / usb_v * 1e6)}\n"),
    }


def _switch(soc: Soc, allowed_when: str) -> Live:
    battery = soc.battery
    refused_when = "1" if allowed_when == "0" else "0"

    def write(text: str) -> None:
        if text.strip() not in ("0", "1"):
            raise failed(errno.EINVAL)
        soc.change(lambda: setattr(battery, "charging_allowed", text.strip() == allowed_when))

    return live(lambda: f"{allowed_when if battery.charging_allowed else refused_when}\n", write)
