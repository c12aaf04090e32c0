"""Troubles of kernel nodes: writes that do not take, values that are not true.

A node is lied about by exchanging what reads and writes it; the truth goes on behind.
"""

import errno
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import NamedTuple

from agent.virtual.files.nodes import Directory, Live
from agent.virtual.files.tree import FileTree, failed
from agent.virtual.mischief.effect import BadMischief, Effect, Victim
from agent.virtual.timeline import Event

_POLICIES = "/sys/devices/system/cpu/cpufreq/policy*"
_ZONES = "/sys/devices/virtual/thermal/thermal_zone*"
_SYSTEM = 1000  # the user that vendors' daemons run as
_NUMBER = re.compile(r"-?\d+(\.\d+)?")


class _Truth(NamedTuple):
    """How a node was before it was lied about."""

    read: Callable[[], str]
    write: Callable[[str], None] | None
    number: Callable[[], int] | None


def nodes_at(tree: FileTree, pattern: str) -> list[Live]:
    """The live nodes behind a glob."""
    found = (tree.resolve(path)[0] for path in tree.match(pattern, 0, "/"))
    return [node for node in found if isinstance(node, Live)]


@dataclass(eq=False)
class _Lies(Effect):
    """Keeps the truth of every node it changes."""

    _truths: dict[Live, _Truth] = field(default_factory=dict, init=False, repr=False)

    def remember(self, node: Live) -> None:
        self._truths[node] = _Truth(node.read, node.write, node.number)

    def stop(self, victim: Victim) -> None:
        for node, truth in self._truths.items():
            node.read, node.write, node.number = truth
        self._truths.clear()


@dataclass(eq=False)
class ClockIgnored(_Lies):
    """Clock nodes (`leaf`, a glob) take every write and change nothing.

    With `shown` they read back what was written, and the silicon still does as it likes.
    """

    leaf: str = "scaling_m??_freq"
    shown: bool = False

    def start(self, victim: Victim) -> None:
        for node in nodes_at(victim.phone.tree, f"{_POLICIES}/{self.leaf}"):
            if node.write is not None:
                self.remember(node)
                node.write = _Deaf(node) if self.shown else _swallow


class _Deaf:
    """Takes a value for show."""

    def __init__(self, node: Live) -> None:
        self._node = node

    def __call__(self, text: str) -> None:
        shown = text.strip()
        self._node.read = lambda: f"{shown}\n"
        self._node.number = (lambda: int(shown)) if shown.isdigit() else None


def _swallow(text: str) -> None:
    """Take anything, keep nothing."""


@dataclass(eq=False)
class ClockReset(Effect):
    """A daemon sets clock nodes (`leaf`) as at boot, so many seconds after each write to them.

    With `service` it is init's service of that name, and does nothing while that is stopped.
    """

    after_s: float = 7.0
    leaf: str = "scaling_*"
    service: str = ""
    _planned: list[Event] = field(default_factory=list, init=False, repr=False)

    def start(self, victim: Victim) -> None:
        self._planned.clear()

    def stop(self, victim: Victim) -> None:
        for event in self._planned:
            event.drop()
        self._planned.clear()

    def heard(self, victim: Victim, event: str, facts: dict[str, object]) -> None:
        path = str(facts.get("path", ""))
        ours = event == "sysfs" and fnmatchcase(path, f"{_POLICIES}/{self.leaf}")
        if not ours or facts.get("uid") == _SYSTEM or "fault" in facts:
            return
        wanted = _as_at_boot(victim, path)
        timeline, tree = victim.phone.timeline, victim.phone.tree

        def undo() -> None:
            if self.service and not victim.phone.soc.service_runs(self.service):
                return
            node, _ = tree.resolve(path)
            try:
                tree.append(node, f"{wanted}\n".encode(), _SYSTEM)
            except OSError:
                return  # a core that is off cannot be told

        self._planned.append(timeline.at(timeline.now + self.after_s, undo, prompt=True))


def _as_at_boot(victim: Victim, path: str) -> str:
    folder, _, leaf = path.rpartition("/")
    cluster = victim.phone.soc.cluster_of(int(folder.rpartition("policy")[2]))
    if leaf == "scaling_governor":
        return str(victim.phone.profile.kernel.governor)
    return str(cluster.ladder[0] if leaf == "scaling_min_freq" else cluster.ladder[-1])


@dataclass(eq=False)
class Sensor(_Lies):
    """Zones of a `zone` type (a glob) say `value`: degrees, `frozen`, `missing` or any text."""

    zone: str = "*"
    value: str = "frozen"
    _gone: list[tuple[Directory, str, Live]] = field(default_factory=list, init=False, repr=False)

    def start(self, victim: Victim) -> None:
        tree = victim.phone.tree
        chosen = [
            path.rpartition("/")[0]
            for path in tree.match(f"{_ZONES}/type", 0, "/")
            if fnmatchcase(tree.read(path).decode().strip(), self.zone)
        ]
        if not chosen:
            raise BadMischief(f"no zone is of a type like '{self.zone}'")
        for path in chosen:
            node, _ = tree.resolve(f"{path}/temp")
            assert isinstance(node, Live)
            self.remember(node)
            index = int(path.rpartition("thermal_zone")[2])
            self._lie(tree, path, node, victim.phone.soc.zones[index].profile.per_degree)

    def stop(self, victim: Victim) -> None:
        super().stop(victim)
        for folder, name, node in self._gone:
            folder.children[name] = node
        self._gone.clear()

    def _lie(self, tree: FileTree, path: str, node: Live, per_degree: float) -> None:
        if self.value == "missing":
            node.read, node.number = _missing, None
            folder, _ = tree.resolve(path)
            assert isinstance(folder, Directory)
            self._gone.append((folder, "temp", node))
            del folder.children["temp"]
            tree.forget_known()
            return
        said = node.read().strip() if self.value == "frozen" else self.value
        if self.value != "frozen" and _NUMBER.fullmatch(said):
            said = str(round(float(said) * per_degree))
        node.read = lambda: f"{said}\n"
        node.number = (lambda: int(said)) if _NUMBER.fullmatch(said) else None


def _missing() -> str:
    raise failed(errno.ENODEV)
