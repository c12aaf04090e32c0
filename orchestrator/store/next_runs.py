"""Lines: what every sweep has next for each phone that may work, and the orders of its blocks."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Float, Select, and_, bindparam, literal, or_, select, true, tuple_

from orchestrator.nouns import RunState, SweepState
from orchestrator.plan.health import Health
from orchestrator.store.database import Database
from orchestrator.store.tables import phone, run, sweep

PAUSE_MAX_S = 600.0  # no pause is longer: one that is was set by a clock that was wrong


@dataclass(frozen=True)
class Line:
    """The first run that a sweep has for a phone."""

    phone: str
    sweep: str
    run: int
    trial: str
    block: int
    rank: int
    undecided: bool  # several orders of its block were drawn, and none is chosen yet


@dataclass(frozen=True)
class Pick:
    """A run that is to be leased; with an order if its block begins with it."""

    phone: str
    sweep: str
    run: int
    block: "Drawn | None" = None
    order: int = 0


@dataclass(frozen=True)
class Drawn:
    """A block of a phone with all its drawn orders: each run's place in each of them."""

    sweep: str
    phone: str
    block: int
    runs: tuple[int, ...]
    trials: tuple[str, ...]
    places: tuple[tuple[int, ...], ...]
    is_last: bool

    def order(self, number: int) -> list[int]:
        """Indices of the runs in one of the drawn orders."""
        return sorted(range(len(self.runs)), key=lambda at: self.places[at][number])


_LEASED = literal(str(RunState.LEASED), literal_execute=True)
_NOW = bindparam("now", type_=Float)
_KEPT = and_(
    phone.c.reserved_by != "",
    or_(phone.c.reserved_until == 0, phone.c.reserved_until > _NOW),
)
MAY_WORK = and_(phone.c.health == Health.GOOD, ~_KEPT)


def _lines() -> Select[Any]:
    """For each phone that may work and each sweep that may use it: the first run in line."""
    held, mine = run.alias("held"), run.alias("mine")
    has_lease = (
        select(held.c.id)
        .where(held.c.phone == phone.c.serial, held.c.state == _LEASED)
        .correlate(phone)
        .exists()
    )
    has_work = (
        select(mine.c.id)
        .where(mine.c.sweep == sweep.c.id, mine.c.state == RunState.QUEUED)
        .correlate(sweep)
        .exists()
    )
    due = or_(run.c.not_before <= _NOW, run.c.not_before > _NOW + PAUSE_MAX_S)
    first = (
        select(run.c.id)
        .where(run.c.phone == phone.c.serial, run.c.state == RunState.QUEUED)
        .where(run.c.sweep == sweep.c.id, due)
        .order_by(run.c.rank, run.c.id)
        .limit(1)
        .correlate(phone, sweep)
        .scalar_subquery()
    )
    free = (
        select(phone.c.serial.label("serial"), sweep.c.id.label("sweep"), first.label("first"))
        .select_from(phone.join(sweep, true()))
        .where(phone.c.serial.in_(bindparam("serials", expanding=True)))
        .where(MAY_WORK, ~has_lease)
        .where(sweep.c.state == SweepState.ACTIVE, has_work)
        .subquery()
    )
    return select(
        *(run.c.id, run.c.phone, run.c.sweep, run.c.trial, run.c.block, run.c.rank, run.c.chosen)
    ).join(free, free.c.first == run.c.id)


_LINES = _lines()  # built once; building it costs as much as running it


def lines(db: Database, serials: Collection[str], now: float) -> list[Line]:
    """What every sweep that may run has for each of these phones, if it may work."""
    with db.read() as connection:
        rows = connection.execute(_LINES, {"now": now, "serials": list(serials)}).all()
    return [
        Line(row.phone, row.sweep, row.id, row.trial, row.block, row.rank, row.chosen is None)
        for row in rows
    ]


def first_come(waiting: Sequence[Line]) -> list[Pick]:
    """Each phone's oldest line, whatever its heat and whosever it is."""
    first: dict[str, Line] = {}
    for line in sorted(waiting, key=lambda each: (each.rank, each.run)):
        first.setdefault(line.phone, line)
    return [Pick(line.phone, line.sweep, line.run) for line in first.values()]


def drawn_blocks(db: Database, beginning: Sequence[Line]) -> list[Drawn]:
    """The drawn orders of blocks that are about to begin."""
    if not beginning:
        return []
    wanted = {(line.sweep, line.phone, line.block) for line in beginning}
    whole = tuple_(run.c.sweep, run.c.phone, run.c.block)
    fields = (run.c.id, run.c.sweep, run.c.phone, run.c.block, run.c.trial, run.c.places)
    later = run.alias("later")
    goes_on = (
        select(later.c.id)
        .where(later.c.phone == run.c.phone, later.c.state == RunState.QUEUED)
        .where(later.c.sweep == run.c.sweep, later.c.block > run.c.block)
        .correlate(run)
        .exists()
        .label("goes_on")
    )
    question = (
        select(*fields, goes_on)
        .where(run.c.phone.in_({line.phone for line in beginning}))
        .where(run.c.state == RunState.QUEUED, whole.in_(wanted), run.c.chosen.is_(None))
        .order_by(run.c.id)
    )
    blocks: dict[tuple[str, str, int], list[Any]] = {}
    with db.read() as connection:
        for row in connection.execute(question):
            blocks.setdefault((row.sweep, row.phone, row.block), []).append(row)
    return [
        Drawn(
            *key,
            runs=tuple(row.id for row in rows),
            trials=tuple(row.trial for row in rows),
            places=tuple(tuple(row.places) for row in rows),
            is_last=not rows[0].goes_on,
        )
        for key, rows in blocks.items()
    ]
