"""How many runs count, and why the others do not. Nothing is dropped without being counted."""

from collections import Counter
from collections.abc import Iterable
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


def count_validity(runs: Iterable[MeasuredRun]) -> Validity:
    """Count verdicts and the reasons behind them, the most frequent first."""
    standings: Counter[Standing] = Counter()
    reasons: Counter[tuple[Standing, str]] = Counter()
    for run in runs:
        standing = run.verdict.standing
        standings[standing] += 1
        if not run.valid:
            given = {safe_text(reason) for reason in run.verdict.reasons} or {"no reason given"}
            reasons.update((standing, reason) for reason in given)
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    return Validity(
        standings[Standing.VALID],
        standings[Standing.SUSPECT],
        standings[Standing.VOID],
        tuple(Reason(standing, text, count) for (standing, text), count in ordered),
    )
