"""How many runs count, and why the others do not. Nothing is dropped without being counted.

Reasons that differ in their numbers alone are one reason, told with the span of the numbers.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.nouns import MeasuredRun
from workloads.measure import Standing
from workloads.text import safe_text


@dataclass(frozen=True)
class Reason:
    """Why runs were set aside."""

    standing: Standing
    text: str
    runs: int


@dataclass(frozen=True)
class Validity:
    """The verdicts of many runs in one place."""

    valid: int
    suspect: int
    void: int
    reasons: tuple[Reason, ...]

    @property
    def total(self) -> int:
        """All runs."""
        return self.valid + self.suspect + self.void


_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?")
Kind = tuple[Standing, str]  # a reason without its numbers


def count_validity(runs: Iterable[MeasuredRun]) -> Validity:
    """Count verdicts and the reasons behind them, the most frequent first."""
    every = list(runs)
    standings = Counter(run.verdict.standing for run in every)
    # what valid runs say as well is a remark, and sets nothing aside
    remarks = {_kind(text) for run in every if run.valid for text in run.verdict.reasons}
    given: dict[Kind, list[str]] = {}
    for run in every:
        if run.valid:
            continue
        own = {_kind(text): text for text in map(safe_text, run.verdict.reasons)}
        why = {kind: text for kind, text in own.items() if kind not in remarks}
        for kind, text in (why or {"": "no reason given"}).items():
            given.setdefault((run.verdict.standing, kind), []).append(text)
    reasons = [Reason(kind[0], _joined(texts), len(texts)) for kind, texts in given.items()]
    return Validity(
        standings[Standing.VALID],
        standings[Standing.SUSPECT],
        standings[Standing.VOID],
        tuple(sorted(reasons, key=lambda reason: (-reason.runs, reason.standing, reason.text))),
    )


def _kind(text: str) -> str:
    return _NUMBER.sub("#", safe_text(text))


def _joined(texts: Sequence[str]) -> str:
    """Texts that differ in their numbers alone as one, with the span of each number."""
    columns = list(zip(*(_NUMBER.findall(text) for text in texts), strict=True))
    spans = iter(_span(column) for column in columns)
    return _NUMBER.sub(lambda _: next(spans), texts[0])


def _span(numbers: Sequence[str]) -> str:
    least, most = min(numbers, key=float), max(numbers, key=float)
    return least if float(least) == float(most) else f"{least} to {most}"
