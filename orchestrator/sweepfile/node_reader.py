"""Typed values out of nodes. A reader never stops at a mistake: it notes it and answers None."""

import difflib
import re
from collections.abc import Callable, Collection
from typing import TypeVar

from orchestrator.plan.document import BOOLEANS, Broken, Entries, Items, Node, Problems, Scalar
from workloads.text import safe_text
from workloads.units import parse_duration

Value = TypeVar("Value", bound=str | int)

_WHOLE = re.compile(r"[-+]?(0|[1-9]\d{0,17})")
_DECIMAL = re.compile(r"[-+]?(0|[1-9]\d{0,8})(\.\d{1,9})?")
_SEXAGESIMAL = re.compile(r"[-+]?\d[\d_]*(:[0-5]?\d)+(\.\d*)?")
# Only older YAML reads these two as booleans; the next tool that opens the file may be such a one.
LISTED_MAX = 16  # of the words that might have been meant
_SHORT_BOOLEANS = {"y": "true", "n": "false"}


class Reader:
    """Reads nodes under their path in the file, such as `matrix.batch_size[1]`."""

    def __init__(self) -> None:
        self.problems = Problems()

    def refuse(self, node: Node, path: str, sentence: str) -> None:
        """Note what is wrong with a value."""
        self.problems.add(node.place, f"{path}: {sentence}")

    def right_version(self, root: Entries, key: str, known: int) -> bool:
        """A file of another version is not judged by the rules of this one."""
        entry = root.entries.get(key)
        if entry is None:
            sentence = f"the key '{key}' is missing; begin with '{key}: {known}'"
            self.problems.add(root.place, sentence)
            return True
        version = self.whole_number(entry.node, key)
        if version in {None, known}:
            return True
        sentence = f"version {version} is not known here; this farm reads '{key}: {known}'"
        self.refuse(entry.node, key, sentence)
        return False

    def scalar(self, node: Node, path: str, wanted: str) -> Scalar | None:
        """Accept a single value that is not empty."""
        if isinstance(node, Broken):
            return None
        if not isinstance(node, Scalar):
            kind = "a list" if isinstance(node, Items) else "a mapping"
            self.refuse(node, path, f"this is {kind}; write {wanted}")
            return None
        if node.plain and node.text in {"", "~", "null", "Null", "NULL"}:
            self.refuse(node, path, f"the value is missing; write {wanted}")
            return None
        return node

    def text(self, node: Node, path: str, wanted: str = "a word") -> str | None:
        """Read text, refusing what YAML would take for something else."""
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
        return None if self._sexagesimal(scalar, path, quoted) else scalar.text

    def whole(self, node: Node, path: str, least: int, most: int) -> int | None:
        """Read a whole number within bounds."""
        number = self.whole_number(node, path)
        if number is not None and not least <= number <= most:
            self.refuse(node, path, f"{number} is out of range; it goes from {least} to {most}")
            return None
        return number

    def whole_number(self, node: Node, path: str) -> int | None:
        """Read a whole number; octal, hexadecimal and the like are not guessed at."""
        scalar = self.scalar(node, path, "a whole number")
        if scalar is None or self._sexagesimal(scalar, path, "write it in decimal"):
            return None
        if not scalar.plain and _WHOLE.fullmatch(scalar.text):
            self.refuse(node, path, f"'{scalar.text}' is text; write it without quotes")
        elif scalar.plain and _WHOLE.fullmatch(scalar.text):
            return int(scalar.text)
        elif re.fullmatch(r"0\d+", scalar.text):
            self.refuse(node, path, f"{scalar.text[:20]} may be read as octal; drop the leading 0")
        else:
            self.refuse(node, path, f"'{safe_text(scalar.text, 60)}' is not a whole number")
        return None

    def decimal(self, node: Node, path: str) -> float | None:
        """Read a number."""
        scalar = self.scalar(node, path, "a number")
        if scalar is None or self._sexagesimal(scalar, path, "write it in decimal"):
            return None
        if scalar.plain and _DECIMAL.fullmatch(scalar.text):
            return float(scalar.text)
        self.refuse(node, path, f"'{safe_text(scalar.text, 60)}' is not a number")
        return None

    def duration(self, node: Node, path: str) -> float | None:
        """Read a duration such as 20m; a bare number would leave its unit to guessing."""
        wanted = "a duration such as 90s or 20m"
        scalar = self.scalar(node, path, wanted)
        if scalar is None or self._sexagesimal(scalar, path, f"write {wanted}"):
            return None
        try:
            return float(parse_duration(scalar.text[:40]))
        except ValueError as error:
            self.refuse(node, path, safe_text(error))
            return None

    def choice(self, node: Node, path: str, what: str, choices: Collection[str]) -> str | None:
        """Read one of a few words."""
        text = self.text(node, path, f"one of {_listed(choices)}")
        if text is None or text in choices:
            return text
        shown = safe_text(text, 60)
        self.refuse(node, path, f"there is no {what} '{shown}'; {_hint(text, choices)}")
        return None

    def named(self, node: Node, path: str, pattern: str, what: str, longest: int) -> str | None:
        """Read a name: lower case, and made of few characters."""
        name = self.text(node, path)
        if name is None or re.fullmatch(pattern, name):
            return name
        rule = f"up to {longest} lower case letters, digits, '.', '_' and '-', "
        rule += "the first a letter or digit"
        self.refuse(node, path, f"'{safe_text(name, 70)}' is not {what}; write {rule}")
        return None

    def items(self, node: Node, path: str) -> tuple[Node, ...] | None:
        """Read a list that is not empty."""
        if isinstance(node, Broken):
            return None
        if not isinstance(node, Items):
            self.refuse(node, path, "this is not a list; write it like [1, 2]")
            return None
        if not node.items:
            self.refuse(node, path, "the list is empty; give it a value or remove it")
            return None
        return node.items

    def distinct(
        self, node: Node, path: str, read: Callable[[Node, str], Value | None]
    ) -> tuple[Value, ...]:
        """Read a list whose values all differ; sorted, for their order means nothing."""
        values: set[Value] = set()
        for index, item in enumerate(self.items(node, path) or ()):
            where = f"{path}[{index}]"
            value = read(item, where)
            if value in values:
                self.refuse(item, where, f"'{value}' stands in the list already")
            elif value is not None:
                values.add(value)
        # Names and numbers may stand in one list, and do not compare.
        return tuple(sorted(values, key=lambda value: (isinstance(value, str), value)))

    def entries(self, node: Node, path: str, wanted: str) -> Entries | None:
        """Read a mapping."""
        if isinstance(node, Entries):
            return node
        if not isinstance(node, Broken):
            self.refuse(node, path, f"this is not a mapping; write it like {wanted}")
        return None

    def section(self, root: Entries, key: str, wanted: str) -> Entries:
        """Read a part of the file that may be left out."""
        entry = root.entries.get(key)
        found = self.entries(entry.node, key, wanted) if entry else None
        return found or Entries(root.place, {})

    def share(self, node: Node, path: str) -> float | None:
        """Read a share in percent, such as 2.5%."""
        wanted = "a share such as 2%"
        scalar = self.scalar(node, path, wanted)
        if scalar is None:
            return None
        number = scalar.text.removesuffix("%")
        if number == scalar.text or not _DECIMAL.fullmatch(number) or not 0 <= float(number) <= 100:
            shown = safe_text(scalar.text, 40)
            self.refuse(node, path, f"'{shown}' is not a share; write it like 2%")
            return None
        return float(number) / 100

    def refuse_unknown(
        self, entries: Entries, known: Collection[str], path: str = "", what: str = "key"
    ) -> None:
        """Note every key that means nothing here, with the one that was probably meant."""
        for entry in entries.entries.values():
            if entry.key not in known:
                where = f"{path}: " if path else ""
                shown = safe_text(entry.key, 60)
                text = f"{where}unknown {what} '{shown}'; {_hint(entry.key, known)}"
                self.problems.add(entry.place, text)

    def _sexagesimal(self, scalar: Scalar, path: str, hint: str) -> bool:
        if not (scalar.plain and _SEXAGESIMAL.fullmatch(scalar.text)):
            return False
        shown = safe_text(scalar.text, 40)
        self.refuse(scalar, path, f"{shown} is read as a number to the base of 60; {hint}")
        return True


def _hint(wrong: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(wrong[:60].lower(), sorted(known), n=1)
    return f"did you mean '{close[0]}'?" if close else f"there are {_listed(known)}"


def _listed(words: Collection[str]) -> str:
    first, rest = list(words)[:LISTED_MAX], len(list(words)) - LISTED_MAX
    return (", ".join(first) or "none") + (f" and {rest} more" if rest > 0 else "")
