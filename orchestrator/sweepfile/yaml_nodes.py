"""Parses YAML into nodes that know their location in the file.

A sweep file is untrusted input: tags, anchors and aliases are refused, and size, depth and number
of values are limited. A scalar stays the text that was written; its reader decides what it
means, so YAML's own guesses (`no` is false, `12:30` is 750, `010` is 8) never reach a plan.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from orchestrator.sweepfile.sweep_errors import SweepProblem
from workloads.text import safe_text

BYTES_MAX = 1024 * 1024
NODES_MAX = 25_000
DEPTH_MAX = 8

BOOLEANS = {"yes": "true", "on": "true", "true": "true", "no": "false", "off": "false"}
BOOLEANS |= {"false": "false"}
_NUMBER = re.compile(r"[-+]?(\d[\d_.:]*|\.\d+)([eE][-+]?\d+)?")


@dataclass(frozen=True)
class SourceLocation:
    """Where a node is in the file."""

    line: int
    column: int
    length: int = 1


@dataclass(frozen=True)
class ScalarNode:
    """A single value as it was written; plain means without quotes."""

    location: SourceLocation
    text: str
    plain: bool


@dataclass(frozen=True)
class ListNode:
    """A list."""

    location: SourceLocation
    items: tuple["Node", ...]


@dataclass(frozen=True)
class MappingEntry:
    """A key with its value; the location is that of the key."""

    location: SourceLocation
    key: str
    node: "Node"


@dataclass(frozen=True)
class MappingNode:
    """A mapping with unique text keys."""

    location: SourceLocation
    entries: dict[str, MappingEntry]


@dataclass(frozen=True)
class ErrorNode:
    """A node whose problem was already reported; its reader reports nothing more."""

    location: SourceLocation


Node = ScalarNode | ListNode | MappingNode | ErrorNode


class ProblemList:
    """Collects problems, so that all of them are reported at once."""

    def __init__(self) -> None:
        self.items: list[SweepProblem] = []

    def add(self, location: SourceLocation, text: str) -> None:
        """Record a problem."""
        self.items.append(SweepProblem(location.line, location.column, text, location.length))


def read_document(text: str, problems: ProblemList) -> Node | None:
    """Parse the one document of a file; None when it cannot be parsed at all."""
    if len(text.encode(errors="surrogatepass")) > BYTES_MAX:
        problems.add(SourceLocation(1, 1), f"the file is larger than {BYTES_MAX // 1024} KiB")
        return None
    try:
        return _Builder(text, problems).document()
    except _Abort:
        return None
    except yaml.reader.ReaderError as error:
        before = text[: error.position].splitlines() or [""]
        location = SourceLocation(len(before), len(before[-1]) + 1)
        problems.add(location, "this is a control character; write the file as plain UTF-8 text")
    except yaml.MarkedYAMLError as error:
        problems.add(*_explain(error))
    return None


class _Abort(Exception):
    """The rest of the file is not parsed."""


class _Builder:
    """Builds nodes from the parser's events; the depth limit bounds its recursion."""

    def __init__(self, text: str, problems: ProblemList) -> None:
        self._events: Iterator[yaml.Event] = yaml.parse(text, Loader=yaml.SafeLoader)
        self._problems = problems
        self._nodes = 0

    def document(self) -> Node | None:
        root: Node | None = None
        for event in self._events:
            if not isinstance(event, yaml.DocumentStartEvent):
                continue
            if root is not None:
                self._problems.add(_location(event), "a second document begins; use one per file")
                raise _Abort
            root = self._node(next(self._events), depth=1)
        if root is None:
            self._problems.add(SourceLocation(1, 1), "the file is empty; begin with 'farm: 1'")
        return root

    def _node(self, event: yaml.Event, depth: int) -> Node:
        location = _location(event)
        self._nodes += 1
        if self._nodes > NODES_MAX:
            self._problems.add(location, f"the file has more than {NODES_MAX:,} values")
            raise _Abort
        if depth > DEPTH_MAX:
            self._problems.add(location, f"lists and mappings are nested deeper than {DEPTH_MAX}")
            raise _Abort
        self._refuse_decoration(event, location)
        if isinstance(event, yaml.ScalarEvent):
            return ScalarNode(location, event.value, plain=event.style is None)
        if isinstance(event, yaml.SequenceStartEvent):
            return ListNode(location, tuple(self._items(depth)))
        if isinstance(event, yaml.MappingStartEvent):
            return MappingNode(location, self._entries(depth))
        return ErrorNode(location)

    def _refuse_decoration(self, event: yaml.Event, location: SourceLocation) -> None:
        if isinstance(event, yaml.AliasEvent):
            name = safe_text(event.anchor, 40)
            hint = f"'*{name}' is an alias; write a pattern that begins with * in quotes"
            self._problems.add(location, hint)
        elif getattr(event, "anchor", None) is not None:
            self._problems.add(location, "this is an anchor (&); write the value where it is used")
        elif getattr(event, "tag", None) is not None:
            self._problems.add(location, "this is a tag (!); write plain text or a number")

    def _items(self, depth: int) -> Iterator[Node]:
        for event in self._events:
            if isinstance(event, yaml.SequenceEndEvent):
                return
            yield self._node(event, depth + 1)

    def _entries(self, depth: int) -> dict[str, MappingEntry]:
        entries: dict[str, MappingEntry] = {}
        for event in self._events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            key = self._node(event, depth + 1)
            node = self._node(next(self._events), depth + 1)
            name = self._key(key)
            if name is None:
                continue
            if name in entries:
                first = entries[name].location.line
                text = f"duplicate key '{safe_text(name, 60)}' (first at line {first}); "
                self._problems.add(key.location, text + "YAML would silently keep the last")
                continue
            entries[name] = MappingEntry(key.location, name, node)
        return entries

    def _key(self, key: Node) -> str | None:
        """Accept a key that is text. `n` is text: it is a parameter of a matrix product."""
        if isinstance(key, ErrorNode):
            return None
        if not isinstance(key, ScalarNode):
            self._problems.add(key.location, "a key must be a name, not a list or a mapping")
            return None
        name = safe_text(key.text, 60)
        problem = None
        if key.plain and key.text.lower() in BOOLEANS:
            value = BOOLEANS[key.text.lower()]
            problem = f"key '{name}' is read as the boolean {value}; keys are names"
        elif key.plain and key.text in {"", "~", "null"}:
            problem = "a key is missing before ':'"
        elif key.plain and key.text == "<<":
            problem = "merge keys (<<) are not supported; write the keys out"
        elif key.plain and _NUMBER.fullmatch(key.text):
            problem = f"key '{name}' is read as a number; keys are names"
        if problem is not None:
            self._problems.add(key.location, problem)
            return None
        return key.text


def _location(event: yaml.Event) -> SourceLocation:
    start, end = event.start_mark, event.end_mark
    assert start is not None
    assert end is not None
    length = end.column - start.column if end.line == start.line else 1
    return SourceLocation(start.line + 1, start.column + 1, max(1, length))


# PyYAML has no error codes, so its messages are matched: (part of its message, our explanation).
_EXPLANATIONS = (
    ("scanning an alias", "a value that begins with * is an alias; write it in quotes"),
    ("scanning an anchor", "a value that begins with & is an anchor; write it in quotes"),
    ("scanning a tag", "a value that begins with ! is a tag; write it in quotes"),
    ("scanning a directive", "a line that begins with % is a directive; remove it"),
    ("'\\t' that cannot start", "this is a tab; indent with spaces"),
    ("cannot start any token", "a value cannot begin with this character; write it in quotes"),
    ("mapping values are not", "unexpected ':'; write one key per line, with equal indentation"),
    ("could not find expected ':'", "a ':' is missing after the key"),
    ("expected ',' or ']'", "the list is not closed; a ',' or ']' is missing"),
    ("expected ',' or '}'", "the mapping is not closed; a ',' or '}' is missing"),
    ("expected <block end>", "this line is not aligned with those above; check its indentation"),
    ("unexpected end of stream", "a quote is opened but never closed"),
)
# PyYAML notices these too late; the location where the value began is more helpful.
_REPORTED_AT_START = ("an alias", "an anchor", "a tag", "end of stream", "<stream end>")


def _explain(error: yaml.MarkedYAMLError) -> tuple[SourceLocation, str]:
    """Turn the parser's message into one that says what to do."""
    message = f"{error.context or ''} {error.problem or ''}"
    at_start = any(part in message for part in _REPORTED_AT_START)
    mark = error.context_mark if at_start else error.problem_mark
    location = SourceLocation(mark.line + 1, mark.column + 1) if mark else SourceLocation(1, 1)
    for part, explanation in _EXPLANATIONS:
        if part in message:
            return location, explanation
    return location, f"invalid YAML: {safe_text(error.problem, 120)}"
