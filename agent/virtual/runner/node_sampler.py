"""The sampler: looks at the listed nodes once a period, at exact model times."""

import json
import re
from collections.abc import Callable

from agent.virtual.files.nodes import Live, Node, live
from agent.virtual.phone import Phone
from agent.virtual.processes import Process
from agent.virtual.runner.contract import Exit, Line, RunnerFault
from agent.virtual.runner.lines import Lines
from agent.virtual.timeline import Event

_INTEGER = re.compile(r"-?(?:0|[1-9]\d{0,17})")
_TEXT_BYTES_MAX = 256
_WHOLE_BYTES_MAX = 1024
_UNREADABLE = live(str)  # reads as null


class Sampler:
    """Reads DIR/nodes and appends to DIR/readings.jsonl until it is stopped."""

    def __init__(
        self,
        phone: Phone,
        folder: str,
        process: Process,
        period_s: float,
        on_fault: Callable[[RunnerFault], None],
    ) -> None:
        self._phone = phone
        self._process = process
        self._uid = uid = process.uid
        self._period_s = period_s
        self.readings = 0
        self._on_fault = on_fault
        self._event: Event | None = None
        listed = phone.tree.read(f"{folder}/nodes", uid).decode("utf-8", "replace")
        marked = [line.partition("\t") for line in listed.splitlines() if line.strip()]
        self._paths = [path for path, _, _ in marked]
        self._nodes = [
            (self._node(path, mark), _WHOLE_BYTES_MAX if mark else _TEXT_BYTES_MAX)
            for path, _, mark in marked
        ]
        self._lines = Lines(phone, f"{folder}/readings.jsonl", uid, append=True)

    def start(self) -> None:
        self._lines.say({"line": "nodes", "paths": self._paths})
        self.look()

    def stop(self) -> None:
        if self._event is not None:
            self._event.drop()
            self._event = None

    def look(self) -> None:
        """Read every node once, and again after a period."""
        timeline = self._phone.timeline
        try:
            # Written out: this is most of what a phone at work does. Each node is asked anew, since
            # a sensor may begin to lie in mid-run.
            values = ",".join(
                [
                    str(node.number() if node.number is not None else self._text(node, most))
                    for node, most in self._nodes
                ]
            )
        except OSError:
            values = ",".join([self._text_or_null(*node) for node in self._nodes])
        moment = self._phone.uptime_ns()
        self.readings += 1
        try:
            self._lines.say_text(f'{{"line":"reading","t_ns":{moment},"v":[{values}]}}')
        except RunnerFault as fault:
            self.stop()
            self._on_fault(fault)
            return
        self._event = timeline.at(timeline.now + self._period_s, self.look)

    def cost(self) -> Line:
        """What sampling cost: nothing, since this phone's work does not wait for it."""
        return {
            "line": "sampler",
            "readings": self.readings,
            "cpu_ns": 0,
            "late_p50_ns": 0,
            "late_p99_ns": 0,
            "late_max_ns": 0,
            "core": -1,
        }

    def _node(self, path: str, mark: str) -> Live:
        """The node behind a path, as something to ask for a number or a text."""
        try:
            own = path.replace("/proc/self/", f"/proc/{self._process.pid}/", 1)
            node, _ = self._phone.tree.resolve(own, self._uid)
        except OSError:
            return _UNREADABLE
        if not node.allows(self._uid, 4):
            return _UNREADABLE
        if mark == "cores":
            return live(lambda: core_times(self._content(node)))
        if mark == "whole":
            return live(lambda: _joined(self._content(node)))
        return node if isinstance(node, Live) else live(lambda: self._content(node))

    def _content(self, node: Node) -> str:
        return self._phone.tree.read_node(node).decode("utf-8", "replace")

    def _text_or_null(self, node: Live, most: int) -> str:
        try:
            return str(node.number()) if node.number is not None else self._text(node, most)
        except OSError:
            return "null"

    def _text(self, node: Live, most: int) -> str:
        if node is _UNREADABLE:
            return "null"
        text = self._phone.tree.read_node(node).decode("utf-8", "replace")
        first = text.partition("\n")[0].strip()
        if _INTEGER.fullmatch(first):
            return first
        return json.dumps(first.encode()[:most].decode("utf-8", "ignore"))


def core_times(text: str) -> str:
    """Of a text like /proc/stat: CPU:BUSY/TOTAL in ticks, for every core that is online."""
    cores = []
    for line in text.splitlines():
        name, *words = line.split()
        if name.startswith("cpu") and name[3:].isdigit() and len(words) >= 5:
            ticks = [int(word) for word in words[:8]]  # guests are counted under user already
            total = sum(ticks)
            cores.append(f"{name[3:]}:{total - ticks[3] - ticks[4]}/{total}")
    return " ".join(cores)


def _joined(text: str) -> str:
    return ";".join(text.splitlines())


def has_nodes(phone: Phone, folder: str, uid: int) -> bool:
    try:
        phone.tree.read(f"{folder}/nodes", uid)
    except OSError:
        return False
    return True


def sampler_for(
    phone: Phone,
    folder: str,
    process: Process,
    period_s: float,
    on_fault: Callable[[RunnerFault], None],
) -> Sampler:
    """A sampler for `sample`, which cannot do without its list."""
    if not has_nodes(phone, folder, process.uid):
        raise RunnerFault(Exit.IO, f"{folder}/nodes cannot be read; list the nodes there first")
    return Sampler(phone, folder, process, period_s, on_fault)
