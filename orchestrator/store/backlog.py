"""The backlog: sweeps go in, leases come out. Every change here is one transaction."""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Select, bindparam, func, select, tuple_, update
from sqlalchemy.exc import IntegrityError

from orchestrator.nouns import PlannedRun, RunState, Trial
from orchestrator.plan.health import Health
from orchestrator.store import tables
from orchestrator.store.database import Database
from orchestrator.store.tables import phone, run, trial
from workloads.catalogue import Case
from workloads.condition import Condition
from workloads.fault import Blame
from workloads.messages import Job, RunId


def _first_in_line() -> Select[Any]:
    """Phones, each with the first run in its line, unless it already holds a lease."""
    held = run.alias("held")
    has_lease = (
        select(held.c.id)
        .where(held.c.phone == phone.c.serial)
        .where(held.c.state == RunState.LEASED)
        .correlate(phone)
        .exists()
    )
    first = (
        select(run.c.id)
        .where(run.c.phone == phone.c.serial)
        .where(run.c.state == RunState.QUEUED)
        .where(run.c.not_before <= bindparam("now"))
        .where(~has_lease)
        .order_by(run.c.rank, run.c.id)
        .limit(1)
        .correlate(phone)
        .scalar_subquery()
    )
    some = phone.c.serial.in_(bindparam("serials", expanding=True))
    return select(phone.c.serial, first).where(some, phone.c.health == Health.GOOD)


# Statements of the busy path are built once; building one costs as much as running it.
_FIRST_IN_LINE = _first_in_line()
_LEASE = (
    update(run)
    .where(run.c.id == bindparam("run_id"))
    .where(run.c.state == RunState.QUEUED)
    .values(
        state=RunState.LEASED,
        attempt=run.c.attempt + 1,
        host=bindparam("at"),
        lease_until=bindparam("until"),
    )
)
_FENCE = update(phone).where(phone.c.serial == bindparam("of")).values(fence=phone.c.fence + 1)
_LEASED = (
    select(
        *(run.c.trial, run.c.repeat, run.c.attempt, run.c.phone, run.c.host),
        *(trial.c.case, trial.c.condition, phone.c.fence),
    )
    .join(trial, trial.c.id == run.c.trial)
    .join(phone, phone.c.serial == run.c.phone)
    .where(run.c.id.in_(bindparam("ids", expanding=True)))
    .where(run.c.state == RunState.LEASED, run.c.lease_until == bindparam("until"))
)


@dataclass(frozen=True)
class Submitted:
    """What a submission added; a sweep that was submitted before adds what is missing."""

    sweep: str
    new_trials: int
    new_runs: int
    all_runs: int


def submit(
    db: Database,
    sweep: Mapping[str, object],
    trials: Sequence[Trial],
    planned: Sequence[PlannedRun],
) -> Submitted:
    """Store a sweep and its runs, unless they are there already."""
    phone_of = {item.id: item.phone for item in trials}
    row = {**sweep, "created_at": datetime.now(UTC)}
    with db.write() as connection:
        db.insert_new(connection, tables.sweep, [row])
        new_trials = db.insert_and_count(
            connection, trial, [_trial_row(row, item) for item in trials]
        )
        last = connection.execute(select(func.coalesce(func.max(run.c.rank), 0))).scalar_one()
        new_runs = db.insert_and_count(
            connection,
            run,
            [
                {
                    "trial": item.trial,
                    "repeat": item.repeat,
                    "sweep": row["id"],
                    "phone": phone_of[item.trial],
                    "block": item.block,
                    "position": item.position,
                    "rank": last + 1 + item.position,
                    "state": RunState.QUEUED,
                    "attempt": 0,
                    "host": "",
                    "lease_until": 0.0,
                    "not_before": 0.0,
                    "tries": {},
                    "note": "",
                    "places": list(item.places),
                    "chosen": None if len(item.places) > 1 else 0,
                }
                for item in planned
            ],
        )
    return Submitted(str(row["id"]), new_trials, new_runs, len(planned))


def _trial_row(sweep: Mapping[str, object], item: Trial) -> dict[str, object]:
    return {
        "id": item.id,
        "sweep": sweep["id"],
        "phone": item.phone,
        "case": item.case.model_dump(mode="json"),
        "case_digest": item.case.digest,
        "condition": item.condition.model_dump(mode="json"),
        "condition_digest": item.condition.digest,
    }


def renew(db: Database, running: Iterable[RunId], until: float) -> int:
    """Extend the leases of runs that a heartbeat names; a stale attempt renews nothing."""
    rows = [{"t": item.trial, "r": item.repeat, "a": item.attempt} for item in running]
    if not rows:
        return 0
    same = (
        (run.c.trial == bindparam("t"))
        & (run.c.repeat == bindparam("r"))
        & (run.c.attempt == bindparam("a"))
        & (run.c.state == RunState.LEASED)
    )
    with db.write() as connection:
        return connection.execute(update(run).where(same).values(lease_until=until), rows).rowcount


def renew_all(db: Database, until: float) -> None:
    """Extend every lease: after the scheduler itself was deaf, silence proves nothing."""
    with db.write() as connection:
        connection.execute(
            update(run).where(run.c.state == RunState.LEASED).values(lease_until=until)
        )


def expire(db: Database, now: float) -> list[tuple[RunId, str]]:
    """Put runs whose lease ran out back in the line; their next attempt fences this one off."""
    with db.write() as connection:
        gone = connection.execute(
            select(run.c.id, run.c.trial, run.c.repeat, run.c.attempt, run.c.phone, run.c.tries)
            .where(run.c.state == RunState.LEASED)
            .where(run.c.lease_until < now)
        ).all()
        expired = []
        for row in gone:
            tries = {**row.tries, Blame.FARM: row.tries.get(Blame.FARM, 0) + 1}
            # On PostgreSQL its report may have been stored since it was read: then it stays done.
            same = (run.c.id == row.id, run.c.attempt == row.attempt, run.c.lease_until < now)
            changed = connection.execute(
                update(run)
                .where(*same, run.c.state == RunState.LEASED)
                .values(state=RunState.QUEUED, tries=tries, note="the lease ran out")
            )
            if changed.rowcount:
                expired.append(row)
    return [
        (RunId(trial=row.trial, repeat=row.repeat, attempt=row.attempt), row.phone)
        for row in expired
    ]


def lease_next(
    db: Database, idle: Mapping[str, str], lease_s: float, now: float | None = None
) -> list[tuple[str, Job]]:
    """Lease each idle phone (serial -> host) its next run, and say which job goes to which host."""
    now = time.time() if now is None else now
    until = now + lease_s
    with db.read() as connection:
        found = connection.execute(_FIRST_IN_LINE, {"now": now, "serials": list(idle)}).all()
    chosen = {serial: run_id for serial, run_id in found if run_id is not None}
    if not chosen:
        return []
    leases = [{"run_id": run_id, "at": idle[of], "until": until} for of, run_id in chosen.items()]
    try:
        with db.write() as connection:
            connection.execute(_LEASE, leases)
            connection.execute(_FENCE, [{"of": serial} for serial in chosen])
            ids = list(chosen.values())
            rows = connection.execute(_LEASED, {"ids": ids, "until": until}).all()
    except IntegrityError:
        return []  # another scheduler leased one of these phones first; the next tick sees it
    return [
        (
            row.host,
            Job(
                run=RunId(trial=row.trial, repeat=row.repeat, attempt=row.attempt),
                phone=row.phone,
                fence=row.fence,
                lease_s=lease_s,
                case=Case.model_validate(row.case),
                condition=Condition.model_validate(row.condition),
            ),
        )
        for row in rows
    ]


def unfinished(db: Database, runs: Collection[RunId]) -> set[RunId]:
    """Say which of these attempts the store does not take for finished."""
    if not runs:
        return set()
    with db.read() as connection:
        rows = connection.execute(
            select(run.c.trial, run.c.repeat, run.c.attempt, run.c.state).where(
                tuple_(run.c.trial, run.c.repeat).in_({(item.trial, item.repeat) for item in runs})
            )
        ).all()
    ended = (RunState.DONE, RunState.FAILED)
    done = {(row.trial, row.repeat, row.attempt) for row in rows if row.state in ended}
    return {item for item in runs if (item.trial, item.repeat, item.attempt) not in done}


def known_facts(db: Database) -> dict[str, str]:
    """Every phone the store has met, with the digest of its facts."""
    with db.read() as connection:
        return dict(connection.execute(select(phone.c.serial, phone.c.facts_digest)).all())
