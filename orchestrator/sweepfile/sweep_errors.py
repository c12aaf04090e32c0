"""What is wrong with a sweep file: every mistake with its place, all of them at once."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from workloads.fault import Refused
from workloads.text import safe_text

SHOWN_CHARACTERS = 110
SHOWN_BEFORE = 70


@dataclass(frozen=True, order=True)
class Problem:
    """One mistake; line and column count from one, as editors do."""

    line: int
    column: int
    text: str
    length: int = 1


class BadSweep(Refused):
    """The sweep file has mistakes."""

    def __init__(self, problems: Sequence[Problem], source: str) -> None:
        self.problems = tuple(sorted(problems))
        self._lines = source.removeprefix("\ufeff").splitlines()
        super().__init__("; ".join(f"line {each.line}: {each.text}" for each in self.problems))

    def render(self, source_name: str) -> str:
        """Write every problem as an editor understands it, with its line and a caret under it."""
        return "\n".join(
            f"{safe_text(source_name)}:{each.line}:{each.column}: {each.text}{self._excerpt(each)}"
            for each in self.problems
        )

    def _excerpt(self, problem: Problem) -> str:
        if problem.line > len(self._lines):
            return ""
        line = self._lines[problem.line - 1]
        first = problem.column - 1
        cut = first - SHOWN_BEFORE if first > SHOWN_BEFORE and len(line) > SHOWN_CHARACTERS else 0
        before, marked = line[cut:first], line[first : first + problem.length]
        shown = "".join(_shown(character) for character in line[cut : cut + SHOWN_CHARACTERS])
        caret = " " * _width(before) + "^" * max(1, _width(marked[:SHOWN_CHARACTERS]))
        return f"\n{problem.line:>6} | {shown.rstrip()}\n{'':>6} | {caret}"


def _shown(character: str) -> str:
    """Keep the file's layout, but none of its control and direction characters."""
    if character == "\t":
        return " "
    hidden = unicodedata.category(character) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    return "\N{REPLACEMENT CHARACTER}" if hidden else character


def _width(text: str) -> int:
    """Count the terminal cells of a text, so that the caret stands under its word."""
    cells = 0
    for character in text:
        if unicodedata.category(character) not in {"Mn", "Me"}:
            cells += 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1
    return cells
