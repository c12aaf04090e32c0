"""The sampler: looks at the listed nodes once a period, at exact model times."""

import json
import re
from collections.abc import Callable

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
        self._nodes = [self._find(path) for path in self._paths]
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
        values = ",".join([self._value(node) for node in self._nodes])
        moment = self._phone.uptime_ns()
        try:
            self._lines.say_text(f'{{"line":"reading","t_ns":{moment},"v":[{values}]}}')
        except RunnerFault as fault:
            self.stop()
            self._on_fault(fault)
            return
        self._event = timeline.at(timeline.now + self._period_s, self._look)

    def _find(self, path: str) -> Node | None:
        try:
            node, _ = self._phone.tree.resolve(path, self._uid)
        except OSError:
            return None
        return node if node.allows(self._uid, 4) else None

    def _value(self, node: Node | None) -> str:
        """A node's first line as JSON."""
        if node is None:
            return "null"
        try:
            # Live nodes are asked directly: the sampler is the busiest reader there is.
            if isinstance(node, Live):
                if node.number is not None:
                    return str(node.number())
                text = node.read()
            else:
                text = self._phone.tree.read_node(node).decode("utf-8", "replace")
        except OSError:
            return "null"
        first = text.partition("\n")[0].strip()
        if _INTEGER.fullmatch(first):
            return first
        return json.dumps(first.encode()[:_TEXT_BYTES_MAX].decode("utf-8", "ignore"))


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
