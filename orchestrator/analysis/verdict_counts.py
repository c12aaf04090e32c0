"""Counts the verdicts of runs, and the reasons why runs are suspect or void."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.analysis.joint_rules import SURE_RUNS
from orchestrator.analysis.measurements import MeasuredRun
from workloads.protocol.verdict import Reason, ReasonCode, Validity, Verdict, reason_text
from workloads.units import count_text

NO_REASON = "no reason given"


@dataclass(frozen=True)
class ReasonCount:
    """A reason why runs do not count, with the range of its values, and the number of runs."""

    validity: Validity
    code: ReasonCode | None  # None: the verdict gave no reason
    text: str
    runs: int


@dataclass(frozen=True)
class LeftOutRuns:
    """The runs of a sweep that do not count, and their most frequent reason."""

    suspect: int = 0
    void: int = 0
    reason: ReasonCode | None = None
    reason_text: str = ""

    @property
    def counts(self) -> str:
        """The counts as text; empty if every run counts."""
        known = ((self.suspect, Validity.SUSPECT), (self.void, Validity.VOID))
        return " and ".join(f"{count} {validity}" for count, validity in known if count)

    @property
    def text(self) -> str:
        """The counts with the most frequent reason; empty if every run counts."""
        if not self.counts:
            return ""
        runs = "run does" if self.suspect + self.void == 1 else "runs do"
        return f"{self.counts} {runs} not count; most often: {self.reason_text or NO_REASON}"


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

    @property
    def left_out(self) -> LeftOutRuns:
        """The runs that do not count."""
        if not self.reasons:
            return LeftOutRuns(self.suspect, self.void)
        return LeftOutRuns(self.suspect, self.void, self.reasons[0].code, self.reasons[0].text)


def count_verdicts(runs: Iterable[MeasuredRun]) -> VerdictCounts:
    """Count verdicts and the reasons behind them, the most frequent first."""
    validities: Counter[Validity] = Counter()
    verdicts = [run.verdict for run in runs]
    validities.update(verdict.validity for verdict in verdicts)
    return VerdictCounts(
        validities[Validity.VALID],
        validities[Validity.SUSPECT],
        validities[Validity.VOID],
        count_reasons(verdicts),
    )


def judgement_text(runs: Iterable[MeasuredRun]) -> str:
    """Say with how many runs the runs were judged, and what too few of them cannot show."""
    counts = [run.judged_runs for run in runs if run.verdict.validity is not Validity.VOID]
    judged = sorted(count for count in counts if count)
    if not judged:
        return ""
    few = sum(count < SURE_RUNS for count in judged)
    if few:
        of = f"{few} of {count_text(len(counts), 'run')}" if few < len(counts) else "the runs"
        return (
            f"{of} were judged with fewer than {SURE_RUNS} runs of the same work: a disturbance "
            "that lasts for a whole run cannot be known (repeat: 5 shows it)"
        )
    span = " to ".join(dict.fromkeys((str(judged[0]), str(judged[-1]))))
    return f"each run was judged with {span} runs of the same work"


def count_reasons(verdicts: Iterable[Verdict]) -> tuple[ReasonCount, ...]:
    """Count the reasons of runs that do not count, the most frequent first."""
    reasons_of: dict[tuple[Validity, ReasonCode | None], list[Reason]] = {}
    runs_of: Counter[tuple[Validity, ReasonCode | None]] = Counter()
    for verdict in verdicts:
        validity = verdict.validity
        if validity is Validity.VALID:
            continue
        reasons = [item for item in verdict.reasons if item.validity is not Validity.VALID]
        for reason in reasons:
            reasons_of.setdefault((validity, reason.code), []).append(reason)
        codes: set[ReasonCode | None] = {reason.code for reason in reasons}
        runs_of.update((validity, code) for code in codes or {None})
    counts = [
        ReasonCount(validity, code, _text(code, reasons_of.get((validity, code), [])), count)
        for (validity, code), count in runs_of.items()
    ]
    return tuple(sorted(counts, key=lambda count: (-count.runs, count.validity, count.text)))


def _text(code: ReasonCode | None, reasons: list[Reason]) -> str:
    if code is None:
        return NO_REASON
    return reason_text(code, [reason.values for reason in reasons])
