"""One answer per group of claims: what was claimed, what was seen, and whether they compare."""

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.study.claim_evaluators import is_same_model
from orchestrator.study.claim_judge import Outcome
from orchestrator.study.claim_table import ClaimRow
from orchestrator.study.study_catalogue import TOPICS, Study
from orchestrator.study.topic_table import count_outcomes

_COMPARABLE = {
    Outcome.AGREES: "They may be compared, and agree",
    Outcome.DISAGREES: "They may be compared, and disagree",
    Outcome.UNDECIDED: "They cannot be told apart",
    Outcome.NOT_COMPARABLE: "They may not be compared",
    Outcome.REPLAY: "They may not be compared, because the virtual phone was fitted to the claim",
}
_UNKNOWN = "They may not be held against each other, because the error of the simulation is unknown"


@dataclass(frozen=True)
class GroupAnswer:
    """The answer of the claims of one topic."""

    topic: str
    title: str
    claimed: str
    seen: str
    compared: str
    counts: str

    @property
    def text(self) -> str:
        """The answer as one line."""
        parts = (f"Claimed: {self.claimed}.", f"Seen: {self.seen}.", self.compared)
        title = f"{self.title[:1].upper()}{self.title[1:]}"
        return f"{title}. {' '.join(filter(None, parts))} ({self.counts})"


def group_answers(study: Study, rows: Sequence[ClaimRow]) -> list[GroupAnswer]:
    """Answer every topic of a study by its first claim that has a published result."""
    return [
        _answer(topic, [row for row in rows if study.topic_of(row.claim) == topic])
        for topic in study.covers
    ]


def _answer(topic: str, rows: Sequence[ClaimRow]) -> GroupAnswer:
    best = max(rows, key=_weight)
    claim, judged = best.claim, best.judgement
    claimed = f"{claim.text}: {claim.published} ({claim.published_on})"
    if best.result is None:
        seen, compared = f"nothing, {judged.why}", ""
    else:
        seen = f"{best.result_text} on {best.model or 'all phones'}, {best.source}"
        unknown = judged.outcome is Outcome.UNDECIDED and best.result.provenance.error_unknown
        compared = _UNKNOWN if unknown else _COMPARABLE[judged.outcome]
        compared += f": {judged.why}." if judged.why and not unknown else "."
    counts = ", ".join(f"{o.text} {n}" for o, n in count_outcomes(rows).items() if n)
    return GroupAnswer(topic, TOPICS[topic], claimed, seen, compared, counts)


def _weight(row: ClaimRow) -> tuple[bool, ...]:
    """Prefer published results, on the phone that they were published for; then the first claim."""
    return (
        row.claim.states_result,
        row.result is not None,
        row.judgement.outcome is not Outcome.NOT_COMPARABLE,
        is_same_model(row.claim.own_model, row.model),
    )
