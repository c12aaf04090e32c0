"""Readings: the samples of a phone's nodes as columns over time, and a run's telemetry blob."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic_core import from_json

from agent.collect.runner_output import LINE_BYTES_MAX, RunnerOutput, StepWindow
from agent.deadline import Deadline
from agent.phone.kernel_nodes import first_number, plausible_temp_c, usual_supply_node
from agent.phone.phone_driver import Phone
from agent.phone.phone_paths import READINGS, lane_file
from agent.phone.shell_command import ShellCommand, ShellResult, parse_complete_nodes
from agent.restore.fence import fenced_command, raise_if_overtaken
from workloads.protocol.base import digest_of_bytes
from workloads.protocol.condition import READINGS_MAX
from workloads.protocol.faults import ShellFailed
from workloads.protocol.phone_facts import ThermalZone
from workloads.protocol.telemetry import Series, pack_telemetry, series_columns
from workloads.step_cost import Op
from workloads.text import safe_text

READINGS_BYTES_MAX = 64 * 1024 * 1024
_INT_MAX = 2**63 - 1
NodeValue = int | str | None
Span = tuple[int, int]  # first and last moment, in ns of the phone's clock
T = TypeVar("T")


@dataclass
class Readings:
    """Sampled nodes: one row per moment of the phone's clock (ascending), one column per node."""

    paths: tuple[str, ...] = ()
    t_ns: list[int] = field(default_factory=list)
    columns: dict[str, list[NodeValue]] = field(default_factory=dict)
    _parsed: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    _whole: "tuple[Readings, slice] | None" = field(default=None, repr=False, compare=False)

    def within(self, span: Span) -> "Readings":
        """The rows within a span."""
        if span not in self._parsed:
            rows = slice(bisect_left(self.t_ns, span[0]), bisect_right(self.t_ns, span[1]))
            columns = {path: column[rows] for path, column in self.columns.items()}
            t_ns = self.t_ns[rows]
            self._parsed[span] = Readings(self.paths, t_ns, columns, _whole=(self, rows))
        part: Readings = self._parsed[span]
        return part

    def column(self, path: str) -> list[NodeValue]:
        """The values of a node, one per row; empty if the node was not sampled."""
        return self.columns.get(path, [])

    def numbers(self, path: str) -> list[int | None]:
        """The values of a numeric node, one per row; None where it is not a number."""
        return [value if type(value) is int else None for value in self.column(path)]

    def series(self, path: str) -> list[tuple[int, int]]:
        """The moments at which a node had a number, with the number."""
        pairs = zip(self.t_ns, self.column(path), strict=False)
        return [(t_ns, value) for t_ns, value in pairs if type(value) is int]

    def parsed(self, path: str, parse: Callable[[NodeValue], T]) -> list[T]:
        """The parsed values of a node, one per row; equal ones are parsed only once."""
        if self._whole is not None:
            whole, rows = self._whole
            return whole.parsed(path, parse)[rows]
        if (path, parse) not in self._parsed:
            column = self.column(path)
            of_value = {value: parse(value) for value in set(column)}
            self._parsed[path, parse] = [of_value[value] for value in column]
        values: list[T] = self._parsed[path, parse]
        return values

    def derived(self, compute: Callable[["Readings"], T]) -> T:
        """What a function makes of these readings; it is computed only once."""
        if compute not in self._parsed:
            self._parsed[compute] = compute(self)
        value: T = self._parsed[compute]
        return value

    def hottest_c(self, zones: Sequence[ThermalZone]) -> list[tuple[int, float]]:
        """The highest plausible temperature of some zones at each moment that has one."""
        columns = []
        for zone in zones:
            numbers = self.numbers(zone.path)
            temps = {number: plausible_temp_c(number, zone.scale) for number in set(numbers)}
            columns += [[temps[number] for number in numbers]] if numbers else []
        rows = (
            (t_ns, [temp_c for temp_c in row if temp_c is not None])
            for t_ns, row in zip(self.t_ns, zip(*columns, strict=True), strict=False)
        )
        return [(t_ns, max(plausible)) for t_ns, plausible in rows if plausible]


def fetch_readings(
    phone: Phone, snapshot: ShellCommand, fence: int
) -> tuple[dict[str, str], Readings]:
    """Read some nodes and fetch the sampler's file, unless another lane holds the phone by now.

    A fence only rises, so everything that was read before the fetch is ours as well.
    """
    path = lane_file(READINGS)
    cat = fenced_command(fence, ["cat", path])  # guard: overtaken-lane-collects-nothing
    deadline = Deadline.after(phone.timeouts.transfer_timeout_s)
    nodes, file = phone.shell_batch_raw([snapshot, cat], deadline, READINGS_BYTES_MAX)
    if file.status != 0:
        result = ShellResult(file.status, file.output[:400].decode(errors="replace"))
        raise_if_overtaken(result, fence)
        raise ShellFailed(f"the readings cannot be fetched: {safe_text(result.text)}")
    return parse_complete_nodes(nodes.output.decode(errors="replace")), parse_readings(file.output)


def parse_readings(content: bytes) -> Readings:
    """Parse DIR/readings.jsonl. A row that is torn or has another width is skipped."""
    paths: tuple[str, ...] = ()
    moments: list[int] = []
    rows: list[list[object]] = []
    for line in content.split(b"\n"):
        if not line or len(line) > LINE_BYTES_MAX:
            continue
        try:
            record = from_json(line)
        except ValueError:
            continue
        if not isinstance(record, dict):
            continue
        if record.get("line") == "nodes" and isinstance(record.get("paths"), list):
            named = (usual_supply_node(str(path)) for path in record["paths"])
            paths, moments, rows = tuple(named), [], []
        elif record.get("line") == "reading":
            t_ns, values = record.get("t_ns"), record.get("v")
            if not isinstance(values, list) or len(values) != len(paths):
                continue
            if type(t_ns) is int and (not moments or t_ns >= moments[-1]):
                moments.append(t_ns)
                rows.append(values)
    kept = slice(None, None, math.ceil(len(rows) / READINGS_MAX) or 1)  # of a run that took long
    moments, rows = moments[kept], rows[kept]
    columns = zip(*rows, strict=True) if rows else ([] for _ in paths)
    safe = {path: _safe_column(column) for path, column in zip(paths, columns, strict=True)}
    return Readings(paths, moments, safe)


def readings_from_snapshots(samples: Sequence[tuple[float, Mapping[str, str]]]) -> Readings:
    """Bring nodes that the agent itself read into the form of the sampler's readings."""
    samples = [
        (t_s, {usual_supply_node(path): text for path, text in nodes.items()})
        for t_s, nodes in samples
    ]
    paths = tuple(sorted({path for _, nodes in samples for path in nodes}))
    columns: dict[str, list[NodeValue]] = {
        path: [_node_value(nodes.get(path)) for _, nodes in samples] for path in paths
    }
    return Readings(paths=paths, t_ns=[round(t_s * 1e9) for t_s, _ in samples], columns=columns)


def _node_value(text: str | None) -> NodeValue:
    if text is None:
        return None
    number = first_number(text)
    return number if number is not None else safe_text(text, 64)


def build_telemetry(
    output: RunnerOutput,
    readings: Readings,
    ops: Sequence[Op] = (),
    series: Mapping[str, Series] | None = None,
    cores: int = 1,
) -> tuple[str, bytes]:
    """Build the telemetry blob of a run: (digest, compressed JSON in columns).

    It contains the names of the operations and the series that traces are joined with, so that
    the blob can be read without the plan.
    """
    content = {
        "version": 1,
        "windows": {
            name: [getattr(window, name) for window in output.windows]
            for name in StepWindow.model_fields
        },
        "readings": {
            "paths": list(readings.paths),
            "t_ns": readings.t_ns,
            "columns": [readings.columns[path] for path in readings.paths],
        },
        "evaluations": [evaluation.model_dump() for evaluation in output.evaluations],
        "ops": {"name": [op.name for op in ops], "kind": [op.kind for op in ops]},
        "traces": output.trace_tuples,
        "series": {
            name: series_columns(values, readings.t_ns) for name, values in (series or {}).items()
        },
        "cores": cores,
    }
    blob = pack_telemetry(content)
    return digest_of_bytes(blob), blob


def _safe_column(column: Sequence[object]) -> list[NodeValue]:
    """Keep whole numbers of 64 bits, make texts safe, and drop everything else."""
    if set(map(type, column)) == {int} and -_INT_MAX <= min(column) <= max(column) <= _INT_MAX:  # type: ignore[type-var, operator]
        return list(column)  # type: ignore[arg-type]
    return [_safe_value(value) for value in column]


def _safe_value(value: object) -> NodeValue:
    if type(value) is int:
        return value if -_INT_MAX <= value <= _INT_MAX else None
    return safe_text(value, 1024) if isinstance(value, str) else None
