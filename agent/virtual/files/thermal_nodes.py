"""/sys/class/thermal: zones in the vendor's order, and cooling devices that show a cap."""

import errno
import stat
from collections.abc import Callable
from functools import partial

from agent.virtual.files.nodes import Link, Live, constant, live, live_number
from agent.virtual.files.tree import FileTree, failed
from agent.virtual.physics.soc import Soc
from agent.virtual.physics.zone import Zone
from agent.virtual.profiles import CoolingProfile

_THERMAL = "/sys/devices/virtual/thermal"


def plant_thermal_nodes(tree: FileTree, soc: Soc) -> None:
    """Put zones and cooling devices into the tree."""
    for number, zone in enumerate(soc.zones):
        name = f"thermal_zone{number}"
        for leaf, node in _zone_nodes(soc, zone).items():
            tree.put(f"{_THERMAL}/{name}/{leaf}", node)
        _link(tree, name)
    for number, cooling in enumerate(soc.profile.cooling):
        name = f"cooling_device{number}"
        for leaf, node in _cooling_nodes(soc, cooling).items():
            tree.put(f"{_THERMAL}/{name}/{leaf}", node)
        _link(tree, name)


def cooling_state(soc: Soc, cooling: CoolingProfile) -> int:
    """How far a cooling device has stepped in."""
    return soc.by_role(cooling.cluster).throttle_state if cooling.cluster else 0


def _zone_nodes(soc: Soc, zone: Zone) -> dict[str, Live]:
    mode = ["enabled"]

    def set_mode(text: str) -> None:
        if text.strip() not in ("enabled", "disabled"):
            raise failed(errno.EINVAL)
        mode[0] = text.strip()

    kind = zone.profile.type
    nodes = {
        "type": live(lambda: f"{kind}\n"),
        "temp": live_number(_reading(soc, zone)),
        "mode": live(lambda: f"{mode[0]}\n", set_mode),
        "policy": live(lambda: "step_wise\n"),
        "available_policies": live(lambda: "user_space step_wise \n"),
    }
    trips = [] if zone.profile.trip_c is None else [zone.profile.trip_c]
    trips += [t.profile.trip_c for t in soc.throttles if t.profile.zone == kind]
    for index, trip_c in enumerate(trips):
        text = f"{round(trip_c * zone.profile.per_degree)}\n"
        nodes[f"trip_point_{index}_temp"] = constant(text)
        nodes[f"trip_point_{index}_type"] = constant("passive\n")
    return nodes


def _reading(soc: Soc, zone: Zone) -> Callable[[], int]:
    """A zone in its driver's unit: most say milli-degrees, some tenths or whole degrees."""
    per_degree = zone.profile.per_degree
    if per_degree == 1000:
        return partial(soc.zone_mc, zone)
    return lambda: round(soc.zone_mc(zone) * per_degree / 1000)


def _cooling_nodes(soc: Soc, cooling: CoolingProfile) -> dict[str, Live]:
    cluster = soc.by_role(cooling.cluster) if cooling.cluster else None
    deepest = cooling.max_state if cluster is None else len(cluster.ladder) - 1
    return {
        "type": constant(f"{cooling.type}\n"),
        "cur_state": live_number(lambda: cluster.throttle_state if cluster else 0, _ignore),
        "max_state": constant(f"{deepest}\n"),
    }


def _ignore(text: str) -> None:
    """The thermal governor overrules a hand-written state at its next look."""


def _link(tree: FileTree, name: str) -> None:
    target = f"../../devices/virtual/thermal/{name}"
    tree.put(f"/sys/class/thermal/{name}", Link(stat.S_IFLNK | 0o777, target=target))
