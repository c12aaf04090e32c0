"""Stores a submitted sweep: all its trials and runs in one transaction, or none."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection, func, select, update

from orchestrator.planning.states import RunState
from orchestrator.planning.trials import PlannedRun, Trial
from orchestrator.store import tables
from orchestrator.store.audit_log import AuditEntry, record_audit
from orchestrator.store.database import Database, PlainRow, analyze, bulk_insert_new, insert_new
from orchestrator.store.finished_sweeps import reopen
from orchestrator.store.tables import run, trial


@dataclass(frozen=True)
class SubmissionCounts:
    """The numbers of added rows; submitting a sweep again adds only what is missing."""

    sweep: str
    new_trials: int
    new_runs: int
    all_runs: int


def submit(
    db: Database,
    sweep: Mapping[str, object],
    trials: Sequence[Trial],
    planned: Sequence[PlannedRun],
    actor: str = "",
) -> SubmissionCounts:
    """Store a sweep, its trials and its runs, except those that are stored already.

    A submission by an actor that adds anything is recorded in the audit log.
    """
    phone_of = {item.id: item.phone for item in trials}
    now = datetime.now(UTC)
    row = {**sweep, "created_at": now}
    name = str(row["id"])
    with db.write() as connection:
        insert_new(connection, tables.sweep, [row])
        _update_policy(connection, sweep)
        reopen(connection, name)
        before = _counts(connection, name)
        last_rank = connection.execute(select(func.coalesce(func.max(run.c.rank), 0))).scalar_one()
        bulk_insert_new(connection, trial, _TRIAL, list(_trial_rows(name, trials)))
        runs = [_run_row(name, phone_of[item.trial], last_rank, item) for item in planned]
        bulk_insert_new(connection, run, _RUN, runs)
        after = _counts(connection, name)
        if after[1] - before[1] > ANALYZED_RUNS:
            analyze(connection, (trial, run))
        if actor and before != after:
            was, now_is = ({"trials": each[0], "runs": each[1]} for each in (before, after))
            undo = f"farm sweep cancel {name}"
            record_audit(connection, AuditEntry(now, actor, "submit", name, was, now_is, undo))
    return SubmissionCounts(name, after[0] - before[0], after[1] - before[1], len(planned))


ANALYZED_RUNS = 500  # new ones, after which PostgreSQL would choose wrong indexes for a minute
_TRIAL = (
    *("id", "sweep", "phone", "case", "case_digest", "condition", "condition_digest"),
    *("stop_rule", "stop_reason"),
)
_RUN = (
    *("trial", "repeat", "sweep", "phone", "block", "position", "rank"),
    *("state", "attempt", "host", "lease_until", "not_before", "tries", "note", "cancel_requested"),
)
_NEW_RUN: PlainRow = (str(RunState.QUEUED), 0, "", 0.0, 0.0, "{}", "", False)


def _counts(connection: Connection, sweep: str) -> tuple[int, int]:
    """Count the stored trials and runs of a sweep."""
    trials, runs = (
        connection.execute(
            select(func.count()).select_from(table).where(table.c.sweep == sweep)
        ).scalar_one()
        for table in (trial, run)
    )
    return trials, runs


def _run_row(sweep: str, phone: str, last_rank: int, item: PlannedRun) -> PlainRow:
    order = (item.block, item.position, last_rank + 1 + item.position)
    return (item.trial, item.repeat, sweep, phone, *order, *_NEW_RUN)


def _trial_rows(sweep: str, trials: Sequence[Trial]) -> Iterator[PlainRow]:
    """Yield the rows of trials; trials of a cell share case and condition: dump each once."""
    dumped: dict[int, tuple[str, str]] = {}
    for item in trials:
        for part in (item.case, item.condition):
            if id(part) not in dumped:
                dumped[id(part)] = (part.model_dump_json(), part.digest)
        case, condition = dumped[id(item.case)], dumped[id(item.condition)]
        yield (item.id, sweep, item.phone, *case, *condition, "", "")


def _update_policy(connection: Connection, sweep: Mapping[str, object]) -> None:
    """Update policy, owner, priority and deadline of a sweep that is submitted again."""
    names = ("policy", "owner", "priority", "deadline")
    values = {name: sweep[name] for name in names if name in sweep}
    if values:
        same = tables.sweep.c.id == sweep["id"]
        connection.execute(update(tables.sweep).where(same).values(**values))
