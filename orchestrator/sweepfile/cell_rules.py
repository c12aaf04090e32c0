"""`exclude`, `include` and the baseline: the lines of a sweep that name cells.

A rule may hold for some phones only, which a selector names, and it says why it is there. Each
rule is counted, so that one that does nothing can be seen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.plan.cells import WORKLOAD, Axis, Cell, CellReader, CellSpace, Rule, Written
from orchestrator.plan.document import Entries, Items, Node, Place, Scalar
from orchestrator.plan.reading import Reader
from orchestrator.plan.selector import BadSelector, Selector, parse_selector
from workloads.text import safe_text

WHY_MAX = 200


@dataclass(frozen=True)
class RuleCount:
    """A rule, and how many cells it removes or adds, on phones where it holds."""

    rule: Rule
    cells: int


def read_selector(reader: Reader, node: Node, path: str) -> Selector | None:
    """Read a selector; a mistake is shown at its own place inside the text."""
    text = reader.text(node, path, "a selector such as 'ram_mb >= 6000'")
    if text is None or not isinstance(node, Scalar):
        return None
    try:
        return parse_selector(text)
    except BadSelector as error:
        place = node.place
        if place.length >= len(text):  # it stands on one line
            quote = 0 if node.plain else 1
            place = Place(place.line, place.column + quote + error.offset, error.length)
        reader.problems.add(place, f"{path}: {error}")
        return None


@dataclass(frozen=True)
class _Written:
    """A rule as it was read, before any cell is held against it."""

    rule: Rule
    axes: tuple[Axis, ...]
    place: Place


class Rules:
    """The rules of one sweep."""

    def __init__(self, cells: CellReader, root: Entries) -> None:
        self._cells = cells
        self._reader = cells.reader
        self._excluding = self._read(root, "exclude")
        self._including = self._read(root, "include")
        self._counts: list[RuleCount] = []

    def spaces(self, fixed: Mapping[str, Any]) -> list[CellSpace]:
        """The cells that are included, not yet built."""
        program = self._cells.program
        spaces = []
        for line in self._including:
            named = [axis for axis in line.axes if axis.name == WORKLOAD]
            chosen = tuple(str(each.shown) for axis in named for each in axis.choices)
            if not named and len(program.workloads) > 1:
                text = f"{line.rule.kind}[{line.rule.index}]: the key 'workload' is missing"
                self._reader.problems.add(line.place, text)
            axes = tuple(axis for axis in line.axes if axis.name != WORKLOAD)
            spaces.append(CellSpace(program, chosen or program.workloads, fixed, axes))
        return spaces

    def applied(self, matrix: Sequence[Cell], spaces: Sequence[CellSpace]) -> list[Cell]:
        """The matrix without what is excluded and with what is included; every rule is counted."""
        kept: dict[tuple[str, str], Cell] = {}
        removed = dict.fromkeys(range(len(self._excluding)), 0)
        for cell in matrix:
            hits = [line.rule for line in self._excluding if line.rule.covers(cell)]
            always = next((rule for rule in hits if rule.when is None), None)
            for rule in hits if always is None else [always]:
                removed[rule.index] += 1
            if always is None:
                kept[cell.key] = replace(cell, removed_by=tuple(hits))
        self._counts = [RuleCount(line.rule, removed[line.rule.index]) for line in self._excluding]
        for line, space in zip(self._including, spaces, strict=True):
            added = [cell for cell in space.build() if cell.key not in kept]
            self._counts.append(RuleCount(line.rule, len(added)))
            kept |= {cell.key: replace(cell, added_by=line.rule) for cell in added}
        return list(kept.values())

    @property
    def counts(self) -> tuple[RuleCount, ...]:
        """What every rule does, in the order of the file."""
        return tuple(self._counts)

    def _read(self, root: Entries, kind: str) -> list[_Written]:
        entry = root.entries.get(kind)
        items = self._reader.items(entry.node, kind) if entry else None
        lines = [self._line(kind, index, node) for index, node in enumerate(items or ())]
        return [line for line in lines if line is not None]

    def _line(self, kind: str, index: int, node: Node) -> _Written | None:
        path = f"{kind}[{index}]"
        given = self._reader.entries(node, path, "{batch_size: 32, why: out of memory}")
        if given is None:
            return None
        self._reader.refuse_unknown(given, [*self._cells.axes, "when", "why"], path)
        axes = tuple(
            self._cells.one_or_more(entry, f"{path}.{key}")
            for key, entry in given.entries.items()
            if key in self._cells.axes
        )
        if kind == "exclude" and not given.entries.keys() - {"why"}:
            self._reader.refuse(node, path, "it names no cell; write a key such as batch_size: 32")
        when = given.entries.get("when")
        selector = read_selector(self._reader, when.node, f"{path}.when") if when else None
        rule = Rule(
            kind=kind,
            index=index,
            wants={axis.name: tuple(choice.shown for choice in axis.choices) for axis in axes},
            when=selector,
            why=self._why(given, node, path, kind),
            line=node.place.line,
        )
        return _Written(rule, axes, node.place)

    def _why(self, given: Entries, node: Node, path: str, kind: str) -> str:
        entry = given.entries.get("why")
        if entry is None:
            if kind == "exclude":
                self._reader.refuse(node, path, "the key 'why' is missing; it stands in every plan")
            return ""
        return safe_text(self._reader.text(entry.node, f"{path}.why", "a reason"), WHY_MAX)


def read_baseline(cells: CellReader, node: Node) -> Mapping[str, tuple[Written, ...]] | None:
    """Read which cell is the baseline: as many keys as it takes to name one."""
    path = "order.baseline"
    given = cells.reader.entries(node, path, "{batch_size: 32, cores: big4}")
    if given is None:
        return None
    cells.reader.refuse_unknown(given, cells.axes, path)
    wants: dict[str, tuple[Written, ...]] = {}
    for key, entry in given.entries.items():
        if isinstance(entry.node, Items):
            cells.reader.refuse(entry.node, f"{path}.{key}", "a baseline is one cell, not several")
        elif key in cells.axes:
            choice = cells.choice(key, entry.node, f"{path}.{key}")
            wants[key] = (choice.shown,) if choice else ()
    return wants
