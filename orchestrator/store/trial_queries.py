"""Queries on single trials: what they run, and every report on them."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, and_, func, select

from orchestrator.analysis.joint_rules import JointJudgement
from orchestrator.planning.states import ReportStatus, RunState
from orchestrator.store.database import Database, as_utc
from orchestrator.store.joint_judgements import stored_judgement
from orchestrator.store.tables import report, run, trial
from workloads.catalogue import Case
from workloads.protocol.condition import Condition
from workloads.protocol.faults import InvalidRequest
from workloads.protocol.messages import Report
from workloads.protocol.verdict import Validity, Verdict
from workloads.text import safe_text


@dataclass(frozen=True)
class TrialSummary:
    """A trial in one line."""

    id: str
    sweep: str
    phone: str
    label: str
    runs: dict[RunState, int]
    note: str = ""
    headline: str = "step_ms"  # the metric that answers the question of its protocol


@dataclass(frozen=True)
class AttemptReport:
    """The report of one attempt, and the status that the store gave it."""

    repeat: int
    block: int
    attempt: int
    status: ReportStatus
    received_at: datetime
    report: Report  # as sent
    judgement: JointJudgement

    @property
    def verdict(self) -> Verdict | None:
        """The verdict that counts: as sent, with what the other runs show."""
        sent = self.report.verdict
        return None if sent is None else self.judgement.applied_to(sent)


def trial_label(case: Any, condition: Any) -> str:
    """Return a trial's short name, from its stored case and condition."""
    return f"{Case.model_validate(case).label} {Condition.model_validate(condition).label}"


class CellTexts(NamedTuple):
    """The texts that describe a case under a condition."""

    label: str
    headline: str  # the metric that answers the question of its protocol


_cells: dict[tuple[str, str], CellTexts] = {}  # by the digests of case and condition
CELLS_MAX = 10_000


def cell_of(connection: Connection, row: Row[Any]) -> CellTexts:
    """Return the cell of a run's trial, from memory if possible: every report asks for it."""
    key = (row.case_digest, row.condition_digest)
    if key not in _cells:
        if len(_cells) > CELLS_MAX:
            _cells.clear()
        stored = select(trial.c.case, trial.c.condition).where(trial.c.id == row.trial)
        case, condition = connection.execute(stored).one()
        headline = Condition.model_validate(condition).headline
        _cells[key] = CellTexts(trial_label(case, condition), headline)
    return _cells[key]


def find_trial(db: Database, prefix: str) -> str:
    """Return the id of the one trial whose id begins with the prefix."""
    matching = select(trial.c.id).where(trial.c.id.startswith(prefix, autoescape=True)).limit(2)
    ids = db.values(matching)
    if len(ids) == 1:
        return str(ids[0])
    if ids:
        raise InvalidRequest(
            f"'{prefix}' is ambiguous (several trials match); give more characters"
        )
    shown = safe_text(prefix)
    raise InvalidRequest(f"there is no trial '{shown}'; 'farm trial list SWEEP' shows all")


def trial_summaries(
    db: Database,
    sweep_id: str,
    limit: int,
    state: RunState | None = None,
    phone: str | None = None,
    verdict: Validity | None = None,
) -> list[TrialSummary]:
    """Return the trials of a sweep by phone and id, those with a run in a state or verdict."""
    selected = select(trial).where(trial.c.sweep == sweep_id).order_by(trial.c.phone, trial.c.id)
    if phone is not None:
        selected = selected.where(trial.c.phone.startswith(phone, autoescape=True))
    if state is not None:
        in_state = select(run.c.id).where(run.c.trial == trial.c.id, run.c.state == state)
        selected = selected.where(in_state.exists())
    if verdict is not None:
        judged = (report.c.trial == trial.c.id, report.c.judged == verdict)
        status = ReportStatus.VOID if verdict is Validity.VOID else ReportStatus.ACCEPTED
        reported = select(report.c.id).where(*judged, report.c.status == status)
        selected = selected.where(reported.exists())
    selected = selected.limit(limit)
    ids = selected.with_only_columns(trial.c.id).subquery()
    with db.read() as connection:
        rows = connection.execute(selected).all()
        counts = connection.execute(_count_runs(run.c.trial.in_(select(ids)))).all()
    counts_of: dict[str, list[Any]] = {}
    for count in counts:
        counts_of.setdefault(count.trial, []).append(count)
    return [_summary(row, counts_of.get(row.id, [])) for row in rows]


def trial_reports(db: Database, trial_id: str) -> tuple[TrialSummary, list[AttemptReport]]:
    """Return a trial, and every report on it in the order of arrival."""
    with db.read() as connection:
        row = connection.execute(select(trial).where(trial.c.id == trial_id)).one()
        counts = connection.execute(_count_runs(run.c.trial == trial_id)).all()
        reports = connection.execute(
            select(report, run.c.block)
            .join(run, and_(run.c.trial == report.c.trial, run.c.repeat == report.c.repeat))
            .where(report.c.trial == trial_id)
            .order_by(report.c.id)
        ).all()
    return _summary(row, counts), [
        AttemptReport(
            stored.repeat,
            stored.block,
            stored.attempt,
            ReportStatus(stored.status),
            as_utc(stored.received_at),
            Report.model_validate_json(stored.payload),
            stored_judgement(stored),
        )
        for stored in reports
    ]


def _count_runs(where: Any) -> Any:
    """Count the runs of trials by state, each with one of their notes."""
    counted = (run.c.trial, run.c.state, func.count().label("count"), func.max(run.c.note))
    return select(*counted).where(where).group_by(run.c.trial, run.c.state)


def _summary(row: Any, counts: Any) -> TrialSummary:
    runs = {RunState(count.state): count.count for count in counts}
    notes = [count[3] for count in counts if count[3]]
    label = trial_label(row.case, row.condition)
    headline = Condition.model_validate(row.condition).headline
    note = notes[0] if notes else ""
    return TrialSummary(row.id, row.sweep, row.phone, label, runs, note, headline)


def cell_digests(db: Database, trials: Collection[str]) -> dict[str, tuple[str, str]]:
    """Return the digests of the case and the condition of each trial."""
    columns = (trial.c.id, trial.c.case_digest, trial.c.condition_digest)
    rows = db.rows(select(*columns).where(trial.c.id.in_(trials)))
    return {row[0]: (row[1], row[2]) for row in rows}


def cases_and_conditions(
    db: Database, trials: Collection[str]
) -> dict[str, tuple[Case, Condition]]:
    """Return the case and the condition of each trial, in full."""
    rows = db.rows(
        select(trial.c.id, trial.c.case, trial.c.condition).where(trial.c.id.in_(trials))
    )
    return {
        row.id: (Case.model_validate(row.case), Condition.model_validate(row.condition))
        for row in rows
    }
