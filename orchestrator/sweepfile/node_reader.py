"""Reads typed values from YAML nodes; a mistake is recorded, and the value is then None."""

import re
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from orchestrator.sweepfile.yaml_nodes import (
    BOOLEANS,
    ErrorNode,
    ListNode,
    MappingNode,
    Node,
    ProblemList,
    ScalarNode,
    SourceLocation,
)
from workloads.text import one_of, safe_text, suggestion
from workloads.units import parse_duration

Value = TypeVar("Value", bound=str | int)
Read = Callable[[Node, str], Any]  # reads a node under its path; None after a mistake

_INTEGER = re.compile(r"[-+]?(0|[1-9]\d{0,17})")
_DECIMAL = re.compile(r"[-+]?(0|[1-9]\d{0,8})(\.\d{1,9})?")
_SEXAGESIMAL = re.compile(r"[-+]?\d[\d_]*(:[0-5]?\d)+(\.\d*)?")
# Only YAML 1.1 reads these two as booleans; other tools that open the file may use YAML 1.1.
_SHORT_BOOLEANS = {"y": "true", "n": "false"}


class NodeReader:
    """Reads nodes under their path in the file, such as `matrix.batch_size[1]`."""

    def __init__(self) -> None:
        self.problems = ProblemList()

    def refuse(self, node: Node, path: str, problem: str) -> None:
        """Record what is wrong with a value."""
        self.report(node.location, path, problem)

    def report(self, location: SourceLocation, path: str, problem: str) -> None:
        """Record a problem at a location; the file itself has an empty path."""
        self.problems.add(location, f"{path}: {problem}" if path else problem)

    def check_version(self, root: MappingNode, key: str, known: int) -> bool:
        """Return whether the rest of the file can be read: not if it has another version."""
        entry = root.entries.get(key)
        version = self.integer(entry.node, key) if entry else None
        if entry is None or version in {None, known}:
            return True
        self.refuse(entry.node, key, f"unknown version {version}; write '{key}: {known}'")
        return False

    def scalar(self, node: Node, path: str, wanted: str) -> ScalarNode | None:
        """Read a single value that is not empty."""
        if isinstance(node, ErrorNode):
            return None
        if not isinstance(node, ScalarNode):
            kind = "a list" if isinstance(node, ListNode) else "a mapping"
            self.refuse(node, path, f"this is {kind}; write {wanted}")
            return None
        if node.plain and node.text in {"", "~", "null", "Null", "NULL"}:
            self.refuse(node, path, f"the value is missing; write {wanted}")
            return None
        return node

    def text(self, node: Node, path: str, wanted: str = "a word") -> str | None:
        """Read text; refuse what YAML would read as something else."""
        scalar = self.scalar(node, path, wanted)
        if scalar is None:
            return None
        boolean = (BOOLEANS | _SHORT_BOOLEANS).get(scalar.text.lower())
        if scalar.plain and boolean:
            shown = scalar.text
            self.refuse(
                node, path, f"{shown} is read as the boolean {boolean}; write '{shown}' in quotes"
            )
            return None
        quoted = f"write '{safe_text(scalar.text, 40)}' in quotes"
        return None if self._is_sexagesimal(scalar, path, quoted) else scalar.text

    def integer_between(self, node: Node, path: str, low: int, high: int) -> int | None:
        """Read an integer within bounds."""
        number = self.integer(node, path)
        if number is not None and not low <= number <= high:
            self.refuse(node, path, f"{number} is out of range; use {low} to {high}")
            return None
        return number

    def integer(self, node: Node, path: str) -> int | None:
        """Read an integer in decimal; octal and hexadecimal are refused."""
        scalar = self.scalar(node, path, "an integer")
        if scalar is None or self._is_sexagesimal(scalar, path, "write it in decimal"):
            return None
        if not scalar.plain and _INTEGER.fullmatch(scalar.text):
            self.refuse(node, path, f"'{scalar.text}' is text; write it without quotes")
        elif scalar.plain and _INTEGER.fullmatch(scalar.text):
            return int(scalar.text)
        elif re.fullmatch(r"0\d+", scalar.text):
            problem = f"{scalar.text[:20]} may be read as octal; remove the leading 0"
            self.refuse(node, path, problem)
        else:
            self.refuse(node, path, f"'{safe_text(scalar.text, 60)}' is not an integer")
        return None

    def boolean(self, node: Node, path: str) -> bool | None:
        """Read true or false, the only spellings that every YAML reads as booleans."""
        scalar = self.scalar(node, path, "true or false")
        if scalar is None or (scalar.plain and scalar.text in {"true", "false"}):
            return None if scalar is None else scalar.text == "true"
        self.refuse(node, path, "not a boolean; write true or false")
        return None

    def decimal(self, node: Node, path: str) -> float | None:
        """Read a number."""
        scalar = self.scalar(node, path, "a number")
        if scalar is None or self._is_sexagesimal(scalar, path, "write it in decimal"):
            return None
        if scalar.plain and _DECIMAL.fullmatch(scalar.text):
            return float(scalar.text)
        self.refuse(node, path, f"'{safe_text(scalar.text, 60)}' is not a number")
        return None

    def duration(self, node: Node, path: str) -> float | None:
        """Read a duration with its unit, such as 20m."""
        wanted = "a duration such as 90s or 20m"
        scalar = self.scalar(node, path, wanted)
        if scalar is None or self._is_sexagesimal(scalar, path, f"write {wanted}"):
            return None
        try:
            return float(parse_duration(scalar.text[:40]))
        except ValueError as error:
            self.refuse(node, path, safe_text(error))
            return None

    def choice(
        self, node: Node, path: str, choices: Collection[str], what: str = "value"
    ) -> str | None:
        """Read one of a few words."""
        text = self.text(node, path, one_of(choices))
        if text is None or text in choices:
            return text
        hint = suggestion(text, choices)
        self.refuse(node, path, f"unknown {what} '{safe_text(text, 60)}'; {hint}")
        return None

    def items(self, node: Node, path: str) -> tuple[Node, ...] | None:
        """Read a list that is not empty."""
        if isinstance(node, ErrorNode):
            return None
        if not isinstance(node, ListNode):
            self.refuse(node, path, "this is not a list; write it like [1, 2]")
            return None
        if not node.items:
            self.refuse(node, path, "the list is empty; add a value or remove the key")
            return None
        return node.items

    def distinct_values(
        self, node: Node, path: str, read: Callable[[Node, str], Value | None]
    ) -> tuple[Value, ...]:
        """Read a list of distinct values; sorted, because their order has no meaning."""
        values: set[Value] = set()
        for index, item in enumerate(self.items(node, path) or ()):
            item_path = f"{path}[{index}]"
            value = read(item, item_path)
            if value in values:
                self.refuse(item, item_path, f"'{value}' is listed twice; remove one of them")
            elif value is not None:
                values.add(value)
        # A list may hold names and numbers, which do not compare.
        return tuple(sorted(values, key=lambda value: (isinstance(value, str), value)))

    def mapping(self, node: Node, path: str, wanted: str) -> MappingNode | None:
        """Read a mapping."""
        if isinstance(node, MappingNode):
            return node
        if not isinstance(node, ErrorNode):
            self.refuse(node, path, f"this is not a mapping; write it like {wanted}")
        return None

    def section(self, root: MappingNode, key: str, wanted: str) -> MappingNode:
        """Read a section that is optional; a missing one is empty."""
        entry = root.entries.get(key)
        mapping = self.mapping(entry.node, key, wanted) if entry else None
        return mapping or MappingNode(root.location, {})

    def percentage(self, node: Node, path: str) -> float | None:
        """Read a percentage such as 2.5%, as a fraction."""
        scalar = self.scalar(node, path, "a percentage such as 2%")
        if scalar is None:
            return None
        number = scalar.text.removesuffix("%")
        if number == scalar.text or not _DECIMAL.fullmatch(number) or not 0 <= float(number) <= 100:
            shown = safe_text(scalar.text, 40)
            self.refuse(node, path, f"'{shown}' is not a percentage; write it like 2%")
            return None
        return float(number) / 100

    def refuse_unknown(
        self,
        mapping: MappingNode,
        known: Collection[str],
        path: str = "",
        what: str = "key",
        conditions: Collection[str] = (),
    ) -> None:
        """Record every unknown key, with the one that was probably meant.

        Those of `conditions` are keys too, but only under `conditions`.
        """
        for entry in mapping.entries.values():
            if entry.key not in known:
                shown, hint = safe_text(entry.key, 60), suggestion(entry.key, known)
                problem = f"unknown {what} '{shown}'; {hint}"
                if entry.key in conditions:
                    problem = f"'{shown}' has one value per sweep; set it under 'conditions'"
                self.report(entry.location, path, problem)

    def _is_sexagesimal(self, scalar: ScalarNode, path: str, hint: str) -> bool:
        if not (scalar.plain and _SEXAGESIMAL.fullmatch(scalar.text)):
            return False
        shown = safe_text(scalar.text, 40)
        self.refuse(scalar, path, f"{shown} is read as a number in base 60; {hint}")
        return True
