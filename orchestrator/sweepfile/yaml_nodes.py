"""YAML text as nodes that know their place.

A sweep file may come from anybody: no tags, no anchors, no aliases, bounded in size, depth and
number of values. A scalar stays the text that was written; what it means is decided by its reader,
so YAML's own guesses (`no` is false, `12:30` is 750, `010` is 8) never reach a plan.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from orchestrator.plan.problem import BadSweep, Problem
from workloads.text import safe_text

__all__ = ["BadSweep", "Entries", "Entry", "Items", "Node", "Place", "Problem", "Problems"]
__all__ += ["Scalar", "read_document"]

BYTES_MAX = 1024 * 1024
NODES_MAX = 25_000
DEPTH_MAX = 8

BOOLEANS = {"yes": "true", "on": "true", "true": "true", "no": "false", "off": "false"}
BOOLEANS |= {"false": "false"}
_NUMBER = re.compile(r"[-+]?(\d[\d_.:]*|\.\d+)([eE][-+]?\d+)?")


@dataclass(frozen=True)
class Place:
    """Where a node stands in the file."""

    line: int
    column: int
    length: int = 1


@dataclass(frozen=True)
class Scalar:
    """A single value as it was written; plain means that no quotes stood around it."""

    place: Place
    text: str
    plain: bool


@dataclass(frozen=True)
class Items:
    """A list."""

    place: Place
    items: tuple["Node", ...]


@dataclass(frozen=True)
class Entry:
    """A key with its value; the place is the key's."""

    place: Place
    key: str
    node: "Node"


@dataclass(frozen=True)
class Entries:
    """A mapping whose keys are text, each standing once."""

    place: Place
    entries: dict[str, Entry]


@dataclass(frozen=True)
class Broken:
    """Something that was refused already; whoever reads it stays silent."""

    place: Place


Node = Scalar | Items | Entries | Broken


class Problems:
    """Collects what is wrong, so that everything is said at once."""

    def __init__(self) -> None:
        self.found: list[Problem] = []

    def add(self, place: Place, text: str) -> None:
        """Note a problem."""
        self.found.append(Problem(place.line, place.column, text, place.length))


def read_document(text: str, problems: Problems) -> Node | None:
    """Read the one document of a file; None when it cannot be read at all."""
    if len(text.encode(errors="surrogatepass")) > BYTES_MAX:
        problems.add(Place(1, 1), f"the file is larger than {BYTES_MAX // 1024} KiB")
        return None
    try:
        return _Builder(text, problems).document()
    except _Stop:
        return None
    except yaml.reader.ReaderError as error:
        before = text[: error.position].splitlines() or [""]
        place = Place(len(before), len(before[-1]) + 1)
        problems.add(place, "a control character stands here; write the file as plain UTF-8 text")
    except yaml.MarkedYAMLError as error:
        problems.add(*_explain(error))
    return None


class _Stop(Exception):
    """Reading on makes no sense."""


class _Builder:
    """Builds nodes out of the parser's events; the depth cap bounds its recursion."""

    def __init__(self, text: str, problems: Problems) -> None:
        self._events: Iterator[yaml.Event] = yaml.parse(text, Loader=yaml.SafeLoader)
        self._problems = problems
        self._nodes = 0

    def document(self) -> Node | None:
        root: Node | None = None
        for event in self._events:
            if not isinstance(event, yaml.DocumentStartEvent):
                continue
            if root is not None:
                self._problems.add(_place(event), "a second document begins; a sweep is one file")
                raise _Stop
            root = self._node(next(self._events), depth=1)
        if root is None:
            self._problems.add(Place(1, 1), "the file is empty; begin with 'farm: 1'")
        return root

    def _node(self, event: yaml.Event, depth: int) -> Node:
        place = _place(event)
        self._nodes += 1
        if self._nodes > NODES_MAX:
            self._problems.add(place, f"more than {NODES_MAX:,} values stand in the file")
            raise _Stop
        if depth > DEPTH_MAX:
            self._problems.add(place, f"lists and mappings are nested deeper than {DEPTH_MAX}")
            raise _Stop
        self._refuse_decoration(event, place)
        if isinstance(event, yaml.ScalarEvent):
            return Scalar(place, event.value, plain=event.style is None)
        if isinstance(event, yaml.SequenceStartEvent):
            return Items(place, tuple(self._items(depth)))
        if isinstance(event, yaml.MappingStartEvent):
            return Entries(place, self._entries(depth))
        return Broken(place)

    def _refuse_decoration(self, event: yaml.Event, place: Place) -> None:
        if isinstance(event, yaml.AliasEvent):
            name = safe_text(event.anchor, 40)
            hint = f"'*{name}' is an alias; write a pattern that begins with * in quotes"
            self._problems.add(place, hint)
        elif getattr(event, "anchor", None) is not None:
            self._problems.add(place, "an anchor (&) stands here; write the value out where needed")
        elif getattr(event, "tag", None) is not None:
            self._problems.add(place, "a tag (!) stands here; values are plain text and numbers")

    def _items(self, depth: int) -> Iterator[Node]:
        for event in self._events:
            if isinstance(event, yaml.SequenceEndEvent):
                return
            yield self._node(event, depth + 1)

    def _entries(self, depth: int) -> dict[str, Entry]:
        entries: dict[str, Entry] = {}
        for event in self._events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            key = self._node(event, depth + 1)
            node = self._node(next(self._events), depth + 1)
            name = self._key(key)
            if name is None:
                continue
            if name in entries:
                first = entries[name].place.line
                text = f"duplicate key '{safe_text(name, 60)}' (first at line {first}); "
                self._problems.add(key.place, text + "YAML would silently keep the last")
                continue
            entries[name] = Entry(key.place, name, node)
        return entries

    def _key(self, key: Node) -> str | None:
        """Accept a key that is text. `n` is text: it is a parameter of a matrix product."""
        if isinstance(key, Broken):
            return None
        if not isinstance(key, Scalar):
            self._problems.add(key.place, "a key is a name, not a list or a mapping")
            return None
        name = safe_text(key.text, 60)
        sentence = None
        if key.plain and key.text.lower() in BOOLEANS:
            value = BOOLEANS[key.text.lower()]
            sentence = f"key '{name}' is read as the boolean {value}; keys are names"
        elif key.plain and key.text in {"", "~", "null"}:
            sentence = "a key is missing before ':'"
        elif key.plain and key.text == "<<":
            sentence = "merge keys (<<) are not used here; write the keys out"
        elif key.plain and _NUMBER.fullmatch(key.text):
            sentence = f"key '{name}' is read as a number; keys are names"
        if sentence is not None:
            self._problems.add(key.place, sentence)
            return None
        return key.text


def _place(event: yaml.Event) -> Place:
    start, end = event.start_mark, event.end_mark
    assert start is not None
    assert end is not None
    length = end.column - start.column if end.line == start.line else 1
    return Place(start.line + 1, start.column + 1, max(1, length))


# What the parser says -> what helps; the first needle that is found wins.
_EXPLANATIONS = (
    ("scanning an alias", "a value that begins with * is an alias; write it in quotes"),
    ("scanning an anchor", "a value that begins with & is an anchor; write it in quotes"),
    ("scanning a tag", "a value that begins with ! is a tag; write it in quotes"),
    ("scanning a directive", "a line that begins with % is a directive; remove it"),
    ("'\\t' that cannot start", "a tab stands here; indent with spaces"),
    ("cannot start any token", "a value cannot begin with this character; write it in quotes"),
    ("mapping values are not", "a ':' is not expected here; put one key on a line, indented alike"),
    ("could not find expected ':'", "a ':' is missing after the key"),
    ("expected ',' or ']'", "the list is not closed; a ',' or ']' is missing"),
    ("expected ',' or '}'", "the mapping is not closed; a ',' or '}' is missing"),
    ("expected <block end>", "this line does not line up with those above; check its indentation"),
    ("unexpected end of stream", "a quote is opened and never closed"),
)
# The parser notices these too late; what helps is the place where the value began.
_MEANS_WHERE_IT_BEGAN = ("an alias", "an anchor", "a tag", "end of stream", "<stream end>")


def _explain(error: yaml.MarkedYAMLError) -> tuple[Place, str]:
    """Turn the parser's complaint into a sentence that says what to do."""
    said = f"{error.context or ''} {error.problem or ''}"
    began = any(needle in said for needle in _MEANS_WHERE_IT_BEGAN)
    mark = error.context_mark if began else error.problem_mark
    place = Place(mark.line + 1, mark.column + 1) if mark else Place(1, 1)
    for needle, sentence in _EXPLANATIONS:
        if needle in said:
            return place, sentence
    return place, f"this is not YAML: {safe_text(error.problem, 120)}"
