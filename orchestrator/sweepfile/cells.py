"""The cells of a sweep: every combination of its axes, less what is excluded, and what is included.

A cell is one case under one condition. Cells are counted before one is built, and a cell that is
reached in two ways is one cell.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.plan.cases import Program
from orchestrator.plan.conditions import AXES, CONDITIONS, build_condition, read_condition
from orchestrator.plan.document import Entries, Entry, Items, Node, Scalar
from orchestrator.plan.reading import Reader
from orchestrator.plan.selector import Selector
from workloads.catalogue import Case
from workloads.condition import Condition
from workloads.text import safe_text

WORKLOAD, BACKEND = "workload", "backend"
NAME_MAX = 40
Written = str | int


@dataclass(frozen=True)
class Choice:
    """One value of an axis: as it is written, and what it sets."""

    shown: Written
    sets: Mapping[str, Any]


@dataclass(frozen=True)
class Axis:
    """One dimension of the matrix."""

    name: str
    choices: tuple[Choice, ...]


@dataclass(frozen=True)
class Rule:
    """A line under `exclude` or `include`: which cells, on which phones, and why."""

    kind: str
    index: int
    wants: Mapping[str, tuple[Written, ...]]
    when: Selector | None
    why: str
    line: int = field(default=0, compare=False)

    @property
    def name(self) -> str:
        """What it is called in a plan."""
        return f"{self.kind} #{self.index + 1}"

    def covers(self, cell: "Cell") -> bool:
        """Whether a cell has all that the rule names."""
        return all(cell.has(key, values) for key, values in self.wants.items())


@dataclass(frozen=True)
class Cell:
    """One case under one condition, and the phones on which a rule removes or adds it."""

    case: Case
    condition: Condition
    case_digest: str
    condition_digest: str
    at: Mapping[str, Written]  # the workload, and the axes as they are written
    removed_by: tuple[Rule, ...] = ()  # on phones that these rules mean
    added_by: Rule | None = None  # on phones that this rule means, and only there

    @property
    def key(self) -> tuple[str, str]:
        """What makes it this cell and no other."""
        return self.case_digest, self.condition_digest

    @property
    def label(self) -> str:
        """Short name for tables."""
        return f"{self.case.label}, {self.condition.label}"

    @property
    def meaning(self) -> list[Any]:
        """All that it stands for, as a sweep's identity wants it."""
        removed = sorted(str(rule.when) for rule in self.removed_by)
        added = str(self.added_by.when) if self.added_by and self.added_by.when else ""
        return [self.case_digest, self.condition_digest, removed, added]

    def has(self, key: str, values: Sequence[Written]) -> bool:
        """Whether it has one of these values, as they are written or as they turn out."""
        if self.at.get(key) in values:
            return True
        if key in self.case.parameters:
            return self.case.parameters[key] in values
        if key == BACKEND:
            return self.case.backend in values
        return getattr(self.condition, key, None) in values


@dataclass(frozen=True)
class CellSpace:
    """Cells that are not yet built, so that they can be counted first.

    A workload takes only the parameters that it has, so an axis which means nothing to it does not
    multiply its cells.
    """

    program: Program
    workloads: tuple[str, ...]
    fixed: Mapping[str, Any]
    axes: tuple[Axis, ...]

    def count(self) -> int:
        """How many cells there are at most."""
        return sum(
            math.prod(len(axis.choices) for axis in self._axes_of(name)) for name in self.workloads
        )

    def build(self) -> list[Cell]:
        """Bind every cell, each once."""
        made: dict[tuple[str, str], Cell] = {}
        for cell in itertools.chain.from_iterable(map(self._build, self.workloads)):
            made.setdefault(cell.key, cell)
        return list(made.values())

    def _build(self, workload: str) -> Iterator[Cell]:
        own = self.program.parameters_of([workload])
        axes = self._axes_of(workload)
        cases: dict[tuple[Any, ...], tuple[Case, str]] = {}
        conditions: dict[tuple[Any, ...], tuple[Condition, str]] = {}
        for choices in itertools.product(*(axis.choices for axis in axes)):
            sets = dict(self.fixed)
            at: dict[str, Written] = {WORKLOAD: workload}
            for axis, choice in zip(axes, choices, strict=True):
                sets |= choice.sets
                at[axis.name] = choice.shown
            given = {key: value for key, value in sets.items() if key in own}
            asked = {key: value for key, value in sets.items() if key in CONDITIONS}
            backend = sets.get(BACKEND)
            bound, wanted = (backend, *given.items()), tuple(asked.items())
            if bound not in cases:
                case = self.program.offers.bind(workload, given, backend)
                cases[bound] = (case, case.digest)
            if wanted not in conditions:
                condition = build_condition(asked)
                conditions[wanted] = (condition, condition.digest)
            case, case_digest = cases[bound]
            condition, condition_digest = conditions[wanted]
            yield Cell(case, condition, case_digest, condition_digest, at)

    def _axes_of(self, workload: str) -> list[Axis]:
        """The axes that mean something to a workload."""
        known = self.program.parameters_of([workload]) | set(CONDITIONS)
        known |= {BACKEND} if self.program.offers.takes_backend(workload) else set()
        return [
            axis
            for axis in self.axes
            if any(not known.isdisjoint(choice.sets) for choice in axis.choices)
        ]


Named = dict[str, dict[str, dict[str, Any]]]  # axis -> name of a value -> what it sets


class CellReader:
    """Reads what a cell is made of, each key by its own rule."""

    def __init__(self, reader: Reader, program: Program) -> None:
        self.reader = reader
        self.program = program
        self._parameters = program.parameters()
        self.named: Named = {}

    @property
    def keys(self) -> list[str]:
        """What a cell may say, in the order in which it is listed for somebody who guessed."""
        return [WORKLOAD, *sorted(self._parameters), BACKEND, *AXES]

    @property
    def axes(self) -> list[str]:
        """What an axis may be called: a key of a cell, or the name of a set of values."""
        return [*self.keys, *(name for name in self.named if name not in self.keys)]

    def value(self, key: str, node: Node, path: str) -> Any:
        """Read a value that stands for itself; None after a mistake."""
        if key == WORKLOAD:
            return self.program.offers.read_name(self.reader, node, path)
        if key == BACKEND:
            return self.program.offers.read_backend(self.reader, node, path)
        if key in self._parameters:
            return self.program.read_value(self.reader, key, node, path)
        return read_condition(self.reader, key, node, path)

    def read_named(self, given: Entries) -> None:
        """Read `values`: names for what is set together."""
        for axis, entry in given.entries.items():
            path = f"values.{axis}"
            names = self.reader.entries(entry.node, path, "{quick: {cores: big4, freq: high}}")
            self.named[axis] = {}
            for name, value in names.entries.items() if names else ():
                sets = self._sets(axis, value, f"{path}.{name}")
                self._check_name(axis, value, path)
                self.named[axis][name] = sets

    def _sets(self, axis: str, value: Entry, path: str) -> dict[str, Any]:
        settable = [key for key in self.keys if key != WORKLOAD]
        if isinstance(value.node, Scalar):
            if axis in settable:
                return {axis: self.value(axis, value.node, path)}
            self.reader.refuse(value.node, path, "write what it sets: {cores: big4, freq: high}")
            return {}
        entries = self.reader.entries(value.node, path, "{cores: big4, freq: high}")
        if entries is None:
            return {}
        self.reader.refuse_unknown(entries, settable, path)
        return {
            key: self.value(key, entry.node, f"{path}.{key}")
            for key, entry in entries.entries.items()
            if key in settable
        }

    def _check_name(self, axis: str, value: Entry, path: str) -> None:
        """A name must not hide a word that means something else already."""
        shown = f"{path}: '{safe_text(value.key, NAME_MAX)}'"
        if not 0 < len(value.key) <= NAME_MAX:
            self.reader.problems.add(value.place, f"{path}: a name has 1 to {NAME_MAX} characters")
        elif axis in AXES and read_condition(
            Reader(), axis, Scalar(value.place, value.key, plain=True), path
        ):
            text = "is a word of its own already; choose another name"
            self.reader.problems.add(value.place, f"{shown} {text}")

    def choice(self, axis: str, node: Node, path: str) -> Choice | None:
        """Read one value of an axis: a name for several settings, or a value as it stands."""
        if isinstance(node, Scalar) and node.text in self.named.get(axis, ()):
            return Choice(node.text, self.named[axis][node.text])
        if axis not in self.keys:
            names = list(self.named.get(axis, ()))
            self.reader.choice(node, path, f"value of {axis}", names)
            return None
        value = self.value(axis, node, path)
        return None if value is None else Choice(value, {axis: value})

    def axis(self, entry: Entry, path: str) -> Axis:
        """Read the values of one axis; sorted, for their order means nothing."""
        choices: dict[Written, Choice] = {}

        def read(node: Node, where: str) -> Written | None:
            choice = self.choice(entry.key, node, where)
            if choice is not None:
                choices.setdefault(choice.shown, choice)
            return None if choice is None else choice.shown

        shown = self.reader.distinct(entry.node, path, read)
        return Axis(entry.key, tuple(choices[each] for each in shown))

    def one_or_more(self, entry: Entry, path: str) -> Axis:
        """Read one value, or a list of them."""
        if isinstance(entry.node, Items):
            return self.axis(entry, path)
        choice = self.choice(entry.key, entry.node, path)
        return Axis(entry.key, (choice,) if choice else ())


def read_axes(cells: CellReader, matrix: Entries) -> tuple[Axis, ...]:
    """Read the axes of the matrix; the workload is no axis here, for it decides about the rest."""
    cells.reader.refuse_unknown(matrix, cells.axes, "matrix", "axis")
    known = set(cells.axes) - {WORKLOAD}
    axes = tuple(
        cells.axis(entry, f"matrix.{name}")
        for name, entry in sorted(matrix.entries.items())
        if name in known
    )
    _refuse_twice(cells.reader, matrix, axes)
    if cells.program.offers.backend is not None and BACKEND in matrix.entries:
        text = "matrix: backend stands under workload already; say it once"
        cells.reader.problems.add(matrix.entries[BACKEND].place, text)
    return axes


def _refuse_twice(reader: Reader, matrix: Entries, axes: tuple[Axis, ...]) -> None:
    """Refuse two axes that set the same thing: one would silently win."""
    owner: dict[str, str] = {}
    for axis in axes:
        for key in sorted({key for choice in axis.choices for key in choice.sets}):
            if key in owner:
                text = f"matrix: {axis.name} sets {key}, and so does {owner[key]}; say it once"
                reader.problems.add(matrix.entries[axis.name].place, text)
            owner.setdefault(key, axis.name)


def read_fixed(
    cells: CellReader, root: Entries, given: Entries, matrix: Entries, axes: Sequence[Axis]
) -> dict[str, Any]:
    """Read what is the same in every cell: `defaults`, then `workload.with` and `conditions`."""
    parameters = sorted(cells.program.parameters())
    fixed: dict[str, Any] = {}
    for section, path, known, what in (
        (cells.reader.section(root, "defaults", "{batch_size: 32}"), "defaults", None, "key"),
        (given, "workload.with", parameters, "parameter"),
        (cells.reader.section(root, "conditions", "{cores: big4}"), "conditions", CONDITIONS, ""),
    ):
        keys = [*parameters, *CONDITIONS] if known is None else list(known)
        cells.reader.refuse_unknown(section, keys, path, what or "condition")
        for key, entry in section.entries.items():
            if key in keys:
                fixed[key] = cells.value(key, entry.node, f"{path}.{key}")
            if known is not None:
                _refuse_fixed_axis(cells.reader, path, entry, matrix, axes)
    return {key: value for key, value in fixed.items() if value is not None}


def _refuse_fixed_axis(
    reader: Reader, path: str, entry: Entry, matrix: Entries, axes: Sequence[Axis]
) -> None:
    """Refuse what is fixed and varies at once."""
    axis = next((a for a in axes if any(entry.key in c.sets for c in a.choices)), None)
    if axis is None:
        return
    place = matrix.entries[axis.name].place
    if path != "conditions":
        text = f"matrix: {entry.key} stands under {path} already; say it once"
        reader.problems.add(place, text)
        return
    varies = "an axis of the matrix" if axis.name == entry.key else f"set by the axis {axis.name}"
    text = f"{path}: {entry.key} is {varies} (line {place.line}) already; say it once"
    reader.problems.add(entry.place, text)
