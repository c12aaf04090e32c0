"""The kernel nodes of this computer that a native phone shows, and those that may be written.

A node that is not listed here does not exist on the phone. Nodes keep their paths, except where the
agent knows the same format under another name: the battery, and clocks without policies.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

# Only for tests: another folder in the place of /sys.
SYSFS_VARIABLE = "FARM_NATIVE_SYSFS"

_CPU = "devices/system/cpu"
_CLOCK_LIMITS = ("scaling_governor", "scaling_min_freq", "scaling_max_freq")
_CLOCKS = (
    *("related_cpus", "scaling_driver", "scaling_available_frequencies", "scaling_cur_freq"),
    *("cpuinfo_min_freq", "cpuinfo_max_freq", "base_frequency", "stats/time_in_state"),
    "scaling_available_governors",
)
_GPU_LIMITS = ("governor", "min_freq", "max_freq")
_GPU_CLOCKS = ("available_frequencies", "available_governors", "cur_freq", "device/load")
# GPUs of Jetson boards (nvgpu), and Mali on other boards.
_GPUS = ("*.gp10b", "*.gv11b", "*.ga10b", "*.gpu", "*mali*")


class NodeGroup(NamedTuple):
    """Nodes of one kind: a pattern of folders below /sys, and patterns of nodes in them."""

    folder: str
    readable: tuple[str, ...]
    writable: tuple[str, ...] = ()  # these are readable, too


LISTED_NODES = (
    NodeGroup(f"{_CPU}/cpu[0-9]*", ("cpu_capacity", "acpi_cppc/nominal_freq")),
    NodeGroup(f"{_CPU}/cpu[0-9]*/topology", ("thread_siblings_list",)),
    NodeGroup("devices/cpu_*", ("cpus",)),  # hybrid processors: cpu_core and cpu_atom
    NodeGroup(f"{_CPU}/cpufreq/policy*", _CLOCKS, _CLOCK_LIMITS),
    NodeGroup("class/thermal/thermal_zone*", ("type", "temp")),
    NodeGroup("class/thermal/cooling_device*", ("type", "cur_state")),
    # INA3221, a meter of power rails, as older Jetson kernels show it.
    NodeGroup("bus/i2c/drivers/ina3221x/*/*", ("rail_name_*", "in_power*_input")),
    # RAPL, the energy counters of processors; AMD's have this name, too.
    NodeGroup("class/powercap/intel-rapl:*", ("name", "energy_uj", "max_energy_range_uj")),
    *(NodeGroup(f"class/devfreq/{gpu}", _GPU_CLOCKS, _GPU_LIMITS) for gpu in _GPUS),
)
_HWMON = "class/hwmon/hwmon*"
_TEMPERATURES = NodeGroup(_HWMON, ("name", "temp*_label", "temp*_input"))
_RAILS = NodeGroup(_HWMON, ("name", "in[1-3]_label", "in[1-3]_input", "curr[1-3]_input"))
# Chips by name. Others are left alone: reading the temperature of a disk may wake it.
LISTED_CHIPS = {
    **dict.fromkeys(("coretemp", "k10temp", "zenpower"), _TEMPERATURES),
    **dict.fromkeys(("cpu_thermal", "soc_thermal"), _TEMPERATURES),
    "ina3221": _RAILS,
}
# The firmware of a Raspberry Pi throttles below what cpufreq shows. Models have it elsewhere.
_FIRMWARES = ("devices/platform/soc/soc:firmware", "devices/platform/soc@*/*firmware*")
_FIRMWARE_NODE = "devices/platform/soc/soc:firmware/get_throttled"
_SUPPLIES = "class/power_supply"
_BATTERY = (
    *("type", "status", "capacity", "temp", "current_now", "voltage_now", "power_now"),
    *("charge_full_design", "energy_full_design"),
)


class HostNode(NamedTuple):
    """A node of this computer, and its path below /sys on the phone."""

    path: Path
    shown_as: str
    may_write: bool = False


def sysfs_root() -> Path:
    """Return the folder of the kernel's nodes."""
    return Path(os.environ.get(SYSFS_VARIABLE) or "/sys")


def find_host_nodes(sysfs: Path) -> list[HostNode]:
    """Find every listed node that this computer has."""
    nodes = [node for group in LISTED_NODES for node in _group_nodes(sysfs, group)]
    if not any(node.shown_as.startswith(f"{_CPU}/cpufreq/") for node in nodes):
        nodes += _clocks_without_policies(sysfs)
    return [*nodes, *_chip_nodes(sysfs), *_firmware_node(sysfs), *_supply_nodes(sysfs)]


def board_name(sysfs: Path) -> str:
    """Return the name of a board by its device tree; empty on computers that have none."""
    return _read_text(sysfs / "firmware/devicetree/base/model").strip("\0 \n")[:60]


def board_processor(sysfs: Path) -> str:
    """Return the processor of a board by its device tree, such as `nvidia,tegra234`."""
    names = _read_text(sysfs / "firmware/devicetree/base/compatible").strip("\0 \n")
    return names.split("\0")[-1][:60]


def _group_nodes(sysfs: Path, group: NodeGroup) -> Iterator[HostNode]:
    for may_write, patterns in ((False, group.readable), (True, group.writable)):
        for pattern in patterns:
            for path in sorted(sysfs.glob(f"{group.folder}/{pattern}")):
                yield HostNode(path, str(path.relative_to(sysfs)), may_write)


def _chip_nodes(sysfs: Path) -> Iterator[HostNode]:
    for folder in sorted(sysfs.glob(_HWMON)):
        group = LISTED_CHIPS.get(_read_text(folder / "name").strip())
        if group is not None:
            name = str(folder.relative_to(sysfs))
            yield from _group_nodes(sysfs, group._replace(folder=name))


def _firmware_node(sysfs: Path) -> Iterator[HostNode]:
    found = [path for at in _FIRMWARES for path in sorted(sysfs.glob(f"{at}/get_throttled"))]
    if found:
        yield HostNode(found[0], _FIRMWARE_NODE)


def _clocks_without_policies(sysfs: Path) -> Iterator[HostNode]:
    """Show the clocks of old kernels, which have one folder per core, as policies."""
    for folder in sorted(sysfs.glob(f"{_CPU}/cpu[0-9]*/cpufreq")):
        number = folder.parent.name.removeprefix("cpu")
        if _read_text(folder / "related_cpus").replace("-", " ").split()[:1] == [number]:
            shown_as = f"{_CPU}/cpufreq/policy{number}"
            yield from _renamed(folder, shown_as, _CLOCKS)
            yield from _renamed(folder, shown_as, _CLOCK_LIMITS, may_write=True)


def _supply_nodes(sysfs: Path) -> Iterator[HostNode]:
    """Show the battery and the mains adapter under the names that they have on phones.

    A computer with several batteries shows none: only one of them discharges at a time.
    """
    supplies = sorted(sysfs.glob(f"{_SUPPLIES}/*"))
    batteries = [
        supply
        for supply in supplies
        if _read_text(supply / "type").strip() == "Battery"
        and _read_text(supply / "scope").strip() != "Device"  # of a mouse or a headset
    ]
    if len(batteries) == 1:
        yield from _renamed(batteries[0], f"{_SUPPLIES}/battery", _BATTERY)
        mains = [supply for supply in supplies if _read_text(supply / "type").strip() == "Mains"]
        for supply in mains[:1]:
            yield from _renamed(supply, f"{_SUPPLIES}/usb", ("online",))


def _renamed(
    folder: Path, shown_as: str, names: Iterable[str], may_write: bool = False
) -> Iterator[HostNode]:
    for name in names:
        if (folder / name).exists():
            yield HostNode(folder / name, f"{shown_as}/{name}", may_write)


def _read_text(path: Path) -> str:
    with suppress(OSError):
        return path.read_bytes()[:4096].decode(errors="replace")
    return ""
