"""The cells of a sweep: every combination of its axes, minus excluded and plus included ones.

A cell is one case under one condition. Cells are counted before any is built, and a cell that
several combinations produce exists once.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.sweepfile.model_reader import read_key, written_keys
from orchestrator.sweepfile.node_reader import NodeReader
from orchestrator.sweepfile.selector import Selector
from orchestrator.sweepfile.workload_reader import WorkloadKeys, WorkloadSpec
from orchestrator.sweepfile.yaml_nodes import ListNode, MappingEntry, MappingNode, Node, ScalarNode
from workloads.catalogue import Case
from workloads.protocol.condition import Condition
from workloads.run_options import RUN_OPTIONS
from workloads.text import safe_text

WORKLOAD, BACKEND = "workload", "backend"
CONDITIONS = written_keys(Condition)
AXES = ("protocol", "cores", "freq", "gpu_freq")  # conditions that can be axes
NAME_MAX = 40
WrittenValue = str | int


@dataclass(frozen=True)
class AxisValue:
    """One value of an axis: as it is written, and the settings that it stands for."""

    written: WrittenValue
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class MatrixAxis:
    """One dimension of the matrix."""

    name: str
    values: tuple[AxisValue, ...]


@dataclass(frozen=True)
class CellRule:
    """An entry under `exclude` or `include`: which cells, on which phones, and why."""

    kind: str
    index: int
    values: Mapping[str, tuple[WrittenValue, ...]]
    when: Selector | None
    why: str
    line: int = field(default=0, compare=False)

    @property
    def name(self) -> str:
        """Its name in a plan, such as `exclude #1`."""
        return f"{self.kind} #{self.index + 1}"

    def covers(self, cell: "Cell") -> bool:
        """Return whether a cell has a value of every key that the rule names."""
        return all(cell.has_value(key, values) for key, values in self.values.items())


@dataclass(frozen=True)
class Cell:
    """One case under one condition, and the rules that remove or add it on some phones."""

    case: Case
    condition: Condition
    case_digest: str
    condition_digest: str
    axis_values: Mapping[str, WrittenValue]  # the workload and the axes, as written
    removed_by: tuple[CellRule, ...] = ()  # on phones that these rules select
    added_by: CellRule | None = None  # only on phones that this rule selects

    @property
    def key(self) -> tuple[str, str]:
        """Digests of case and condition; unique within a sweep."""
        return self.case_digest, self.condition_digest

    @property
    def label(self) -> str:
        """Short name for tables."""
        return f"{self.case.label}, {self.condition.label}"

    @property
    def identity(self) -> list[Any]:
        """The canonical form for the sweep's digest."""
        removed = sorted(str(rule.when) for rule in self.removed_by)
        added = str(self.added_by.when) if self.added_by and self.added_by.when else ""
        return [self.case_digest, self.condition_digest, removed, added]

    def has_value(self, key: str, values: Sequence[WrittenValue]) -> bool:
        """Return whether the cell has one of these values, as written or by default."""
        if self.axis_values.get(key) in values:
            return True
        if key in self.case.settings:
            return self.case.settings[key] in values
        if key == BACKEND:
            return self.case.backend in values
        return getattr(self.condition, key, None) in values


@dataclass(frozen=True)
class CellSpace:
    """Cells that are not built yet, so that they can be counted first.

    A workload takes only the parameters that it has, so an axis without meaning for a workload does
    not multiply its cells.
    """

    workload_spec: WorkloadSpec
    workloads: tuple[str, ...]
    fixed: Mapping[str, Any]
    axes: tuple[MatrixAxis, ...]

    def count(self) -> int:
        """Return the maximum number of cells."""
        return sum(
            math.prod(len(axis.values) for axis in self._axes_for(name)) for name in self.workloads
        )

    def build(self) -> list[Cell]:
        """Build every cell, each once."""
        cells: dict[tuple[str, str], Cell] = {}
        for cell in itertools.chain.from_iterable(map(self._build_workload, self.workloads)):
            cells.setdefault(cell.key, cell)
        return list(cells.values())

    def _build_workload(self, workload: str) -> Iterator[Cell]:
        parameters = self.workload_spec.parameters_of([workload])
        axes = self._axes_for(workload)
        cases: dict[tuple[Any, ...], tuple[Case, str]] = {}
        conditions: dict[tuple[Any, ...], tuple[Condition, str]] = {}
        for combination in itertools.product(*(axis.values for axis in axes)):
            settings = dict(self.fixed)
            axis_values: dict[str, WrittenValue] = {WORKLOAD: workload}
            for axis, value in zip(axes, combination, strict=True):
                settings |= value.settings
                axis_values[axis.name] = value.written
            backend = settings.get(BACKEND)
            case_settings = {
                key: v
                for key, v in settings.items()
                if key in parameters and self.workload_spec.resolver.has_meaning(key, backend)
            }
            condition_settings = {
                key: v for key, v in settings.items() if key in Condition.model_fields
            }
            case_key = (backend, *case_settings.items())
            condition_key = tuple(condition_settings.items())
            if case_key not in cases:
                case = self.workload_spec.resolver.bind(workload, case_settings, backend)
                cases[case_key] = (case, case.digest)
            if condition_key not in conditions:
                condition = Condition(**condition_settings)
                conditions[condition_key] = (condition, condition.digest)
            case, case_digest = cases[case_key]
            condition, condition_digest = conditions[condition_key]
            yield Cell(case, condition, case_digest, condition_digest, axis_values)

    def _axes_for(self, workload: str) -> list[MatrixAxis]:
        """Return the axes that have a meaning for a workload."""
        known = self.workload_spec.parameters_of([workload]) | set(AXES)
        known |= {BACKEND} if self.workload_spec.resolver.takes_backend(workload) else set()
        return [
            axis
            for axis in self.axes
            if any(not known.isdisjoint(value.settings) for value in axis.values)
        ]


NamedSettings = dict[str, dict[str, dict[str, Any]]]  # axis -> name of a value -> its settings


class CellReader:
    """Reads the values that a cell consists of, each key by its own rule."""

    def __init__(self, reader: NodeReader, workload_spec: WorkloadSpec) -> None:
        self.reader = reader
        self.workload_spec = workload_spec
        self._parameters = workload_spec.parameters()
        self.named_settings: NamedSettings = {}

    @property
    def keys(self) -> list[str]:
        """The keys of a cell, in the order in which messages list them."""
        return [WORKLOAD, *sorted(self._parameters), BACKEND, *AXES]

    @property
    def axes(self) -> list[str]:
        """The names that an axis may have: a key of a cell, or a name under `values`."""
        return [*self.keys, *(name for name in self.named_settings if name not in self.keys)]

    def settings(self, key: str, node: Node, path: str) -> dict[str, Any]:
        """Read a literal value of a key, as the settings that it makes; none after a mistake."""
        if key == WORKLOAD:
            value: Any = self.workload_spec.resolver.read_name(self.reader, node, path)
        elif key == BACKEND:
            return read_key(self.reader, WorkloadKeys, key, node, path)
        elif key in self._parameters:
            value = self.workload_spec.read_value(self.reader, key, node, path)
        else:
            return read_key(self.reader, Condition, key, node, path)
        return {} if value is None else {key: value}

    def read_named_settings(self, section: MappingNode) -> None:
        """Read `values`: names for several settings at once."""
        for axis, entry in section.entries.items():
            path = f"values.{axis}"
            names = self.reader.mapping(entry.node, path, "{quick: {cores: big4, freq: high}}")
            self.named_settings[axis] = {}
            for name, value in names.entries.items() if names else ():
                settings = self._read_settings(axis, value, f"{path}.{name}")
                self._check_name(axis, value, path)
                self.named_settings[axis][name] = settings

    def _read_settings(self, axis: str, value: MappingEntry, path: str) -> dict[str, Any]:
        settable = [key for key in self.keys if key != WORKLOAD]
        if isinstance(value.node, ScalarNode):
            if axis in settable:
                return self.settings(axis, value.node, path)
            problem = "write its settings: {cores: big4, freq: high}"
            self.reader.refuse(value.node, path, problem)
            return {}
        mapping = self.reader.mapping(value.node, path, "{cores: big4, freq: high}")
        if mapping is None:
            return {}
        self.reader.refuse_unknown(mapping, settable, path, conditions=CONDITIONS)
        settings: dict[str, Any] = {}
        for key, entry in mapping.entries.items():
            settings |= self.settings(key, entry.node, f"{path}.{key}") if key in settable else {}
        return settings

    def _check_name(self, axis: str, value: MappingEntry, path: str) -> None:
        """Refuse a name that is also a literal value of the axis."""
        if not 0 < len(value.key) <= NAME_MAX:
            problem = f"{path}: a name must have 1 to {NAME_MAX} characters"
            self.reader.problems.add(value.location, problem)
        elif axis in AXES and read_key(
            NodeReader(), Condition, axis, ScalarNode(value.location, value.key, plain=True), path
        ):
            shown = safe_text(value.key, NAME_MAX)
            problem = f"{path}: '{shown}' is already a value of {axis}; choose another name"
            self.reader.problems.add(value.location, problem)

    def axis_value(self, axis: str, node: Node, path: str) -> AxisValue | None:
        """Read one value of an axis: a name for several settings, or a literal value."""
        if isinstance(node, ScalarNode) and node.text in self.named_settings.get(axis, ()):
            return AxisValue(node.text, self.named_settings[axis][node.text])
        if axis not in self.keys:
            names = list(self.named_settings.get(axis, ()))
            self.reader.choice(node, path, names, f"value of {axis}")
            return None
        settings = self.settings(axis, node, path)
        return AxisValue(settings[axis], settings) if settings else None

    def axis(self, entry: MappingEntry, path: str) -> MatrixAxis:
        """Read the values of one axis; sorted, because their order has no meaning."""
        values: dict[WrittenValue, AxisValue] = {}

        def read(node: Node, item_path: str) -> WrittenValue | None:
            value = self.axis_value(entry.key, node, item_path)
            if value is not None:
                values.setdefault(value.written, value)
            return None if value is None else value.written

        ordered = self.reader.distinct_values(entry.node, path, read)
        return MatrixAxis(entry.key, tuple(values[written] for written in ordered))

    def one_or_more(self, entry: MappingEntry, path: str) -> MatrixAxis:
        """Read one value, or a list of them."""
        if isinstance(entry.node, ListNode):
            return self.axis(entry, path)
        value = self.axis_value(entry.key, entry.node, path)
        return MatrixAxis(entry.key, (value,) if value else ())


def read_axes(cells: CellReader, matrix: MappingNode) -> tuple[MatrixAxis, ...]:
    """Read the axes of the matrix except `workload`, which is read first: it defines the others."""
    cells.reader.refuse_unknown(matrix, cells.axes, "matrix", "axis", CONDITIONS)
    known = set(cells.axes) - {WORKLOAD}
    axes = tuple(
        cells.axis(entry, f"matrix.{name}")
        for name, entry in sorted(matrix.entries.items())
        if name in known
    )
    _refuse_duplicates(cells.reader, matrix, axes)
    if cells.workload_spec.resolver.backend is not None and BACKEND in matrix.entries:
        problem = "matrix: backend is already set under workload; remove one of them"
        cells.reader.problems.add(matrix.entries[BACKEND].location, problem)
    return axes


def refuse_options_without_backend(
    cells: CellReader, sections: Sequence[MappingNode], axes: Sequence[MatrixAxis]
) -> None:
    """Refuse options of a backend that no cell uses."""
    used = {value.settings.get(BACKEND) for axis in axes for value in axis.values}
    used |= {cells.workload_spec.resolver.backend or "cpu"} if used <= {None} else set()
    for section in sections:
        for key, entry in section.entries.items():
            option = RUN_OPTIONS.get(key)
            if option is not None and option.backend is not None and option.backend not in used:
                problem = f"{key} needs backend: {option.backend}; set it under workload"
                cells.reader.problems.add(entry.location, problem)


def _refuse_duplicates(
    reader: NodeReader, matrix: MappingNode, axes: tuple[MatrixAxis, ...]
) -> None:
    """Refuse two axes that set the same key: one would silently win."""
    owner: dict[str, str] = {}
    for axis in axes:
        for key in sorted({key for value in axis.values for key in value.settings}):
            if key in owner:
                both = f"{axis.name} and {owner[key]}"
                problem = f"matrix: {both} both set {key}; remove it from one of them"
                reader.problems.add(matrix.entries[axis.name].location, problem)
            owner.setdefault(key, axis.name)


def read_fixed_settings(
    cells: CellReader,
    root: MappingNode,
    parameters_section: MappingNode,
    matrix: MappingNode,
    axes: Sequence[MatrixAxis],
) -> dict[str, Any]:
    """Read what is the same in every cell: `defaults`, then `workload.with` and `conditions`."""
    parameters = sorted(cells.workload_spec.parameters())
    fixed: dict[str, Any] = {}
    for section, path, known, what in (
        (cells.reader.section(root, "defaults", "{batch_size: 32}"), "defaults", None, "key"),
        (parameters_section, "workload.with", parameters, "parameter"),
        (cells.reader.section(root, "conditions", "{cores: big4}"), "conditions", CONDITIONS, ""),
    ):
        keys = [*parameters, *CONDITIONS] if known is None else list(known)
        cells.reader.refuse_unknown(section, keys, path, what or "condition")
        for key, entry in section.entries.items():
            if key in keys:
                fixed |= cells.settings(key, entry.node, f"{path}.{key}")
            if known is not None:
                _refuse_fixed_axis(cells.reader, path, entry, matrix, axes)
    return fixed


def _refuse_fixed_axis(
    reader: NodeReader,
    path: str,
    entry: MappingEntry,
    matrix: MappingNode,
    axes: Sequence[MatrixAxis],
) -> None:
    """Refuse a key that is both fixed and an axis."""
    axis = next(
        (axis for axis in axes if any(entry.key in value.settings for value in axis.values)), None
    )
    if axis is None:
        return
    location = matrix.entries[axis.name].location
    if path != "conditions":
        problem = f"matrix: {entry.key} is already set under {path}; remove one of them"
        reader.problems.add(location, problem)
        return
    varies = "an axis of the matrix" if axis.name == entry.key else f"set by the axis {axis.name}"
    problem = f"{path}: {entry.key} is already {varies} (line {location.line}); remove one of them"
    reader.problems.add(entry.location, problem)
