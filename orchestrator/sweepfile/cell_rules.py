"""Reads `exclude`, `include` and the baseline: the entries of a sweep that name cells.

A rule may apply to some phones only, which its selector names, and an exclusion states its reason.
Each rule is counted, so that a rule without effect can be reported.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.sweepfile.cells import (
    WORKLOAD,
    Cell,
    CellReader,
    CellRule,
    CellSpace,
    MatrixAxis,
    WrittenValue,
)
from orchestrator.sweepfile.model_reader import read_key, written_keys
from orchestrator.sweepfile.node_reader import NodeReader
from orchestrator.sweepfile.selector import BadSelector, Selector, parse_selector
from orchestrator.sweepfile.yaml_nodes import (
    ListNode,
    MappingNode,
    Node,
    ScalarNode,
    SourceLocation,
)
from workloads.protocol.base import WireModel
from workloads.protocol.file_keys import key
from workloads.text import safe_text

WHY_MAX = 200


class RuleKeys(WireModel):
    """The keys of a rule besides the axis values that name its cells."""

    when: Any = key(None, "limits the rule to these phones", values="a [selector](selectors.md)")
    why: str = key("", "shown in every plan; required under `exclude`", values="a reason")


@dataclass(frozen=True)
class RuleCount:
    """A rule, and the number of cells that it removes or adds, on phones where it applies."""

    rule: CellRule
    cells: int


def read_selector(reader: NodeReader, node: Node, path: str) -> Selector | None:
    """Read a selector; a mistake is reported at its own location inside the text."""
    text = reader.text(node, path, "a selector such as 'ram_mb >= 6000'")
    if text is None or not isinstance(node, ScalarNode):
        return None
    try:
        return parse_selector(text)
    except BadSelector as error:
        location = node.location
        if location.length >= len(text):  # the text is on one line
            column = location.column + (0 if node.plain else 1) + error.offset
            location = SourceLocation(location.line, column, error.length)
        reader.problems.add(location, f"{path}: {error}")
        return None


@dataclass(frozen=True)
class _RuleEntry:
    """A rule as it was read, before it is applied to cells."""

    rule: CellRule
    axes: tuple[MatrixAxis, ...]
    location: SourceLocation


class CellRules:
    """The rules of one sweep."""

    def __init__(self, cells: CellReader, root: MappingNode) -> None:
        self._cells = cells
        self._reader = cells.reader
        self._exclusions = self._read(root, "exclude")
        self._inclusions = self._read(root, "include")
        self.counts: list[RuleCount] = []  # of every rule, in the order of the file

    def spaces(self, fixed: Mapping[str, Any]) -> list[CellSpace]:
        """Return the included cells, not built yet."""
        spec = self._cells.workload_spec
        spaces = []
        for entry in self._inclusions:
            workload_axes = [axis for axis in entry.axes if axis.name == WORKLOAD]
            workloads = tuple(str(v.written) for axis in workload_axes for v in axis.values)
            if not workload_axes and len(spec.workloads) > 1:
                problem = f"{entry.rule.kind}[{entry.rule.index}]: the key 'workload' is missing"
                self._reader.problems.add(entry.location, problem)
            axes = tuple(axis for axis in entry.axes if axis.name != WORKLOAD)
            spaces.append(CellSpace(spec, workloads or spec.workloads, fixed, axes))
        return spaces

    def apply(self, matrix: Sequence[Cell], spaces: Sequence[CellSpace]) -> list[Cell]:
        """Return the matrix without excluded and with included cells, and count every rule."""
        kept: dict[tuple[str, str], Cell] = {}
        removed = dict.fromkeys(range(len(self._exclusions)), 0)
        for cell in matrix:
            hits = [entry.rule for entry in self._exclusions if entry.rule.covers(cell)]
            always = next((rule for rule in hits if rule.when is None), None)
            for rule in hits if always is None else [always]:
                removed[rule.index] += 1
            if always is None:
                kept[cell.key] = replace(cell, removed_by=tuple(hits))
        self.counts = [
            RuleCount(entry.rule, removed[entry.rule.index]) for entry in self._exclusions
        ]
        for entry, space in zip(self._inclusions, spaces, strict=True):
            added = [cell for cell in space.build() if cell.key not in kept]
            self.counts.append(RuleCount(entry.rule, len(added)))
            kept |= {cell.key: replace(cell, added_by=entry.rule) for cell in added}
        return list(kept.values())

    def _read(self, root: MappingNode, kind: str) -> list[_RuleEntry]:
        section = root.entries.get(kind)
        items = self._reader.items(section.node, kind) if section else None
        entries = [self._read_rule(kind, index, node) for index, node in enumerate(items or ())]
        return [entry for entry in entries if entry is not None]

    def _read_rule(self, kind: str, index: int, node: Node) -> _RuleEntry | None:
        path = f"{kind}[{index}]"
        mapping = self._reader.mapping(node, path, "{batch_size: 32, why: out of memory}")
        if mapping is None:
            return None
        self._reader.refuse_unknown(mapping, [*self._cells.axes, *written_keys(RuleKeys)], path)
        axes = tuple(
            self._cells.one_or_more(entry, f"{path}.{name}")
            for name, entry in mapping.entries.items()
            if name in self._cells.axes
        )
        if kind == "exclude" and not mapping.entries.keys() - {"why"}:
            self._reader.refuse(node, path, "names no cell; write a key such as batch_size: 32")
        when = mapping.entries.get("when")
        selector = read_selector(self._reader, when.node, f"{path}.when") if when else None
        rule = CellRule(
            kind=kind,
            index=index,
            values={axis.name: tuple(value.written for value in axis.values) for axis in axes},
            when=selector,
            why=self._read_why(mapping, node, path, kind),
            line=node.location.line,
        )
        return _RuleEntry(rule, axes, node.location)

    def _read_why(self, mapping: MappingNode, node: Node, path: str, kind: str) -> str:
        entry = mapping.entries.get("why")
        if entry is None:
            if kind == "exclude":
                problem = "the key 'why' is missing; every plan shows this reason"
                self._reader.refuse(node, path, problem)
            return ""
        read = read_key(self._reader, RuleKeys, "why", entry.node, f"{path}.why")
        return safe_text(read.get("why", ""), WHY_MAX)


def read_baseline(cells: CellReader, node: Node) -> Mapping[str, tuple[WrittenValue, ...]] | None:
    """Read which cell is the baseline: as many keys as are needed to name one."""
    path = "order.baseline"
    mapping = cells.reader.mapping(node, path, "{batch_size: 32, cores: big4}")
    if mapping is None:
        return None
    cells.reader.refuse_unknown(mapping, cells.axes, path)
    values: dict[str, tuple[WrittenValue, ...]] = {}
    for name, entry in mapping.entries.items():
        if isinstance(entry.node, ListNode):
            problem = "a baseline is one cell; write a single value"
            cells.reader.refuse(entry.node, f"{path}.{name}", problem)
        elif name in cells.axes:
            value = cells.axis_value(name, entry.node, f"{path}.{name}")
            values[name] = (value.written,) if value else ()
    return values
