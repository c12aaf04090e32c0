"""Single trials: what was asked, and what became of every attempt at it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import func, select

from orchestrator.nouns import RunState
from orchestrator.store.database import Database
from orchestrator.store.ingest import label_of
from orchestrator.store.queries import aware
from orchestrator.store.tables import report, run, trial
from workloads.fault import Refused
from workloads.messages import Report

FOUND_MAX = 2


@dataclass(frozen=True)
class TrialLine:
    """A trial in one line."""

    id: str
    sweep: str
    phone: str
    label: str
    runs: dict[RunState, int]
    note: str = ""


@dataclass(frozen=True)
class Told:
    """One report: what an attempt came to."""

    repeat: int
    attempt: int
    status: str
    received_at: datetime
    report: Report


def find_trial(db: Database, begun: str) -> str:
    """The id of a trial, from the beginning of it."""
    with db.read() as connection:
        like = trial.c.id.startswith(begun, autoescape=True)
        found = connection.execute(select(trial.c.id).where(like).limit(FOUND_MAX)).scalars().all()
    if len(found) == 1:
        return str(found[0])
    if found:
        raise Refused(f"'{begun}' is the beginning of several trials; write more of it")
    raise Refused(f"there is no trial '{begun}'; 'farm trial list SWEEP' shows all")


def trial_lines(
    db: Database,
    sweep_id: str,
    limit: int,
    state: RunState | None = None,
    phone: str | None = None,
) -> list[TrialLine]:
    """Trials of a sweep in the order of their ids, with how many of their runs stand where."""
    chosen = select(trial).where(trial.c.sweep == sweep_id).order_by(trial.c.phone, trial.c.id)
    if phone is not None:
        chosen = chosen.where(trial.c.phone.startswith(phone, autoescape=True))
    if state is not None:
        there = select(run.c.id).where(run.c.trial == trial.c.id, run.c.state == state)
        chosen = chosen.where(there.exists())
    chosen = chosen.limit(limit)
    wanted = chosen.with_only_columns(trial.c.id).subquery()
    with db.read() as connection:
        rows = connection.execute(chosen).all()
        counted = connection.execute(
            select(run.c.trial, run.c.state, func.count().label("count"), func.max(run.c.note))
            .where(run.c.trial.in_(select(wanted)))
            .group_by(run.c.trial, run.c.state)
        ).all()
    of: dict[str, list[Any]] = {}
    for each in counted:
        of.setdefault(each.trial, []).append(each)
    return [_line(row, of.get(row.id, [])) for row in rows]


def one_trial(db: Database, trial_id: str) -> tuple[TrialLine, list[Told]]:
    """A trial, and every report on it in the order they came."""
    with db.read() as connection:
        row = connection.execute(select(trial).where(trial.c.id == trial_id)).one()
        counted = connection.execute(
            select(run.c.trial, run.c.state, func.count().label("count"), func.max(run.c.note))
            .where(run.c.trial == trial_id)
            .group_by(run.c.trial, run.c.state)
        ).all()
        told = connection.execute(
            select(report).where(report.c.trial == trial_id).order_by(report.c.id)
        ).all()
    reports = [
        Told(
            each.repeat,
            each.attempt,
            each.status,
            aware(each.received_at),
            Report.model_validate_json(each.body),
        )
        for each in told
    ]
    return _line(row, counted), reports


def _line(row: Any, counted: Any) -> TrialLine:
    runs = {RunState(each.state): each.count for each in counted}
    notes = [each[3] for each in counted if each[3]]
    label = label_of(row.case, row.condition)
    return TrialLine(row.id, row.sweep, row.phone, label, runs, notes[0] if notes else "")
