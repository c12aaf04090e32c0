"""Faults of kernel nodes: writes without effect and wrong values.

A fault replaces the functions that read and write a node; the model behind it is unchanged.
"""

import errno
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from typing import NamedTuple

from agent.virtual.event_journal import JournalEvent
from agent.virtual.files.file_nodes import Directory, LiveNode
from agent.virtual.files.file_tree import FileTree, os_error
from agent.virtual.mischief.fault_type import (
    Change,
    ChangeFault,
    FaultType,
    InjectionTarget,
    InvalidMischief,
)
from agent.virtual.phone_clock import ScheduledAction

_POLICIES = "/sys/devices/system/cpu/cpufreq/policy*"
_ZONES = "/sys/devices/virtual/thermal/thermal_zone*"
_SYSTEM = 1000  # the user that vendors' daemons run as
_NUMBER = re.compile(r"-?\d+(\.\d+)?")


class _OriginalNode(NamedTuple):
    """The functions of a node before a fault replaced them."""

    read: Callable[[], str]
    write: Callable[[str], None] | None
    number: Callable[[], int] | None


def find_live_nodes(tree: FileTree, pattern: str) -> list[LiveNode]:
    """Return the live nodes that match a glob."""
    nodes = (tree.resolve(path)[0] for path in tree.expand_glob(pattern, 0, "/"))
    return [node for node in nodes if isinstance(node, LiveNode)]


@dataclass(eq=False)
class _NodeFault(FaultType):
    """Restores every node that it changed."""

    _originals: dict[LiveNode, _OriginalNode] = field(default_factory=dict, init=False, repr=False)

    def save(self, node: LiveNode) -> None:
        self._originals[node] = _OriginalNode(node.read, node.write, node.number)

    def stop(self, target: InjectionTarget) -> None:
        for node, original in self._originals.items():
            node.read, node.write, node.number = original
        self._originals.clear()


@dataclass(eq=False)
class ClockIgnored(_NodeFault):
    """Clock nodes (`leaf`, a glob) accept every write and change nothing.

    With `shown` they read back what was written, although the clock does not follow.
    """

    leaf: str = "scaling_m??_freq"
    shown: bool = False

    def start(self, target: InjectionTarget) -> None:
        for node in find_live_nodes(target.phone.tree, f"{_POLICIES}/{self.leaf}"):
            if node.write is not None:
                self.save(node)
                node.write = _ShowWritten(node) if self.shown else _discard


class _ShowWritten:
    """Shows the written value without applying it."""

    def __init__(self, node: LiveNode) -> None:
        self._node = node

    def __call__(self, text: str) -> None:
        written = text.strip()
        self._node.read = lambda: f"{written}\n"
        self._node.number = (lambda: int(written)) if written.isdigit() else None


def _discard(text: str) -> None:
    """Accept and drop a value."""


@dataclass(eq=False)
class ClockPretends(ChangeFault):
    """The real CPU clocks are `steps` rungs above the shown ones, or below them (negative)."""

    steps: int = -3

    def changes(self, target: InjectionTarget) -> Iterator[Change]:
        for cluster in target.phone.soc.clusters:
            yield Change(cluster, "hidden_rungs", self.steps)


@dataclass(eq=False)
class ClockReset(FaultType):
    """A daemon resets clock nodes (`leaf`) to their boot values `after_s` seconds after each write.

    With `service` it is init's service of that name, and does nothing while that is stopped.
    """

    after_s: float = 7.0
    leaf: str = "scaling_*"
    service: str = ""
    _pending_resets: list[ScheduledAction] = field(default_factory=list, init=False, repr=False)

    def start(self, target: InjectionTarget) -> None:
        self._pending_resets.clear()

    def stop(self, target: InjectionTarget) -> None:
        for event in self._pending_resets:
            event.cancel()
        self._pending_resets.clear()

    def observe(self, target: InjectionTarget, event: str, facts: dict[str, object]) -> None:
        path = str(facts.get("path", ""))
        is_clock_write = event == JournalEvent.SYSFS_WRITE and fnmatchcase(
            path, f"{_POLICIES}/{self.leaf}"
        )
        if not is_clock_write or facts.get("uid") == _SYSTEM or "error" in facts:
            return
        boot_value = _boot_value(target, path)
        clock, tree = target.phone.clock, target.phone.tree

        def reset_node() -> None:
            if self.service and not target.phone.soc.is_service_running(self.service):
                return
            node, _ = tree.resolve(path)
            try:
                tree.append(node, f"{boot_value}\n".encode(), _SYSTEM)
            except OSError:
                return  # the node of an offline core cannot be written

        self._pending_resets.append(
            clock.schedule(clock.now + self.after_s, reset_node, wakes_host=True)
        )


def _boot_value(target: InjectionTarget, path: str) -> str:
    folder, _, leaf = path.rpartition("/")
    cluster = target.phone.soc.cluster_of(int(folder.rpartition("policy")[2]))
    if leaf == "scaling_governor":
        return str(target.phone.profile.kernel.governor)
    return str(cluster.ladder[0] if leaf == "scaling_min_freq" else cluster.ladder[-1])


@dataclass(eq=False)
class Sensor(_NodeFault):
    """Zones whose type matches `zone` read `value`: degrees, `frozen`, `missing` or any text."""

    zone: str = "*"
    value: str = "frozen"
    _removed: list[tuple[Directory, str, LiveNode]] = field(
        default_factory=list, init=False, repr=False
    )

    def start(self, target: InjectionTarget) -> None:
        tree = target.phone.tree
        zone_paths = [
            path.rpartition("/")[0]
            for path in tree.expand_glob(f"{_ZONES}/type", 0, "/")
            if fnmatchcase(tree.read(path).decode().strip(), self.zone)
        ]
        if not zone_paths:
            raise InvalidMischief(f"no thermal zone has a type that matches '{self.zone}'")
        for path in zone_paths:
            node, _ = tree.resolve(f"{path}/temp")
            assert isinstance(node, LiveNode)
            self.save(node)
            index = int(path.rpartition("thermal_zone")[2])
            self._falsify(tree, path, node, target.phone.soc.zones[index].profile.per_degree)

    def stop(self, target: InjectionTarget) -> None:
        super().stop(target)
        for folder, name, node in self._removed:
            folder.children[name] = node
        self._removed.clear()

    def _falsify(self, tree: FileTree, path: str, node: LiveNode, per_degree: float) -> None:
        if self.value == "missing":
            node.read, node.number = _raise_missing, None
            folder, _ = tree.resolve(path)
            assert isinstance(folder, Directory)
            self._removed.append((folder, "temp", node))
            del folder.children["temp"]
            tree.clear_path_cache()
            return
        shown = node.read().strip() if self.value == "frozen" else self.value
        if self.value != "frozen" and _NUMBER.fullmatch(shown):
            shown = str(round(float(shown) * per_degree))
        node.read = lambda: f"{shown}\n"
        node.number = (lambda: int(shown)) if _NUMBER.fullmatch(shown) else None


@dataclass(eq=False)
class NodeValue(_NodeFault):
    """Nodes that match the glob `path` read `value`: `frozen`, `missing`, or a text.

    With `value=scaled` they read `factor` times their number.
    """

    path: str = "/proc/stat"
    value: str = "frozen"
    factor: float = 1.0

    def start(self, target: InjectionTarget) -> None:
        for node in _matching_nodes(target, self.path, "path"):
            self.save(node)
            if self.value == "missing":
                node.read, node.number = _raise_missing, None
            elif self.value == "scaled":
                node.number = partial(self._scaled, node.number or _zero)
                node.read = partial(_line_of, node.number)
            else:
                text = node.read() if self.value == "frozen" else f"{self.value}\n"
                node.read, node.number = partial(str, text), None

    def _scaled(self, original: Callable[[], int]) -> int:
        return round(self.factor * original())


@dataclass(eq=False)
class OpPower(_NodeFault):
    """Power meters read `watts` more while an operation runs whose name matches `op` (a glob)."""

    op: str = "*"
    watts: float = 1.0
    node: str = "/sys/bus/i2c/drivers/ina3221x/*/*/in_power*_input"

    def start(self, target: InjectionTarget) -> None:
        for node in _matching_nodes(target, self.node, "node"):
            self.save(node)
            number = partial(self._milliwatts, target, node.number or _zero)
            node.number = number
            node.read = partial(_line_of, number)

    def _milliwatts(self, target: InjectionTarget, original: Callable[[], int]) -> int:
        is_running = fnmatchcase(target.phone.current_op(), self.op)
        return original() + (round(1000 * self.watts) if is_running else 0)


def _matching_nodes(target: InjectionTarget, pattern: str, option: str) -> list[LiveNode]:
    """The nodes that match a pattern; the option that names none is refused."""
    nodes = find_live_nodes(target.phone.tree, pattern)
    if not nodes:
        raise InvalidMischief(f"no node matches '{pattern}'", option)
    return nodes


def _zero() -> int:
    return 0


def _line_of(number: Callable[[], int]) -> str:
    return f"{number()}\n"


def _raise_missing() -> str:
    raise os_error(errno.ENODEV)
