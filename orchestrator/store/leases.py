"""Leases: which run may use which phone, and until when. Every function is one transaction.

Rows are locked in one order, here and in ingest (sweeps, phones, runs; each by its key), so that no
two transactions wait for each other.

Lease times are those of the scheduler's clock. A lease that ends later than a new one would was
given before the clock was set back; it is cut to the full length of a lease.
"""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, select, update
from sqlalchemy.exc import IntegrityError

from orchestrator.planning.states import RunState, SweepState
from orchestrator.store import poison
from orchestrator.store.database import Database, is_of_runs, run_keys
from orchestrator.store.next_runs import (
    IS_LEASED,
    MAY_WORK,
    NextRun,
)
from orchestrator.store.poison import SOFT_WEIGHT, Crash
from orchestrator.store.tables import host, phone, run, sweep, trial
from workloads.catalogue import Case
from workloads.protocol.condition import Condition
from workloads.protocol.faults import Blame
from workloads.protocol.messages import Event, Job, RunId

RENEWALS_MAX = 250  # per transaction: rows are scattered, so each one is a page to write

# Statements of the busy path are built once; building one costs as much as running it.
_LEASE = (
    update(run)
    .where(run.c.id == bindparam("run_id"))
    .where(run.c.state == RunState.QUEUED)
    .values(
        state=RunState.LEASED,
        attempt=run.c.attempt + 1,
        host=bindparam("to_host"),
        lease_until=bindparam("until"),
    )
)
_LEASED = run.c.state == IS_LEASED
_LEASED_RUNS = select(
    *(run.c.id, run.c.trial, run.c.repeat, run.c.attempt),
    *(run.c.phone, run.c.host, run.c.lease_until, run.c.cancel_requested),
).where(_LEASED)
_RENEW = (
    update(run)
    .where(run.c.id == bindparam("run_id"), run.c.attempt == bindparam("same_attempt"))
    .where(run.c.state == RunState.LEASED)
    .values(lease_until=bindparam("until"))
)
_RAISE_FENCES = (
    update(phone)
    .where(phone.c.serial.in_(bindparam("leased", expanding=True)))
    .values(fence=phone.c.fence + 1)
)
_ACTIVE_SWEEPS = (
    select(sweep.c.id)
    .where(sweep.c.id.in_(bindparam("sweeps", expanding=True)))
    .where(sweep.c.state == SweepState.ACTIVE)
    .order_by(sweep.c.id)
    # The first lease writes this row: two schedulers that shared it would wait for each other.
    .with_for_update(key_share=True)
)
_WORKING_PHONES = (
    select(phone.c.serial)
    .where(phone.c.serial.in_(bindparam("serials", expanding=True)), MAY_WORK)
    .order_by(phone.c.serial)
    .with_for_update()
)
_NEW_LEASES = (
    select(
        *(run.c.trial, run.c.repeat, run.c.attempt, run.c.phone, run.c.host, run.c.sweep),
        *(trial.c.case, trial.c.condition, phone.c.fence, sweep.c.policy),
    )
    .join(trial, trial.c.id == run.c.trial)
    .join(phone, phone.c.serial == run.c.phone)
    .join(sweep, sweep.c.id == run.c.sweep)
    .where(run.c.id.in_(bindparam("ids", expanding=True)))
    .where(_LEASED, run.c.lease_until == bindparam("until"))
)


def lease(
    db: Database,
    chosen: Sequence[NextRun],
    host_of: Mapping[str, str],
    lease_timeout_s: float,
    now: float,
) -> list[tuple[str, Job]]:
    """Lease the chosen runs; return their hosts and jobs.

    None is leased if another scheduler leased one of the phones first.
    """
    until = now + lease_timeout_s
    try:
        with db.write() as connection:
            chosen = _still_allowed(connection, chosen, now)
            if not chosen:
                return []
            connection.execute(
                _LEASE,
                [
                    {"run_id": item.run, "to_host": host_of[item.phone], "until": until}
                    for item in chosen
                ],
            )
            connection.execute(_RAISE_FENCES, {"leased": [item.phone for item in chosen]})
            ids = [item.run for item in chosen]
            rows = connection.execute(_NEW_LEASES, {"ids": ids, "until": until}).all()
            new = (sweep.c.id.in_({row.sweep for row in rows}), sweep.c.started_at_s.is_(None))
            connection.execute(update(sweep).where(*new).values(started_at_s=now))
    except IntegrityError:
        return []  # another scheduler leased one of these phones first; the next tick sees it
    return [(row.host, _job(row, lease_timeout_s)) for row in rows]


def _job(row: Any, lease_timeout_s: float) -> Job:
    return Job(
        run=RunId(trial=row.trial, repeat=row.repeat, attempt=row.attempt),
        sweep=row.sweep,
        phone=row.phone,
        fence=row.fence,
        lease_timeout_s=lease_timeout_s,
        case=Case.model_validate(row.case),
        condition=Condition.model_validate(row.condition),
        telemetry=bool(row.policy.get("collect", {}).get("telemetry", True)),
    )


def _still_allowed(connection: Connection, chosen: Sequence[NextRun], now: float) -> list[NextRun]:
    """Drop what was paused, cancelled, reserved or quarantined after the choice was made."""
    sweeps = {item.sweep for item in chosen}
    phones = [item.phone for item in chosen]
    active = set(connection.execute(_ACTIVE_SWEEPS, {"sweeps": list(sweeps)}).scalars())
    working = connection.execute(_WORKING_PHONES, {"now": now, "serials": phones})
    good = set(working.scalars())
    return [
        item
        for item in chosen
        if item.sweep in active and item.phone in good  # guard: paused-before-lease
    ]


def drained_hosts(db: Database) -> dict[str, str]:
    """Return hosts that get no runs, with the reason."""
    rows = db.rows(select(host.c.name, host.c.reason).where(host.c.drained))
    return {row.name: row.reason for row in rows}


class LeasedRun(NamedTuple):
    """An attempt that has a lease, and until when."""

    id: int
    trial: str
    repeat: int
    attempt: int
    phone: str
    host: str
    until: float
    cancel_requested: bool

    @property
    def run(self) -> RunId:
        """The attempt."""
        return RunId(trial=self.trial, repeat=self.repeat, attempt=self.attempt)


def leased_runs(db: Database) -> list[LeasedRun]:
    """Return every attempt that has a lease."""
    return [LeasedRun(*row) for row in db.rows(_LEASED_RUNS)]


def renew(
    db: Database, leased: Iterable[LeasedRun], running: Mapping[RunId, float], latest: float
) -> int:
    """Extend the leases of runs that heartbeats name, each until its own time; return the number.

    A stale attempt renews nothing, and no lease ends later than a new one would.
    """
    named = {(item.trial, item.repeat, item.attempt): until for item, until in running.items()}
    until_of = {}
    for item in leased:
        wanted = named.get((item.trial, item.repeat, item.attempt), 0.0)  # guard: own-attempt
        until = min(max(item.until, wanted), latest)  # guard: clock-set-back
        if until != item.until:
            until_of[item] = until
    urgent = sorted(until_of, key=lambda item: item.until)[:RENEWALS_MAX]
    rows = [
        {"run_id": item.id, "same_attempt": item.attempt, "until": until_of[item]}
        for item in sorted(urgent, key=lambda item: item.id)
    ]
    if rows:
        with db.write() as connection:
            connection.execute(_RENEW, rows)
    return len(rows)


def renew_all(db: Database, lease_timeout_s: float) -> None:
    """Extend every lease, after an outage in which the scheduler read no heartbeats.

    The clock is read after the rows are locked: waiting for the lock can take longer than a lease.
    """
    with db.write() as connection:
        connection.execute(_LEASED_RUNS.order_by(run.c.id).with_for_update(key_share=True))
        until = time.time() + lease_timeout_s
        connection.execute(update(run).where(_LEASED).values(lease_until=until))


@dataclass(frozen=True)
class ExpiredLease:
    """An attempt whose lease expired, and the events that followed from it."""

    run: RunId
    phone: str
    host: str
    sweep: str
    events: tuple[Event, ...] = ()


def expire(
    db: Database, now: float, started: Collection[RunId] = (), alive: Collection[RunId] = ()
) -> list[ExpiredLease]:
    """Queue runs again whose lease has expired; the fence of the next attempt stops the old one.

    Only an attempt that a heartbeat has named can have crashed because of its case. An attempt that
    is alive keeps its lease, even if there was no time to renew it.
    """
    over = (_LEASED, run.c.lease_until < now)
    expired = []
    with db.write() as connection:
        rows = connection.execute(
            select(run, trial.c.case_digest, trial.c.stop_rule, trial.c.stop_reason)
            .join(trial, trial.c.id == run.c.trial)
            .where(*over)
            .order_by(run.c.id)
            .with_for_update(of=run, key_share=True)
        ).all()
        for row in rows:
            # On PostgreSQL its report may have been stored since it was read: then it stays done.
            same = (run.c.id == row.id, run.c.attempt == row.attempt, *over)
            values = _values_after_expiry(row)
            lost = RunId(trial=row.trial, repeat=row.repeat, attempt=row.attempt)
            if lost in alive:  # guard: alive-run-keeps-its-lease
                continue
            if not connection.execute(update(run).where(*same).values(**values)).rowcount:
                continue
            poisoned = None
            if lost in started:  # guard: job-never-arrived
                crash = Crash(row.phone, SOFT_WEIGHT, "the lease expired")
                poisoned = poison.record_crash(connection, lost, row.case_digest, crash)
            events = (poisoned,) if poisoned is not None else ()
            expired.append(ExpiredLease(lost, row.phone, row.host, row.sweep, events))
    return expired


def _values_after_expiry(row: Any) -> dict[str, object]:
    """Return the new values of a run whose lease has expired."""
    tries = {**row.tries, Blame.FARM: row.tries.get(Blame.FARM, 0) + 1}
    if row.cancel_requested:
        state, note = RunState.CANCELLED, "cancelled"
    elif row.stop_rule:
        state, note = RunState.SKIPPED, row.stop_reason
    else:
        state, note = RunState.QUEUED, "the lease expired"
    return {"state": state, "note": note, "tries": tries, "cancel_requested": False}


def phones_of_unstored_reports(db: Database, runs: Mapping[RunId, str]) -> set[str]:
    """Return the phones of those attempts whose report the store would still accept from this host.

    Until it is stored, a new attempt on the phone would make it too late.
    """
    if not runs:
        return set()
    keys = {(item.trial, item.repeat): (item.attempt, host) for item, host in runs.items()}
    columns = (run.c.trial, run.c.repeat, run.c.attempt, run.c.phone, run.c.host)
    open_states = (RunState.LEASED, RunState.QUEUED, RunState.BLOCKED)
    query = select(*columns).where(is_of_runs(run), run.c.state.in_(open_states))
    rows = db.rows(query, run_keys(keys))
    return {row.phone for row in rows if keys[row.trial, row.repeat] == (row.attempt, row.host)}


def unfinished_runs(db: Database, runs: Collection[RunId]) -> set[RunId]:
    """Return those of these attempts of which the store has no final report."""
    if not runs:
        return set()
    query = select(run.c.trial, run.c.repeat, run.c.attempt, run.c.state).where(is_of_runs(run))
    rows = db.rows(query, run_keys((item.trial, item.repeat) for item in runs))
    ended = (RunState.DONE, RunState.FAILED)
    done = {(row.trial, row.repeat, row.attempt) for row in rows if row.state in ended}
    return {item for item in runs if (item.trial, item.repeat, item.attempt) not in done}
