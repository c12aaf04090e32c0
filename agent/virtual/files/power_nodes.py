"""/sys/class/power_supply: the fuel gauge with its vendor's sign, unit and period, and the charger.

The gauge takes a sample at every multiple of its period, whether anybody reads it or not.
"""

import errno
import stat
from zlib import crc32

from agent.virtual.files.file_nodes import LiveNode, SymbolicLink, live_node, live_number_node
from agent.virtual.files.file_tree import FileTree, os_error
from agent.virtual.physics.battery_model import BatteryModel
from agent.virtual.physics.soc import Soc

_FADE = 2e-4  # of the capacity per cycle: guessed, 80 % after 1000 cycles
_SUPPLY = "/sys/devices/platform/soc/power_supply"


class BatteryGauge:
    """The battery as the gauge chip reports it, sampled once per period."""

    def __init__(self, soc: Soc) -> None:
        self._soc = soc
        self._sample = self._take_sample(soc.clock.now, 0.0)
        soc.on_step = self._sample_within

    def read_sample(self) -> tuple[int, int, int]:
        """Return current (vendor's sign and unit), voltage in µV and charge in µAh."""
        self._soc.update()
        return self._sample

    def _sample_within(self, start: float, end: float) -> None:
        """Take the last sample of a time in which the power does not change."""
        period_s = self._soc.battery.profile.gauge_period_s
        moment = end // period_s * period_s
        if moment > start:
            self._sample = self._take_sample(moment, moment - start)

    def _take_sample(self, moment: float, seconds: float) -> tuple[int, int, int]:
        battery = self._soc.battery
        volts = round(battery.volts() * 1000) * 1000
        # The shunt has a few milliohms: the last percent of the current is noise.
        noise = crc32(f"{moment:.3f}".encode()) % 2001 / 1000 - 1
        # A gauge chip averages over its period.
        more_w = self._soc.surplus_w(moment, battery.profile.gauge_period_s)["board"]
        current = round(battery.gauge_current(more_w) * (1 + 0.01 * noise))
        return current, volts, round(battery.charge_after(seconds))


def battery_status(battery: BatteryModel) -> str:
    """Return the status as the framework and sysfs name it."""
    if battery.power_w > 0.005 or not battery.charging_allowed:
        return "Discharging"
    return "Full" if battery.is_full else "Charging"


def battery_tenths_c(soc: Soc) -> int:
    """Return the battery temperature in tenths of a degree."""
    soc.update()
    return round(soc.heat.node("battery") * 10)


def add_power_nodes(tree: FileTree, soc: Soc) -> None:
    """Add battery and charger to the tree."""
    supplies = {soc.battery.profile.supply: _battery_nodes(soc), "usb": _usb_nodes(soc)}
    for supply, nodes in supplies.items():
        for leaf, node in nodes.items():
            tree.add_node(f"{_SUPPLY}/{supply}/{leaf}", node)
        target = f"../../devices/platform/soc/power_supply/{supply}"
        tree.add_node(
            f"/sys/class/power_supply/{supply}", SymbolicLink(stat.S_IFLNK | 0o777, target=target)
        )


def _battery_nodes(soc: Soc) -> dict[str, LiveNode]:
    battery = soc.battery
    gauge = BatteryGauge(soc)
    nodes = {
        "type": live_node(lambda: "Battery\n"),
        "present": live_node(lambda: "1\n"),
        "health": live_node(lambda: "Good\n"),
        "technology": live_node(lambda: "Li-ion\n"),
        "capacity": live_node(lambda: f"{int(battery.percent + 0.05)}\n"),
        "status": live_node(lambda: f"{battery_status(battery)}\n"),
        "temp": live_number_node(lambda: battery_tenths_c(soc)),
        "current_now": live_number_node(lambda: gauge.read_sample()[0]),
        "voltage_now": live_number_node(lambda: gauge.read_sample()[1]),
        "charge_counter": live_number_node(lambda: gauge.read_sample()[2]),
        "charge_full": live_node(
            lambda: f"{round(battery.profile.capacity_uah * (1 - _FADE * battery.cycles))}\n"
        ),
        "charge_full_design": live_node(lambda: f"{battery.profile.capacity_uah}\n"),
        "first_usage_date": live_node(lambda: "1691193600\n"),  # 2023-08-05
        "cycle_count": live_node(lambda: f"{battery.cycles}\n"),
    }
    if battery.profile.charging_switch == "input_suspend":
        nodes["input_suspend"] = _charging_switch_node(soc, allowed_value="0")
    elif battery.profile.charging_switch == "charging_enabled":
        nodes["charging_enabled"] = _charging_switch_node(soc, allowed_value="1")
    return nodes


def _usb_nodes(soc: Soc) -> dict[str, LiveNode]:
    battery = soc.battery
    usb_v = battery.profile.usb_v
    return {
        "type": live_node(lambda: "USB\n"),
        "present": live_node(lambda: "1\n"),
        "online": live_node(lambda: f"{int(battery.charging_allowed)}\n"),
        "current_max": live_node(lambda: f"{round(battery.profile.usb_a * 1e6)}\n"),
        "voltage_now": live_node(lambda: f"{round(battery.profile.usb_v * 1e6)}\n"),
        "input_current_now": live_node(lambda: f"{round(battery.usb_w / usb_v * 1e6)}\n"),
    }


def _charging_switch_node(soc: Soc, allowed_value: str) -> LiveNode:
    battery = soc.battery
    cut_value = "1" if allowed_value == "0" else "0"

    def write(text: str) -> None:
        if text.strip() not in ("0", "1"):
            raise os_error(errno.EINVAL)
        soc.change(lambda: setattr(battery, "charging_allowed", text.strip() == allowed_value))

    return live_node(lambda: f"{allowed_value if battery.charging_allowed else cut_value}\n", write)
