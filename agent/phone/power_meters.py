"""Find power meters among kernel nodes: rails of a board, and energy counters of a processor. Pure.

Four kinds are known. Pixels count energy (ODPM: one node with several lines, micro-watt-seconds
since boot). Jetson boards have an INA3221: older kernels show the power of a rail in milliwatts,
newer ones (hwmon) its voltage in mV and its current in mA. Processors of computers count the energy
of their packages and parts in µJ (RAPL); the counters start again at a known value.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from agent.phone.kernel_nodes import first_number
from workloads.text import safe_text

POWERCAP = "/sys/class/powercap"
_HWMON = "/sys/class/hwmon"
METER_NODES = (
    "/sys/bus/iio/devices/*/energy_value",
    "/sys/bus/i2c/drivers/ina3221x/*/*/rail_name_*",
    f"{_HWMON}/hwmon*/name",
    f"{_HWMON}/hwmon*/in*_label",
    f"{POWERCAP}/intel-rapl*/name",
    f"{POWERCAP}/intel-rapl*/energy_uj",
    f"{POWERCAP}/intel-rapl*/max_energy_range_uj",
)
METERS_MAX = 24
# The input of the whole board, by the names of Jetson boards. Others only have rails of parts.
INPUT_RAILS = ("VDD_IN", "POM_5V_IN")
_PACKAGE = "package_"
# A rail's name and its energy in a line of ODPM.
ODPM_CHANNEL = re.compile(r"CH\d+\(T=\d+\)\[([A-Za-z0-9_]{1,40})\],\s*(\d{1,18})")
_RAIL = re.compile(r"[A-Za-z0-9_]{1,40}")
_INA3221 = re.compile(rf"({_HWMON}/hwmon\d{{1,3}})/in([1-3])_label")
_RAPL = re.compile(rf"({POWERCAP}/intel-rapl:\d(:\d)?)/energy_uj")


@dataclass(frozen=True)
class RailMeter:
    """Nodes that show what a part draws; without a rail's name, a node that lists several rails."""

    path: str
    rail: str = ""
    current_path: str = ""  # if set, `path` is a voltage in mV, and this a current in mA
    restarts_at_uj: int = 0  # if set, `path` is a counter in µJ

    @property
    def is_package(self) -> bool:
        """Whether it counts the energy of a whole processor package, and not of a part of it."""
        is_zone = bool(self.restarts_at_uj) and self.path.count(":") == 1
        return is_zone and self.rail.startswith(_PACKAGE)


def find_rail_meters(nodes: Mapping[str, str]) -> tuple[RailMeter, ...]:
    """Find the meters among nodes that were read."""
    meters = []
    for path, text in sorted(nodes.items()):
        folder, mark, number = path.rpartition("/rail_name_")
        if path.endswith("/energy_value") and ODPM_CHANNEL.search(text):
            meters.append(RailMeter(path))
        elif mark and number.isdecimal() and (rail := _rail_name(text)):
            meters.append(RailMeter(f"{folder}/in_power{number}_input", rail))
        elif ina3221 := _INA3221.fullmatch(path):
            meters += _hwmon_meter(nodes, ina3221[1], ina3221[2], text)
        elif rapl := _RAPL.fullmatch(path):
            meters += _rapl_meter(nodes, rapl[1])
    return tuple(meters[:METERS_MAX])


def _rail_name(text: str) -> str:
    name = safe_text(text, 41).strip()
    return name if _RAIL.fullmatch(name) else ""


def _hwmon_meter(nodes: Mapping[str, str], folder: str, number: str, label: str) -> list[RailMeter]:
    rail = _rail_name(label)
    # 'NC' is the label of a channel that is not connected.
    if nodes.get(f"{folder}/name", "").strip() != "ina3221" or not rail or rail == "NC":
        return []
    return [RailMeter(f"{folder}/in{number}_input", rail, f"{folder}/curr{number}_input")]


def _rapl_meter(nodes: Mapping[str, str], folder: str) -> list[RailMeter]:
    """The counter of a package (package_0), of a part of it (package_0_core), or of the board."""
    parent, colon, _ = folder.removeprefix(f"{POWERCAP}/intel-rapl:").partition(":")
    above = [nodes.get(f"{POWERCAP}/intel-rapl:{parent}/name", "")] if colon else []
    parts = [*above, nodes.get(f"{folder}/name", "")]
    rail = _rail_name("_".join(part.strip() for part in parts).replace("-", "_"))
    restarts_at = first_number(nodes.get(f"{folder}/max_energy_range_uj", ""))
    if not rail or not restarts_at or restarts_at < 0:
        return []
    return [RailMeter(f"{folder}/energy_uj", rail, restarts_at_uj=restarts_at)]
