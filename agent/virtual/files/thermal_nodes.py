"""/sys/class/thermal: zones in the vendor's order, and cooling devices that show throttling."""

import errno
import stat
from collections.abc import Callable
from functools import partial

from agent.virtual.files.file_nodes import (
    LiveNode,
    SymbolicLink,
    constant_node,
    live_node,
    live_number_node,
)
from agent.virtual.files.file_tree import FileTree, os_error
from agent.virtual.physics.cpu_cluster import CpuCluster
from agent.virtual.physics.gpu_model import GpuModel
from agent.virtual.physics.soc import Soc
from agent.virtual.physics.zone_sensor import ZoneSensor
from agent.virtual.profiles import CoolingProfile

_THERMAL = "/sys/devices/virtual/thermal"


def add_thermal_nodes(tree: FileTree, soc: Soc) -> None:
    """Add zones and cooling devices to the tree."""
    for position, zone in enumerate(soc.zones):
        if not zone.profile.listed:
            continue
        number = zone.profile.number
        name = f"thermal_zone{position if number is None else number}"
        for leaf, node in _zone_nodes(soc, zone).items():
            tree.add_node(f"{_THERMAL}/{name}/{leaf}", node)
        _add_class_link(tree, name)
    for number, cooling in enumerate(soc.profile.cooling):
        name = f"cooling_device{number}"
        for leaf, node in _cooling_nodes(soc, cooling).items():
            tree.add_node(f"{_THERMAL}/{name}/{leaf}", node)
        _add_class_link(tree, name)


def cooling_state(soc: Soc, cooling: CoolingProfile) -> int:
    """Return the current state of a cooling device."""
    cooled = _cooled_part(soc, cooling)
    return cooled.throttle_state if cooled else 0


def _cooled_part(soc: Soc, cooling: CoolingProfile) -> CpuCluster | GpuModel | None:
    """Return what a cooling device caps; None: it only exists."""
    if cooling.cluster == "gpu":
        return soc.gpu
    return soc.cluster_by_role(cooling.cluster) if cooling.cluster else None


def _zone_nodes(soc: Soc, zone: ZoneSensor) -> dict[str, LiveNode]:
    mode = ["enabled"]

    def set_mode(text: str) -> None:
        if text.strip() not in ("enabled", "disabled"):
            raise os_error(errno.EINVAL)
        mode[0] = text.strip()

    zone_type = zone.profile.type
    nodes = {
        "type": live_node(lambda: f"{zone_type}\n"),
        "temp": live_number_node(_temperature_reader(soc, zone)),
        "mode": live_node(lambda: f"{mode[0]}\n", set_mode),
        "policy": live_node(lambda: "step_wise\n"),
        "available_policies": live_node(lambda: "user_space step_wise \n"),
    }
    trips = [] if zone.profile.trip_c is None else [zone.profile.trip_c]
    trips += [t.profile.trip_c for t in soc.throttles if t.profile.zone == zone_type]
    for index, trip_c in enumerate(trips):
        text = f"{round(trip_c * zone.profile.per_degree)}\n"
        nodes[f"trip_point_{index}_temp"] = constant_node(text)
        nodes[f"trip_point_{index}_type"] = constant_node("passive\n")
    return nodes


def _temperature_reader(soc: Soc, zone: ZoneSensor) -> Callable[[], int]:
    """Return a reader in the driver's unit: milli-degrees for most zones, tenths or degrees for
    some.
    """
    per_degree = zone.profile.per_degree
    if zone.profile.depletion:
        return lambda: 100 - int(soc.battery.percent + 0.05)
    if per_degree == 1000:
        return partial(soc.read_zone_mc, zone)
    return lambda: round(soc.read_zone_mc(zone) * per_degree / 1000)


def _cooling_nodes(soc: Soc, cooling: CoolingProfile) -> dict[str, LiveNode]:
    cooled = _cooled_part(soc, cooling)
    max_state = cooling.max_state if cooled is None else len(cooled.ladder) - 1
    return {
        "type": constant_node(f"{cooling.type}\n"),
        "cur_state": live_number_node(
            lambda: cooled.throttle_state if cooled else 0, _discard_state
        ),
        "max_state": constant_node(f"{max_state}\n"),
    }


def _discard_state(text: str) -> None:
    """Ignore the value: the thermal governor overrides a hand-written state at its next poll."""


def _add_class_link(tree: FileTree, name: str) -> None:
    target = f"../../devices/virtual/thermal/{name}"
    tree.add_node(f"/sys/class/thermal/{name}", SymbolicLink(stat.S_IFLNK | 0o777, target=target))
