"""Leases: who may work on which phone, and until when. Every change here is one transaction.

Rows are locked in one order, here and in ingest (sweeps, phones, runs; each by its key), so that no
two transactions wait for each other.

The clock is the scheduler's alone. A lease that ends later than one could have been given just now
was given by a clock that was set back since; it is cut to its full length from now on.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, literal, select, tuple_, update
from sqlalchemy.exc import IntegrityError

from orchestrator.nouns import RunState, SweepState
from orchestrator.plan.poison import lost_with_its_lease
from orchestrator.store import casualties
from orchestrator.store.database import Database
from orchestrator.store.lines import MAY_WORK, Line, Pick, first_come, lines
from orchestrator.store.tables import host, phone, run, sweep, trial
from workloads.catalogue import Case
from workloads.condition import Condition
from workloads.fault import Blame
from workloads.messages import Event, Job, RunId

RENEWED_AT_ONCE = 250  # rows lie scattered: a thousand of them are as many pages to write

# Statements of the busy path are built once; building one costs as much as running it.
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
_PLACE = (
    update(run)
    .where(run.c.id == bindparam("run_id"), run.c.chosen.is_(None))
    .values(
        rank=run.c.rank + bindparam("shift"),
        position=run.c.position + bindparam("shift"),
        chosen=bindparam("order"),
    )
)
# Written out, not bound: only so does SQLite use the index of leases, which is small.
_IS_LEASED = run.c.state == literal(str(RunState.LEASED), literal_execute=True)
_UNDER_WAY = select(
    *(run.c.id, run.c.trial, run.c.repeat, run.c.attempt),
    *(run.c.phone, run.c.host, run.c.lease_until, run.c.unwanted),
).where(_IS_LEASED)
_RENEW = (
    update(run)
    .where(run.c.id == bindparam("run_id"), run.c.attempt == bindparam("of"))
    .where(run.c.state == RunState.LEASED)
    .values(lease_until=bindparam("until"))
)
_FENCE = update(phone).where(phone.c.serial == bindparam("of")).values(fence=phone.c.fence + 1)
_ACTIVE = (
    select(sweep.c.id)
    .where(sweep.c.id.in_(bindparam("sweeps", expanding=True)))
    .where(sweep.c.state == SweepState.ACTIVE)
    .order_by(sweep.c.id)
    # The first lease writes this row: two schedulers that shared it would wait for each other.
    .with_for_update(key_share=True)
)
_GOOD = (
    select(phone.c.serial)
    .where(phone.c.serial.in_(bindparam("serials", expanding=True)), MAY_WORK)
    .order_by(phone.c.serial)
    .with_for_update()
)
_LEASED = (
    select(
        *(run.c.trial, run.c.repeat, run.c.attempt, run.c.phone, run.c.host, run.c.sweep),
        *(trial.c.case, trial.c.condition, phone.c.fence, sweep.c.policy),
    )
    .join(trial, trial.c.id == run.c.trial)
    .join(phone, phone.c.serial == run.c.phone)
    .join(sweep, sweep.c.id == run.c.sweep)
    .where(run.c.id.in_(bindparam("ids", expanding=True)))
    .where(_IS_LEASED, run.c.lease_until == bindparam("until"))
)


def lease_next(
    db: Database,
    idle: Mapping[str, str],
    lease_s: float,
    now: float | None = None,
    choose: Callable[[Sequence[Line]], Sequence[Pick]] = first_come,
) -> list[tuple[str, Job]]:
    """Lease each idle phone (serial -> host) a run, and say which job goes to which host."""
    now = time.time() if now is None else now
    waiting = lines(db, idle, now) if idle else []
    picks = choose(waiting) if waiting else []
    return lease(db, picks, idle, lease_s, now) if picks else []


def lease(
    db: Database,
    picks: Sequence[Pick],
    host_of: Mapping[str, str],
    lease_s: float,
    now: float,
) -> list[tuple[str, Job]]:
    """Lease what was picked; nothing of it if another scheduler was faster with any of it."""
    until = now + lease_s
    try:
        with db.write() as connection:
            picks = _still_wanted(connection, picks, now)
            if not picks:
                return []
            leases = [
                {"run_id": pick.run, "at": host_of[pick.phone], "until": until} for pick in picks
            ]
            _follow(connection, [pick for pick in picks if pick.block is not None])
            connection.execute(_LEASE, leases)
            connection.execute(_FENCE, [{"of": pick.phone} for pick in picks])
            ids = [pick.run for pick in picks]
            rows = connection.execute(_LEASED, {"ids": ids, "until": until}).all()
            _begin_sweeps(connection, {row.sweep for row in rows}, now)
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
                telemetry=bool(row.policy.get("collect", {}).get("telemetry", True)),
            ),
        )
        for row in rows
    ]


def _still_wanted(connection: Connection, picks: Sequence[Pick], now: float) -> list[Pick]:
    """What somebody has paused, cancelled, reserved or quarantined since the look is not begun."""
    sweeps = connection.execute(_ACTIVE, {"sweeps": list({pick.sweep for pick in picks})})
    active = set(sweeps.scalars())
    phones = connection.execute(_GOOD, {"now": now, "serials": [pick.phone for pick in picks]})
    good = set(phones.scalars())
    return [pick for pick in picks if pick.sweep in active and pick.phone in good]


def _follow(connection: Connection, picks: Sequence[Pick]) -> None:
    """Put the runs of blocks that begin into the order that was chosen for each."""
    moves = [
        {"run_id": run_id, "order": pick.order, "shift": places[pick.order] - places[0]}
        for pick in picks
        if pick.block is not None
        for run_id, places in zip(pick.block.runs, pick.block.places, strict=True)
    ]
    if moves:
        connection.execute(_PLACE, moves)


def _begin_sweeps(connection: Connection, sweeps: Collection[str], now: float) -> None:
    new = (sweep.c.id.in_(sweeps), sweep.c.begun_at.is_(None))
    connection.execute(update(sweep).where(*new).values(begun_at=now))


def drained_hosts(db: Database) -> set[str]:
    """Hosts that get no runs."""
    with db.read() as connection:
        return set(connection.execute(select(host.c.name).where(host.c.drained)).scalars())


class UnderWay(NamedTuple):
    """An attempt that holds its phone, and until when."""

    id: int
    trial: str
    repeat: int
    attempt: int
    phone: str
    host: str
    until: float
    unwanted: bool

    @property
    def run(self) -> RunId:
        """Which run it is."""
        return RunId(trial=self.trial, repeat=self.repeat, attempt=self.attempt)


def under_way(db: Database) -> list[UnderWay]:
    """Every attempt that has a lease."""
    with db.read() as connection:
        return [UnderWay(*row) for row in connection.execute(_UNDER_WAY).all()]


def renew(
    db: Database, held: Iterable[UnderWay], running: Mapping[RunId, float], latest: float
) -> int:
    """Extend the leases of runs that heartbeats name, each until a moment of its own.

    A stale attempt renews nothing, and no lease ends later than one that is given now.
    """
    named = {(item.trial, item.repeat, item.attempt): until for item, until in running.items()}
    until_of = {}
    for each in held:
        wanted = max(each.until, named.get((each.trial, each.repeat, each.attempt), 0.0))
        if (until := min(wanted, latest)) != each.until:
            until_of[each] = until
    urgent = sorted(until_of, key=lambda each: each.until)[:RENEWED_AT_ONCE]
    rows = [
        {"run_id": each.id, "of": each.attempt, "until": until_of[each]}
        for each in sorted(urgent, key=lambda each: each.id)
    ]
    if rows:
        with db.write() as connection:
            connection.execute(_RENEW, rows)
    return len(rows)


def renew_all(db: Database, lease_s: float) -> None:
    """Extend every lease: after the scheduler itself was deaf, silence proves nothing.

    The time is told when the store has been locked: that alone may have taken longer than a lease.
    """
    with db.write() as connection:
        connection.execute(_UNDER_WAY.order_by(run.c.id).with_for_update(key_share=True))
        until = time.time() + lease_s
        connection.execute(update(run).where(_IS_LEASED).values(lease_until=until))


@dataclass(frozen=True)
class Expired:
    """An attempt whose lease ran out, and whatever else that led to."""

    run: RunId
    phone: str
    events: tuple[Event, ...] = ()


def expire(db: Database, now: float, begun: Collection[RunId] = ()) -> list[Expired]:
    """Put runs whose lease ran out back in the line; their next attempt fences this one off.

    Only an attempt that had begun, as far as anybody heard, can have died of its case.
    """
    over = (_IS_LEASED, run.c.lease_until < now)
    with db.write() as connection:
        gone = connection.execute(
            select(run, trial.c.case_digest, trial.c.stopped, trial.c.stopped_why)
            .join(trial, trial.c.id == run.c.trial)
            .where(*over)
            .order_by(run.c.id)
            .with_for_update(of=run, key_share=True)
        ).all()
        expired = []
        for row in gone:
            tries = {**row.tries, Blame.FARM: row.tries.get(Blame.FARM, 0) + 1}
            after: dict[str, object] = {
                "state": RunState.QUEUED,
                "tries": tries,
                "note": "the lease ran out",
            }
            if row.unwanted:
                after |= {"state": RunState.CANCELLED, "note": "cancelled", "unwanted": False}
            elif row.stopped:
                after |= {"state": RunState.SPARED, "note": row.stopped_why}
            # On PostgreSQL its report may have been stored since it was read: then it stays done.
            same = (run.c.id == row.id, run.c.attempt == row.attempt, *over)
            if connection.execute(update(run).where(*same).values(**after)).rowcount:
                lost = RunId(trial=row.trial, repeat=row.repeat, attempt=row.attempt)
                held = None
                if lost in begun:
                    dead = lost_with_its_lease(row.phone)
                    held = casualties.note_death(db, connection, lost, row.case_digest, dead)
                expired.append(Expired(lost, row.phone, (held,) if held is not None else ()))
    return expired


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
