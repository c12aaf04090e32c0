"""The sampler: looks at the listed nodes once a period, at exact model times."""

import json
import re
from collections.abc import Callable
from functools import partial

from agent.virtual.files.nodes import Live, Node
from agent.virtual.phone import Phone
from agent.virtual.runner.contract import Exit, RunnerFault
from agent.virtual.runner.lines import Lines
from agent.virtual.timeline import Event

_INTEGER = re.compile(r"-?(?:0|[1-9]\d{0,17})")
_TEXT_BYTES_MAX = 256


class Sampler:
    """Reads DIR/nodes and appends to DIR/readings.jsonl until it is stopped."""

    def __init__(
        self,
        phone: Phone,
        folder: str,
        uid: int,
        period_s: float,
        on_fault: Callable[[RunnerFault], None],
    ) -> None:
        self._phone = phone
        self._uid = uid
        self._period_s = max(period_s, 0.001)
        self._on_fault = on_fault
        self._event: Event | None = None
        listed = phone.tree.read(f"{folder}/nodes", uid).decode("utf-8", "replace")
        self._paths = [line for line in listed.splitlines() if line.strip()]
        self._readers = [self._reader(path) for path in self._paths]
        self._lines = Lines(phone, f"{folder}/readings.jsonl", uid, append=True)

    def start(self) -> None:
        self._lines.say({"line": "nodes", "paths": self._paths})
        self._look()

    def stop(self) -> None:
        if self._event is not None:
            self._event.drop()
            self._event = None

    def _look(self) -> None:
        timeline = self._phone.timeline
        try:
            values = ",".join([str(read()) for read in self._readers])
        except OSError:
            values = ",".join([str(_or_null(read)) for read in self._readers])
        moment = self._phone.uptime_ns()
        try:
            self._lines.say_text(f'{{"line":"reading","t_ns":{moment},"v":[{values}]}}')
        except RunnerFault as fault:
            self.stop()
            self._on_fault(fault)
            return
        self._event = timeline.at(timeline.now + self._period_s, self._look)

    def _reader(self, path: str) -> Callable[[], int | str]:
        """How a node is read as JSON; live numbers directly, since they are read so often."""
        try:
            node, _ = self._phone.tree.resolve(path, self._uid)
        except OSError:
            return lambda: "null"
        if not node.allows(self._uid, 4):
            return lambda: "null"
        if isinstance(node, Live) and node.number is not None:
            return partial(self._number, node)
        return partial(self._text, node)

    def _number(self, node: Live) -> int | str:
        # Asked anew each time: a sensor may begin to lie in mid-run.
        return node.number() if node.number is not None else self._text(node)

    def _text(self, node: Node) -> str:
        text = self._phone.tree.read_node(node).decode("utf-8", "replace")
        first = text.partition("\n")[0].strip()
        if _INTEGER.fullmatch(first):
            return first
        return json.dumps(first.encode()[:_TEXT_BYTES_MAX].decode("utf-8", "ignore"))


def _or_null(read: Callable[[], int | str]) -> int | str:
    try:
        return read()
    except OSError:
        return "null"


def has_nodes(phone: Phone, folder: str, uid: int) -> bool:
    try:
        phone.tree.read(f"{folder}/nodes", uid)
    except OSError:
        return False
    return True


def sampler_for(
    phone: Phone, folder: str, uid: int, period_s: float, on_fault: Callable[[RunnerFault], None]
) -> Sampler:
    """A sampler for `sample`, which cannot do without its list."""
    if not has_nodes(phone, folder, uid):
        raise RunnerFault(Exit.IO, f"{folder}/nodes cannot be read; list the nodes there first")
    return Sampler(phone, folder, uid, period_s, on_fault)
