"""What a screen asks again and again: small answers, and nothing twice that has not changed."""

import json
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import func, select

from orchestrator.nouns import Cell, KnownPhone, Lease, RunState
from orchestrator.store.database import Database
from orchestrator.store.ingest import label_of
from orchestrator.store.queries import known_phone, known_phones
from orchestrator.store.tables import STALE, VOID, phone, report, run, trial
from workloads.catalogue import Case
from workloads.condition import Condition
from workloads.phone import PhoneFacts

TAKEN_MAX = 500
_LEFT = (RunState.QUEUED, RunState.LEASED)
_ROW = tuple(column for column in phone.c if column.name not in {"facts", "strikes", "fence"})


class PhoneBook:
    """Every phone that was ever seen; facts are read again only when they have changed."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._facts: dict[str, tuple[str, PhoneFacts]] = {}

    def read(self) -> list[KnownPhone]:
        """All phones, without their heartbeats."""
        with self._db.read() as connection:
            rows = connection.execute(select(*_ROW).order_by(phone.c.serial)).all()
        known = {serial: digest for serial, (digest, _) in self._facts.items()}
        if any(known.get(row.serial) != row.facts_digest for row in rows):
            digests = {row.serial: row.facts_digest for row in rows}
            self._facts = {
                item.serial: (digests.get(item.serial, ""), item.facts)
                for item in known_phones(self._db)
            }
        return [
            known_phone(row, self._facts[row.serial][1])
            for row in rows
            if row.serial in self._facts
        ]


class LeaseBook:
    """Who is leased for what; a trial's name is worked out once."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._labels: dict[str, str] = {}

    def read(self) -> dict[str, Lease]:
        """Every lease, by phone."""
        columns = (run.c.sweep, run.c.trial, run.c.repeat, run.c.attempt, run.c.lease_until)
        with self._db.read() as connection:
            rows = connection.execute(
                select(run.c.phone, *columns).where(run.c.state == RunState.LEASED)
            ).all()
            new = {row.trial for row in rows} - self._labels.keys()
            if new:
                asked = select(trial.c.id, trial.c.case, trial.c.condition)
                found = connection.execute(asked.where(trial.c.id.in_(new))).all()
                self._labels |= {row.id: label_of(row.case, row.condition) for row in found}
        return {
            row.phone: Lease(
                sweep=row.sweep,
                trial=row.trial,
                repeat=row.repeat,
                attempt=row.attempt,
                until=row.lease_until,
                label=self._labels.get(row.trial, row.trial),
            )
            for row in rows
        }


class Taken(NamedTuple):
    """How long a finished attempt took, and under which condition."""

    report: int
    condition: str
    seconds: float


def taken_since(db: Database, sweep_id: str, last: int) -> list[Taken]:
    """How long attempts took whose reports came after the given one; the newest, oldest first."""
    question = (
        select(report.c.id, report.c.body, trial.c.condition_digest)
        .join(trial, trial.c.id == report.c.trial)
        .where(trial.c.sweep == sweep_id, report.c.status != STALE, report.c.id > last)
        .order_by(report.c.id.desc())
        .limit(TAKEN_MAX)
    )
    with db.read() as connection:
        rows = connection.execute(question).all()
    return [Taken(row.id, row.condition_digest, _seconds(row.body)) for row in reversed(rows)]


def _seconds(body: str) -> float:
    said = json.loads(body)
    began, ended = (datetime.fromisoformat(said[name]) for name in ("started_at", "ended_at"))
    return max(0.0, (ended - began).total_seconds())


def runs_left(db: Database, sweep_id: str) -> dict[str, dict[str, int]]:
    """How many runs each phone has still to make for a sweep: phone, condition, count."""
    question = (
        select(run.c.phone, trial.c.condition_digest, func.count().label("runs"))
        .join(trial, trial.c.id == run.c.trial)
        .where(run.c.sweep == sweep_id, run.c.state.in_(_LEFT))
        .group_by(run.c.phone, trial.c.condition_digest)
    )
    left: dict[str, dict[str, int]] = {}
    with db.read() as connection:
        for row in connection.execute(question):
            left.setdefault(row.phone, {})[row.condition_digest] = row.runs
    return left


class Matrix:
    """The cells of one sweep; what they are called is asked once."""

    def __init__(self, db: Database, sweep_id: str) -> None:
        self._db = db
        self._sweep = sweep_id
        self._labels: dict[tuple[str, str], tuple[str, str]] = {}

    def read(self) -> tuple[Cell, ...]:
        """Every cell with what became of its runs, in the order of its names."""
        key = (trial.c.case_digest, trial.c.condition_digest)
        runs = (
            select(*key, run.c.state, func.count().label("count"))
            .join(trial, trial.c.id == run.c.trial)
            .where(run.c.sweep == self._sweep)
            .group_by(*key, run.c.state)
        )
        voids = (
            select(*key, func.count().label("count"))
            .join(trial, trial.c.id == report.c.trial)
            .where(trial.c.sweep == self._sweep, report.c.status == VOID)
            .group_by(*key)
        )
        with self._db.read() as connection:
            counted = connection.execute(runs).all()
            void = {(case, condition): int(n) for case, condition, n in connection.execute(voids)}
            cells: dict[tuple[str, str], dict[RunState, int]] = {}
            for case, condition, state, count in counted:
                cells.setdefault((case, condition), {})[RunState(state)] = count
            if cells.keys() - self._labels.keys():
                self._labels = _labels(connection, self._sweep)
        return tuple(
            Cell(*self._labels[key], runs=cells[key], void=void.get(key, 0))
            for key in sorted(cells, key=lambda key: self._labels.get(key, key))
            if key in self._labels
        )


def _labels(connection: Any, sweep_id: str) -> dict[tuple[str, str], tuple[str, str]]:
    one_each = (
        select(func.min(trial.c.id))
        .where(trial.c.sweep == sweep_id)
        .group_by(trial.c.case_digest, trial.c.condition_digest)
    )
    columns = (trial.c.case_digest, trial.c.condition_digest, trial.c.case, trial.c.condition)
    rows = connection.execute(select(*columns).where(trial.c.id.in_(one_each))).all()
    return {
        (row.case_digest, row.condition_digest): (
            Case.model_validate(row.case).label,
            Condition.model_validate(row.condition).label,
        )
        for row in rows
    }
