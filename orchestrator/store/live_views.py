"""Cached queries for live screens: small results, computed again only after a change."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select

from orchestrator.analysis.cell_axes import cell_settings, value_order
from orchestrator.planning.states import ReportStatus, RunState
from orchestrator.store.database import Database
from orchestrator.store.next_runs import IS_LEASED
from orchestrator.store.phone_queries import KnownPhone, Lease, phone_from_row
from orchestrator.store.tables import phone, report, run, trial
from orchestrator.store.trial_queries import trial_label
from workloads.catalogue import Case
from workloads.protocol.condition import Condition
from workloads.protocol.phone_facts import PhoneFacts
from workloads.protocol.verdict import Validity

_LEFT = (RunState.QUEUED, RunState.LEASED)
_PHONE_COLUMNS = tuple(
    column for column in phone.c if column.name not in {"facts", "strikes", "fence"}
)


class PhoneCache:
    """Every known phone; facts are parsed again only when their digest has changed."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._facts: dict[str, tuple[str, PhoneFacts]] = {}

    def read(self) -> list[KnownPhone]:
        """Return all phones, without their heartbeats."""
        rows = self._db.rows(select(*_PHONE_COLUMNS).order_by(phone.c.serial))
        unknown = ("", None)
        if any(self._facts.get(row.serial, unknown)[0] != row.facts_digest for row in rows):
            columns = (phone.c.serial, phone.c.facts_digest, phone.c.facts)
            for serial, digest, facts in self._db.rows(select(*columns)):
                if self._facts.get(serial, unknown)[0] != digest:
                    self._facts[serial] = (digest, PhoneFacts.model_validate(facts))
        return [
            phone_from_row(row, self._facts[row.serial][1])
            for row in rows
            if row.serial in self._facts
        ]


class LeaseCache:
    """Every lease; the label and the cell of a trial are read once."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._trials: dict[str, tuple[str, tuple[str, str]]] = {}

    def read(self) -> dict[str, Lease]:
        """Return every lease, by phone."""
        names = ("phone", "sweep", "trial", "repeat", "block", "attempt", "lease_until")
        with self._db.read() as connection:
            rows = connection.execute(
                select(*(run.c[name] for name in names)).where(run.c.state == IS_LEASED)
            ).all()
            new = {row.trial for row in rows} - self._trials.keys()
            if new:
                trials = connection.execute(select(trial).where(trial.c.id.in_(new))).all()
                self._trials |= {
                    row.id: (
                        trial_label(row.case, row.condition),
                        (row.case_digest, row.condition_digest),
                    )
                    for row in trials
                }
        return {
            row.phone: Lease(
                sweep=row.sweep,
                trial=row.trial,
                repeat=row.repeat,
                block=row.block,
                attempt=row.attempt,
                until=row.lease_until,
                label=label,
                cell=cell,
            )
            for row in rows
            for label, cell in [self._trials.get(row.trial, (row.trial, ("", "")))]
        }


def phones_with_runs_left(db: Database, sweeps: Collection[str]) -> dict[str, set[str]]:
    """Return the phones with queued and running runs of each of these sweeps."""
    of_sweeps = (run.c.sweep.in_(sweeps), run.c.state.in_(_LEFT))
    phones: dict[str, set[str]] = {}
    for name, serial in db.rows(select(run.c.sweep, run.c.phone).where(*of_sweeps).distinct()):
        phones.setdefault(name, set()).add(serial)
    return phones


def runs_left(db: Database, sweep_id: str) -> dict[str, dict[tuple[str, str], int]]:
    """Count the runs that each phone has left in a sweep, by the digests of the cell."""
    cell = (trial.c.case_digest, trial.c.condition_digest)
    query = (
        select(run.c.phone, *cell, func.count().label("runs"))
        .join(trial, trial.c.id == run.c.trial)
        .where(run.c.sweep == sweep_id, run.c.state.in_(_LEFT))
        .group_by(run.c.phone, *cell)
    )
    left: dict[str, dict[tuple[str, str], int]] = {}
    for serial, case, condition, runs in db.rows(query):
        left.setdefault(serial, {})[case, condition] = runs
    return left


@dataclass(frozen=True)
class CellProgress:
    """One cell of a sweep's matrix, a case under a condition: its runs on all phones by state."""

    case: str
    condition: str
    runs: dict[RunState, int]
    void: int = 0
    suspect: int = 0
    value: float | None = None  # of the headline metric: the median of the phones' medians


class CellProgressCache:
    """The progress of every cell of one sweep; labels are read once."""

    def __init__(self, db: Database, sweep_id: str) -> None:
        self._db = db
        self._sweep = sweep_id
        self._labels: dict[tuple[str, str], tuple[str, str]] = {}  # in the order of their settings

    def read(self) -> tuple[CellProgress, ...]:
        """Return every cell with the states of its runs, in the order of their settings."""
        key = (trial.c.case_digest, trial.c.condition_digest)
        runs = (
            select(*key, run.c.state, func.count().label("count"))
            .join(trial, trial.c.id == run.c.trial)
            .where(run.c.sweep == self._sweep)
            .group_by(*key, run.c.state)
        )
        is_suspect = (report.c.status == ReportStatus.ACCEPTED) & (
            report.c.judged != Validity.VALID
        )
        left_out = (
            select(*key, report.c.status, func.count().label("count"))
            .join(trial, trial.c.id == report.c.trial)
            .where(trial.c.sweep == self._sweep)
            .where((report.c.status == ReportStatus.VOID) | is_suspect)
            .group_by(*key, report.c.status)
        )
        with self._db.read() as connection:
            counts = connection.execute(runs).all()
            void, suspect = (
                {(row[0], row[1]): int(row[3]) for row in rows if row[2] == status}
                for rows in [connection.execute(left_out).all()]
                for status in (ReportStatus.VOID, ReportStatus.ACCEPTED)
            )
            cells: dict[tuple[str, str], dict[RunState, int]] = {}
            for case, condition, state, count in counts:
                cells.setdefault((case, condition), {})[RunState(state)] = count
            if cells.keys() - self._labels.keys():
                self._labels = _cell_labels(connection, self._sweep)
        return tuple(
            CellProgress(*self._labels[key], cells[key], void.get(key, 0), suspect.get(key, 0))
            for key in self._labels
            if key in cells
        )


def _cell_labels(connection: Any, sweep_id: str) -> dict[tuple[str, str], tuple[str, str]]:
    examples = (
        select(func.min(trial.c.id))
        .where(trial.c.sweep == sweep_id)
        .group_by(trial.c.case_digest, trial.c.condition_digest)
    )
    columns = (trial.c.case_digest, trial.c.condition_digest, trial.c.case, trial.c.condition)
    rows = connection.execute(select(*columns).where(trial.c.id.in_(examples))).all()
    known = [
        (key[0], key[1], Case.model_validate(key[2]), Condition.model_validate(key[3]))
        for key in rows
    ]
    known.sort(key=lambda each: _settings_order(each[2], each[3]))
    return {(first, second): (case.label, under.label) for first, second, case, under in known}


def _settings_order(case: Case, condition: Condition) -> list[Any]:
    """Return the key that sorts cells: low, mid and high clocks, small and large batches."""
    settings = cell_settings(case, condition)
    return [(name, value_order(name)(value)) for name, value in settings.items()]
