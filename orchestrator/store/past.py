"""What reports say of heat and time, for whoever plans the next run."""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import bindparam, func, select

from orchestrator.nouns import RunState
from orchestrator.store.database import Database
from orchestrator.store.tables import ACCEPTED, VOID, metric, phone, report, run, sweep, trial
from workloads.catalogue import Case
from workloads.condition import Condition

BATCH = 2000


@dataclass(frozen=True)
class Past:
    """A run that was made: when, of what, and how warm it began."""

    id: int
    phone: str
    sweep: str
    case_digest: str
    condition_digest: str
    began_s: float
    ended_s: float
    cooled_s: float
    start_temp_c: float | None

    @property
    def ran_s(self) -> float:
        """What it took apart from cooling."""
        return max(0.0, self.ended_s - self.began_s - self.cooled_s)


@dataclass(frozen=True)
class Claim:
    """What a sweep may ask for."""

    id: str
    owner: str
    priority: int
    deadline: float | None
    created_s: float
    left: int  # runs that its busiest phone has still to make; counted where there is a deadline


_HEAT = (metric.c.trial == report.c.trial) & (metric.c.repeat == report.c.repeat)
_MADE = (
    select(
        *(report.c.id, report.c.phone, trial.c.sweep, trial.c.case_digest),
        *(trial.c.condition_digest, report.c.began_s, report.c.ended_s, report.c.cooled_s),
        metric.c.value.label("start_temp_c"),
    )
    .join(trial, trial.c.id == report.c.trial)
    .join(metric, _HEAT & (metric.c.name == "start_temp_c"), isouter=True)
    .where(report.c.status.in_((ACCEPTED, VOID)), report.c.began_s.is_not(None))
    .where(report.c.id > bindparam("cursor"))
    .order_by(report.c.id)
    .limit(BATCH)
)


def made_since(db: Database, cursor: int | None) -> list[Past]:
    """Runs that were reported after the cursor, in the order they came; the newest at first."""
    with db.read() as connection:
        if cursor is None:
            newest = connection.execute(select(func.max(report.c.id))).scalar() or 0
            cursor = newest - BATCH
        return [Past(*row) for row in connection.execute(_MADE, {"cursor": cursor})]


def digests(db: Database, ids: Collection[str]) -> dict[str, tuple[str, str]]:
    """Which case under which condition trials are of."""
    fields = (trial.c.id, trial.c.case_digest, trial.c.condition_digest)
    with db.read() as connection:
        rows = connection.execute(select(*fields).where(trial.c.id.in_(ids)))
        return {row[0]: (row[1], row[2]) for row in rows}


def questions(db: Database, ids: Collection[str]) -> list[tuple[Case, Condition]]:
    """What trials ask, in full."""
    with db.read() as connection:
        rows = connection.execute(
            select(trial.c.case, trial.c.condition).where(trial.c.id.in_(ids))
        ).all()
    return [
        (Case.model_validate(row.case), Condition.model_validate(row.condition)) for row in rows
    ]


def models(db: Database) -> dict[str, str]:
    """The model of every phone: phones of one model are siblings."""
    with db.read() as connection:
        rows = connection.execute(select(phone.c.serial, phone.c.facts["model"].as_string()))
        return {row[0]: row[1] for row in rows}


def claims(db: Database, sweeps: Collection[str]) -> list[Claim]:
    """What sweeps may ask for."""
    with db.read() as connection:
        rows = connection.execute(select(sweep).where(sweep.c.id.in_(sweeps))).all()
        pressed = [row.id for row in rows if row.deadline is not None]
        per_phone = (
            select(run.c.sweep, func.count().label("left"))
            .where(run.c.sweep.in_(pressed), run.c.state == RunState.QUEUED)
            .group_by(run.c.sweep, run.c.phone)
            .subquery()
        )
        most = select(per_phone.c.sweep, func.max(per_phone.c.left)).group_by(per_phone.c.sweep)
        left: dict[str, int] = dict(connection.execute(most).all()) if pressed else {}
    return [
        Claim(
            *(row.id, row.owner, row.priority, row.deadline, row.created_at.timestamp()),
            left=left.get(row.id, 0),
        )
        for row in rows
    ]
