"""Telemetry: what the phone's sampler wrote, as columns, and the blob that travels."""

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from agent.control.fence import fenced, refuse_newer
from agent.control.guard import lane_file
from agent.deadline import Deadline
from agent.phone.nodes import first_number
from agent.phone.phone import PUSH_S, Answer, Command, Phone, whole_nodes
from agent.run.lines import LINE_BYTES_MAX, Output, Window
from workloads.fault import ShellFailed
from workloads.noun import digest_of_bytes
from workloads.text import safe_text
from workloads.timeline import Course, write_blob
from workloads.work import Op

READINGS_BYTES_MAX = 16 * 1024 * 1024
Value = int | str | None
T = TypeVar("T")


@dataclass
class Readings:
    """Sampled nodes: one moment of the phone's clock a row, one column a node."""

    paths: tuple[str, ...] = ()
    t_ns: list[int] = field(default_factory=list)
    columns: dict[str, list[Value]] = field(default_factory=dict)
    _made: dict[Hashable, Any] = field(default_factory=dict, repr=False, compare=False)

    def numbers(self, path: str) -> list[int | None]:
        """A column of a numeric node; what is no number is None."""
        return [value if type(value) is int else None for value in self.columns.get(path, [])]

    def once(self, what: Hashable, make: Callable[[], T]) -> T:
        """Something that is made of these readings: made once, however many ask for it."""
        if what not in self._made:
            self._made[what] = make()
        made: T = self._made[what]
        return made


def bring_in(phone: Phone, look: Command, fence: int) -> tuple[dict[str, str], Readings]:
    """Look at nodes and fetch what was sampled, unless the phone is another's by now.

    Nothing that was read before can be another's then: a fence only rises.
    """
    cat = fenced(fence, ["cat", lane_file("readings.jsonl")])
    seen, file = phone.exchange([look, cat], Deadline.after(PUSH_S), READINGS_BYTES_MAX)
    if file.status != 0:
        answer = Answer(file.status, file.output[:400].decode(errors="replace"))
        refuse_newer(answer, fence)
        raise ShellFailed(f"The readings cannot be fetched: {safe_text(answer.text)}")
    return whole_nodes(seen.output.decode(errors="replace")), parse_readings(file.output)


def parse_readings(content: bytes) -> Readings:
    """Read DIR/readings.jsonl. A row that is torn or of another width is left out."""
    readings = Readings()
    for line in content.split(b"\n"):
        if not line or len(line) > LINE_BYTES_MAX:
            continue
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if not isinstance(said, dict):
            continue
        if said.get("line") == "nodes" and isinstance(said.get("paths"), list):
            readings = Readings(paths=tuple(str(path) for path in said["paths"]))
            readings.columns = {path: [] for path in readings.paths}
        elif said.get("line") == "reading":
            _add_row(readings, said.get("t_ns"), said.get("v"))
    return readings


def rest_readings(looks: Sequence[tuple[float, Mapping[str, str]]]) -> Readings:
    """What the agent read itself while the phone rested, in the form of the sampler's readings."""
    paths = tuple(sorted({path for _, nodes in looks for path in nodes}))
    columns: dict[str, list[Value]] = {
        path: [_value(nodes.get(path)) for _, nodes in looks] for path in paths
    }
    return Readings(paths=paths, t_ns=[round(t_s * 1e9) for t_s, _ in looks], columns=columns)


def _value(text: str | None) -> Value:
    if text is None:
        return None
    number = first_number(text)
    return number if number is not None else safe_text(text, 64)


def within(readings: Readings, span: tuple[int, int]) -> Readings:
    """The rows that fall into a span."""
    rows = [at for at, t_ns in enumerate(readings.t_ns) if span[0] <= t_ns <= span[1]]
    return Readings(
        paths=readings.paths,
        t_ns=[readings.t_ns[at] for at in rows],
        columns={
            path: [column[at] for at in rows if at < len(column)]
            for path, column in readings.columns.items()
        },
    )


def pack(
    output: Output,
    readings: Readings,
    ops: Sequence[Op] = (),
    courses: Mapping[str, Course] | None = None,
    cores: int = 1,
) -> tuple[str, bytes]:
    """Make the blob of a run: (digest, compressed JSON in columns).

    With the traces go the names of the operations and the courses that they are joined with, so
    that the blob explains itself wherever it is read.
    """
    content = {
        "version": 2,
        "windows": {
            name: [getattr(window, name) for window in output.windows]
            for name in Window.model_fields
        },
        "readings": {
            "paths": list(readings.paths),
            "t_ns": readings.t_ns,
            "columns": [readings.columns[path] for path in readings.paths],
        },
        "evaluations": [each.model_dump() for each in output.evaluations],
        "ops": {"name": [op.name for op in ops], "kind": [op.kind for op in ops]},
        "traces": output.trace_tuples,
        "courses": {name: course._asdict() for name, course in (courses or {}).items()},
        "cores": cores,
    }
    blob = write_blob(content)
    return digest_of_bytes(blob), blob


def _add_row(readings: Readings, t_ns: object, values: object) -> None:
    if type(t_ns) is not int or not isinstance(values, list):
        return
    if len(values) != len(readings.paths) or (readings.t_ns and t_ns < readings.t_ns[-1]):
        return
    readings.t_ns.append(t_ns)
    for path, value in zip(readings.paths, values, strict=True):
        plain = type(value) is int and -(2**63) < value < 2**63
        readings.columns[path].append(value if plain else _clean(value))


def _clean(value: object) -> Value:
    return safe_text(value, 1024) if isinstance(value, str) else None
