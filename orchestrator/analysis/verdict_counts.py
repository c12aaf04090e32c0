"""Counts the verdicts of runs, and the reasons why runs are suspect or void."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.analysis.measurements import MeasuredRun
from workloads.protocol.verdict import Reason, ReasonCode, Validity, reason_text

NO_REASON = "no reason given"


@dataclass(frozen=True)
class ReasonCount:
    """A reason why runs do not count, with the range of its values, and the number of runs."""

    validity: Validity
    code: ReasonCode | None  # None: the verdict gave no reason
    text: str
    runs: int


@dataclass(frozen=True)
class VerdictCounts:
    """The number of runs by verdict, and by reason."""

    valid: int
    suspect: int
    void: int
    reasons: tuple[ReasonCount, ...]

    @property
    def total(self) -> int:
        """The number of all runs."""
        return self.valid + self.suspect + self.void


def count_verdicts(runs: Iterable[MeasuredRun]) -> VerdictCounts:
    """Count verdicts and the reasons behind them, the most frequent first."""
    validities: Counter[Validity] = Counter()
    reasons_of: dict[tuple[Validity, ReasonCode | None], list[Reason]] = {}
    runs_of: Counter[tuple[Validity, ReasonCode | None]] = Counter()
    for run in runs:
        validity = run.verdict.validity
        validities[validity] += 1
        if run.valid:
            continue
        reasons = [item for item in run.verdict.reasons if item.validity is not Validity.VALID]
        for reason in reasons:
            reasons_of.setdefault((validity, reason.code), []).append(reason)
        codes: set[ReasonCode | None] = {reason.code for reason in reasons}
        runs_of.update((validity, code) for code in codes or {None})
    counts = [
        ReasonCount(validity, code, _text(code, reasons_of.get((validity, code), [])), count)
        for (validity, code), count in runs_of.items()
    ]
    return VerdictCounts(
        validities[Validity.VALID],
        validities[Validity.SUSPECT],
        validities[Validity.VOID],
        tuple(sorted(counts, key=lambda count: (-count.runs, count.validity, count.text))),
    )


def _text(code: ReasonCode | None, reasons: list[Reason]) -> str:
    if code is None:
        return NO_REASON
    return reason_text(code, [reason.values for reason in reasons])
