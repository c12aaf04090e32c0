"""One table of everything that the studies measured: one row per topic."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.study.claim_evaluators import is_same_model
from orchestrator.study.claim_judge import Outcome
from orchestrator.study.claim_table import ClaimRow
from orchestrator.study.study_catalogue import TOPICS, Study

HEADINGS = (
    *("TOPIC", "MEASURED", "STUDY", "CLAIM", "PUBLISHED", "RESULT", "SOURCE", "OUTCOME"),
    "CLAIMS",
)


@dataclass(frozen=True)
class TopicRow:
    """A topic of the studies: its best answered claim, and how many claims were answered."""

    topic: str
    text: str
    study: str
    row: ClaimRow | None  # None: no study of this topic was run
    answered: int
    claims: int
    error: str = ""  # why its study could not run

    @property
    def is_answered(self) -> bool:
        """Whether there is a number or an observed outcome."""
        return self.row is not None and self.row.result is not None

    @property
    def outcome_text(self) -> str:
        """The outcome; the reason of a missing result is a cell of its own."""
        judged = self.row.judgement if self.row else None
        is_missing = judged is None or judged.outcome is Outcome.NO_RESULT
        return "" if judged is None else judged.outcome.text if is_missing else judged.text

    @property
    def cells(self) -> tuple[str, ...]:
        """The row under HEADINGS."""
        count = f"{self.answered} of {self.claims}"
        if self.row is None:
            return (self.topic, self.text, self.study, "", "", self.error, "", "", count)
        missing = self.row.missing.text if self.row.missing else ""
        return (
            *(self.topic, self.text, self.study, self.row.claim.text, self.row.claim.published),
            *(missing or self.row.result_text, self.row.source, self.outcome_text, count),
        )

    def as_json(self) -> dict[str, object]:
        """Return the row as JSON."""
        names = ("topic", "measured", "study", "claim", "published", "result", "source", "outcome")
        values = dict(zip(names, self.cells, strict=False))
        return values | {
            "answered": self.is_answered,
            "answered_claims": self.answered,
            "claims": self.claims,
        }


def count_outcomes(rows: Iterable[ClaimRow]) -> dict[Outcome, int]:
    """Count the rows of each outcome, in the order of the outcomes."""
    counts = Counter(row.judgement.outcome for row in rows)
    return {outcome: counts[outcome] for outcome in Outcome}


def topic_rows(
    answers: Iterable[tuple[Study, Sequence[ClaimRow], str]],
) -> list[TopicRow]:
    """Return one row per topic from the claims of studies, each with why it could not run."""
    by_topic: dict[str, list[tuple[Study, Sequence[ClaimRow], str]]] = {}
    for study, rows, error in answers:
        for topic in study.covers:
            of_topic = [row for row in rows if study.topic_of(row.claim) == topic]
            by_topic.setdefault(topic, []).append((study, of_topic, error))
    return [_topic_row(topic, text, by_topic.get(topic, [])) for topic, text in TOPICS.items()]


def _topic_row(
    topic: str, text: str, studies: Sequence[tuple[Study, Sequence[ClaimRow], str]]
) -> TopicRow:
    rows = [(study, row) for study, of_topic, _ in studies for row in of_topic]
    claims = {(study.name, row.claim.text): False for study, row in rows}
    for study, row in rows:
        claims[study.name, row.claim.text] |= row.result is not None
    names = ", ".join(study.name for study, _, _ in studies)
    if not rows:
        errors = [error for _, _, error in studies if error]
        return TopicRow(topic, text, names, None, 0, 0, errors[0] if errors else "not run")
    study, best = max(rows, key=lambda item: _quality(item[1]))
    return TopicRow(topic, text, study.name, best, sum(claims.values()), len(claims))


def _quality(row: ClaimRow) -> tuple[bool, ...]:
    """Order rows: answered, with a sound published number, on its phone, not a replay."""
    return (
        row.result is not None,
        row.claim.states_result,
        is_same_model(row.claim.own_model, row.model),
        not row.is_replay,
        row.judgement.outcome is not Outcome.NOT_COMPARABLE,
    )
