"""The next run that every active sweep has for each phone that may work."""

from collections.abc import Collection
from typing import Any, NamedTuple

from sqlalchemy import Float, Select, and_, any_, bindparam, func, literal, or_, select, true

from orchestrator.planning.states import Health, RunState, SweepState
from orchestrator.store.database import Database
from orchestrator.store.tables import phone, run, sweep

PAUSE_MAX_S = 600.0  # a longer pause was set by a wrong clock, and is ignored


class NextRun(NamedTuple):
    """The first queued run that a sweep has for a phone."""

    phone: str
    sweep: str
    run: int
    trial: str
    rank: int  # in the queue of the phone


# Written out, not bound: only then does SQLite use the small index of leases.
IS_LEASED = literal(str(RunState.LEASED), literal_execute=True)
_NOW = bindparam("now", type_=Float)
_RESERVED = and_(
    phone.c.reserved_by != "", or_(phone.c.reserved_until == 0, phone.c.reserved_until > _NOW)
)
MAY_WORK = and_(phone.c.health == Health.GOOD, ~_RESERVED)


def _next_runs(dialect: str) -> Select[Any]:
    """Build the query so that its cost does not depend on the statistics of PostgreSQL.

    Sweeps with work are found first, then one run per phone and sweep, then their columns by id. A
    run whose pause has not passed yet is not overtaken: the order must not depend on time.
    """
    leased, queued = run.alias("leased"), run.alias("queued")
    has_lease = (
        select(leased.c.id)
        .where(leased.c.phone == phone.c.serial, leased.c.state == IS_LEASED)
        .correlate(phone)
        .exists()
    )
    has_work = (
        select(queued.c.id)
        .where(queued.c.sweep == sweep.c.id, queued.c.state == RunState.QUEUED)
        .correlate(sweep)
        .exists()
    )
    active = select(sweep.c.id).where(sweep.c.state == SweepState.ACTIVE, has_work)
    open_sweep = active.cte("open_sweep").prefix_with("MATERIALIZED", dialect="postgresql")
    first = run.alias("first")
    first_run = (
        select(first.c.id)
        .where(first.c.phone == phone.c.serial, first.c.state == RunState.QUEUED)
        .where(first.c.sweep == open_sweep.c.id)
        .order_by(first.c.rank, first.c.id)
        .limit(1)
        .correlate(phone, open_sweep)
        .scalar_subquery()
    )
    firsts = (
        select(first_run.label("first"))
        .select_from(phone.join(open_sweep, true()))
        .where(phone.c.serial.in_(bindparam("serials", expanding=True)))
        .where(MAY_WORK, ~has_lease)
    )
    due = or_(run.c.not_before <= _NOW, run.c.not_before > _NOW + PAUSE_MAX_S)
    columns = select(run.c.phone, run.c.sweep, run.c.id, run.c.trial, run.c.rank).where(due)
    if dialect == "postgresql":  # an array forces a look-up by id, also without statistics
        return columns.where(run.c.id == any_(func.array(firsts.scalar_subquery())))
    return columns.where(run.c.id.in_(firsts))


# Built once; building it costs as much as running it.
_NEXT_RUNS = {dialect: _next_runs(dialect) for dialect in ("sqlite", "postgresql")}


def next_runs(db: Database, serials: Collection[str], now: float) -> list[NextRun]:
    """Return the first run of every active sweep for each of these phones that may work."""
    with db.read() as connection:
        query = _NEXT_RUNS[connection.dialect.name]
        rows = connection.execute(query, {"now": now, "serials": list(serials)}).all()
    return [NextRun(*row) for row in rows]
