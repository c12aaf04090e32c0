"""Mistakes in a sweep file: all of them at once, each with its line, column and a caret."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from workloads.protocol.faults import InvalidRequest
from workloads.text import safe_text

SHOWN_CHARACTERS = 110
SHOWN_BEFORE = 70


@dataclass(frozen=True, order=True)
class SweepProblem:
    """One mistake; line and column count from one, as editors do."""

    line: int
    column: int
    text: str
    length: int = 1


class BadSweep(InvalidRequest):
    """The sweep file has mistakes."""

    def __init__(self, problems: Sequence[SweepProblem], source: str) -> None:
        self.problems = tuple(sorted(problems))
        self._lines = source.removeprefix("\ufeff").splitlines()
        super().__init__(
            "; ".join(f"line {problem.line}: {problem.text}" for problem in self.problems)
        )

    def render(self, source_name: str) -> str:
        """Format every problem as compilers do, with its line and a caret under the mistake."""
        name = safe_text(source_name)
        return "\n".join(
            f"{name}:{problem.line}:{problem.column}: {problem.text}{self._excerpt(problem)}"
            for problem in self.problems
        )

    def _excerpt(self, problem: SweepProblem) -> str:
        if problem.line > len(self._lines):
            return ""
        line = self._lines[problem.line - 1]
        first = problem.column - 1
        cut = first - SHOWN_BEFORE if first > SHOWN_BEFORE and len(line) > SHOWN_CHARACTERS else 0
        before, marked = line[cut:first], line[first : first + problem.length]
        shown = "".join(_printable(character) for character in line[cut : cut + SHOWN_CHARACTERS])
        caret = " " * _width(before) + "^" * max(1, _width(marked[:SHOWN_CHARACTERS]))
        return f"\n{problem.line:>6} | {shown.rstrip()}\n{'':>6} | {caret}"


def _printable(character: str) -> str:
    """Replace control and direction characters, but keep the layout of the line."""
    if character == "\t":
        return " "
    hidden = unicodedata.category(character) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    return "\N{REPLACEMENT CHARACTER}" if hidden else character


def _width(text: str) -> int:
    """Count the terminal cells of a text, so that the caret is under the mistake."""
    cells = 0
    for character in text:
        if unicodedata.category(character) not in {"Mn", "Me"}:
            cells += 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1
    return cells
