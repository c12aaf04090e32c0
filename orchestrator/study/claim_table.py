"""Compares the claims of a study with the evidence: one row per claim and phone.

A twin that was fitted to a claim approximately returns that claim: this is a calibration replay,
not a reproduction. A claim without evidence states why.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from orchestrator.analysis.stats import SYMMETRIC_MAX
from orchestrator.study.claim_evaluators import (
    FLEET_EVALUATORS,
    PHONE_EVALUATORS,
    ClaimResult,
    is_same_model,
)
from orchestrator.study.claim_judge import Judgement, Outcome, judge
from orchestrator.study.evidence import Gap, MissingEvidence, NoEvidence, StudyEvidence
from orchestrator.study.study_catalogue import (
    Claim,
    Query,
    QueryKind,
    Study,
    format_number,
    format_with_unit,
)
from workloads.protocol.metrics import Source

HEADINGS = ("CLAIM", "PUBLISHED", "PHONE", "RESULT", "RUNS", "SOURCE", "OUTCOME")


@dataclass(frozen=True)
class ClaimRow:
    """One claim, evaluated for one phone or for all phones together."""

    claim: Claim
    phone: str
    model: str
    result: ClaimResult | None
    missing: MissingEvidence | None = None  # set when there is no result

    @property
    def result_text(self) -> str:
        """The result as text for a table."""
        if self.result is None:
            return ""
        result, unit = self.result, self.claim.unit
        detail = f" ({result.detail})" if result.detail else ""
        if result.range is not None:
            low, high = map(format_number, result.range)
            shown = low if low == high else f"{low} to {high}"
            return f"{shown} {unit}".strip() + detail
        if result.value is None:
            return f"{result.label}{detail}"
        return f"{format_with_unit(result.value, unit)}{_spread(result, result.value)}{detail}"

    @property
    def source(self) -> str:
        """The source of the result."""
        return str(self.result.provenance) if self.result else ""

    @property
    def is_replay(self) -> bool:
        """Whether the result comes from a model that was fitted to the claim."""
        return self.judgement.outcome is Outcome.REPLAY

    @cached_property
    def judgement(self) -> Judgement:
        """How the result compares with the published one."""
        return judge(self.claim, self.model, self.result, self.missing)

    @property
    def cells(self) -> tuple[str, ...]:
        """The row under HEADINGS."""
        runs = str(self.result.n) if self.result else ""
        published = f"{self.claim.published} ({self.claim.published_on})"
        shown = (self.model, self.result_text, runs, self.source, self.judgement.text)
        return (self.claim.text, published, *shown)

    def as_json(self, study: Study) -> dict[str, object]:
        """Return the row as JSON."""
        result = self.result
        return {
            "claim": self.claim.text,
            "published": self.claim.published,
            "published_on": self.claim.published_on,
            "citation": study.citation_of(self.claim),
            "place": study.place_of(self.claim),
            "form": self.claim.form,
            "phone": self.phone,
            "model": self.model,
            "result": self.result_text,
            "value": result.value if result else None,
            "range": result.range if result else None,
            "unit": self.claim.unit,
            "runs": result.n if result else 0,
            "source": self.source,
            "outcome": self.judgement.outcome.value,
            "why": self.judgement.why,
            "gap": self.missing.gap.value if self.missing else None,
            "contradicts_itself": self.claim.contradicts_itself,
            "self_check": self.claim.self_check.result if self.claim.self_check else None,
        }


def _spread(result: ClaimResult, value: float) -> str:
    """Return the error beside a value; both ends of the interval where it is far from symmetric."""
    if result.provenance.error_unknown:
        return ""
    if result.half_abs:
        return f" ±{format_number(result.half_abs)}"
    if result.half_rel > SYMMETRIC_MAX:
        low, high = map(format_number, result.widen(value, value))
        return f" [{low} to {high}]"
    return f" ±{100 * result.half_rel:.0f} %" if result.half_rel >= 0.005 else ""


def evaluate_claims(study: Study, evidence: StudyEvidence) -> list[ClaimRow]:
    """Compare every claim of a study with the evidence."""
    return [row for claim in study.claims for row in _rows(claim, evidence)]


TextRow = tuple[str, ...]


def blank_repeats(rows: Sequence[TextRow]) -> list[TextRow]:
    """Show a claim only in the first of its rows, for tables on a screen."""
    before: list[TextRow] = [(), *rows[:-1]]
    return [
        ("", "", *row[2:]) if row[:2] == above[:2] else row
        for above, row in zip(before, rows, strict=True)
    ]


def table_notes(study: Study, rows: Sequence[ClaimRow]) -> list[str]:
    """Return the notes below the table."""
    sources = ", ".join(sorted({row.source for row in rows if row.source}))
    citations = "; ".join(dict.fromkeys(study.citation_of(row.claim) for row in rows))
    notes = [study.caveat, f"Published: {citations}. Results: {sources}; medians over runs."]
    if any(row.claim.average for row in rows):
        notes.append(
            "'on average': the study gives a mean, which slow steps raise above the median."
        )
    if any(row.result and row.result.half_rel for row in rows):
        notes.append(
            "± is half of the 95 % interval, including the model's error; of fewer than four runs, "
            "half of their range. Far from symmetric, both ends are shown. Without interval: the "
            "error is unknown, or below half a percent."
        )
    if any(row.is_replay for row in rows):
        notes.append(
            "Calibration replay: the virtual phone was fitted to this claim, or a constant was "
            "chosen with it in view. A close result shows how good the fit is, and nothing more."
        )
    return notes


def any_simulated(rows: Sequence[ClaimRow]) -> bool:
    """Return whether any result was simulated."""
    return any(row.result and row.result.provenance.source is Source.SIMULATED for row in rows)


def _rows(claim: Claim, evidence: StudyEvidence) -> Iterator[ClaimRow]:
    query = claim.query
    if query.kind is QueryKind.UNOBSERVABLE:
        missing = MissingEvidence(Gap.UNOBSERVABLE, query.reason)
        yield ClaimRow(claim, "", "any phone", None, missing)
    elif query.kind in FLEET_EVALUATORS:
        yield _fleet_row(claim, query, evidence)
    else:
        phones = _phones_for(claim, evidence)
        yield from _merge_missing([_phone_row(claim, query, evidence, p) for p in phones])


def _merge_missing(rows: Sequence[ClaimRow]) -> Iterator[ClaimRow]:
    """Merge the rows of phones that lack the same evidence for the same reason."""
    counts = Counter(row.missing for row in rows)
    merged: set[MissingEvidence] = set()
    for row in rows:
        if row.missing is None or counts[row.missing] == 1:
            yield row
        elif row.missing not in merged:
            merged.add(row.missing)
            models = ", ".join(other.model for other in rows if other.missing == row.missing)
            yield replace(row, phone="", model=models)


def _phones_for(claim: Claim, evidence: StudyEvidence) -> list[str]:
    """Return the phones to evaluate: only those of its model, if the claim is for that alone."""
    phones = sorted(evidence.phones, key=lambda phone: (evidence.phones[phone], phone))
    same = [phone for phone in phones if is_same_model(claim.own_model, evidence.phones[phone])]
    return same if claim.only_this_phone and same else phones


def _phone_row(claim: Claim, query: Query, evidence: StudyEvidence, phone: str) -> ClaimRow:
    model = evidence.phones[phone]
    try:
        return ClaimRow(claim, phone, model, PHONE_EVALUATORS[query.kind](query, evidence, phone))
    except NoEvidence as error:
        missing = error.missing
        if query.if_not_run and missing.gap is Gap.NOT_RUN:
            missing = replace(missing, text=query.if_not_run)
        return ClaimRow(claim, phone, model, None, missing)


def _fleet_row(claim: Claim, query: Query, evidence: StudyEvidence) -> ClaimRow:
    count = len(evidence.phones)
    name = "1 phone" if count == 1 else f"{count} phones"
    try:
        return ClaimRow(claim, "", name, FLEET_EVALUATORS[query.kind](query, evidence))
    except NoEvidence as error:
        return ClaimRow(claim, "", name, None, error.missing)
