"""Notices and their deliveries: a spool in the store, so that no notice is lost in a restart.

A notice about a change is stored in the transaction that makes the change.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, delete, func, select, update

from orchestrator.decisions.health import Health
from orchestrator.decisions.notice_rules import NoticeKey, PhoneView, SweepView
from orchestrator.decisions.states import RunState, SweepState
from orchestrator.store.database import Database, insert_new
from orchestrator.store.tables import notice, notice_delivery, phone, run, sweep
from workloads.service_settings import NoticeKind, NoticeTarget

FIRST_DELAY_S, DELAY_MAX_S = 5.0, 3600.0
GIVE_UP_AFTER_S = 3 * 86400.0
KEPT_S = 30 * 86400.0
TEXT_MAX, ERROR_MAX = 1000, 300
DUE_MAX = 50
_SWEEP_KINDS = (NoticeKind.SWEEP_ENDED, NoticeKind.SWEEP_BLOCKED, NoticeKind.BUDGET_SPENT)


class DeliveryState(StrEnum):
    """How far a delivery is."""

    WAITING = "waiting"
    SENT = "sent"
    GIVEN_UP = "given_up"


@dataclass(frozen=True)
class NoticeDelivery:
    """How far the delivery to a target is."""

    target: str
    state: DeliveryState
    error: str  # of the last try

    @property
    def text(self) -> str:
        """The delivery in a few words."""
        return f"{self.target}: {self.state}" + f" ({self.error})" * bool(self.error)


@dataclass(frozen=True)
class StoredNotice:
    """A notice as people see it."""

    id: int
    kind: NoticeKind
    subject: str
    text: str
    raised_at_s: float
    cleared_at_s: float | None = None
    deliveries: tuple[NoticeDelivery, ...] = ()


@dataclass(frozen=True)
class DueDelivery:
    """A delivery that should be tried now."""

    notice: StoredNotice
    target: str
    tries: int


def add_event(connection: Connection, kind: NoticeKind, subject: str, text: str) -> int:
    """Store a notice about something that is over at once; return its id."""
    now = time.time()
    row = {"kind": kind, "subject": subject, "text": text[:TEXT_MAX], "spread": False}
    times = {"raised_at_s": now, "cleared_at_s": now}
    added = notice.insert().values(row | times).returning(notice.c.id)
    return int(connection.execute(added).scalar_one())


def open_notices(db: Database, now: float) -> tuple[set[NoticeKey], dict[NoticeKey, float]]:
    """Return the conditions that hold, and when those of the last hour were raised."""
    recent = (notice.c.cleared_at_s.is_(None)) | (notice.c.raised_at_s > now - 3600)
    columns = (notice.c.kind, notice.c.subject, notice.c.raised_at_s, notice.c.cleared_at_s)
    rows = db.rows(select(*columns).where(recent).order_by(notice.c.id))
    held = {(NoticeKind(row.kind), row.subject) for row in rows if row.cleared_at_s is None}
    return held, {(NoticeKind(row.kind), row.subject): row.raised_at_s for row in rows}


def update_notices(
    db: Database, new: Mapping[NoticeKey, str], ended: Collection[NoticeKey], now: float
) -> None:
    """Store new conditions, and the end of those that no longer hold; forget old notices."""
    rows = [
        {"kind": kind, "subject": subject, "text": text[:TEXT_MAX], "raised_at_s": now}
        for (kind, subject), text in new.items()
    ]
    with db.write() as connection:
        for kind, subject in ended:
            same = (notice.c.kind == kind, notice.c.subject == subject)
            over = update(notice).where(*same, notice.c.cleared_at_s.is_(None))
            connection.execute(over.values(cleared_at_s=now))
        insert_new(connection, notice, [row | {"spread": False} for row in rows])
        old = select(notice.c.id).where(notice.c.cleared_at_s < now - KEPT_S)
        connection.execute(delete(notice_delivery).where(notice_delivery.c.notice.in_(old)))
        connection.execute(delete(notice).where(notice.c.cleared_at_s < now - KEPT_S))


def spread_notices(db: Database, targets: Mapping[str, NoticeTarget]) -> None:
    """Give every new notice its deliveries, in one transaction with the mark that it has them."""
    if db.value(select(notice.c.id).where(~notice.c.spread).limit(1)) is None:
        return
    with db.write() as connection:
        fresh = connection.execute(select(notice).where(~notice.c.spread).with_for_update()).all()
        subjects = [row.subject for row in fresh if row.kind in _SWEEP_KINDS]
        asked = connection.execute(
            select(sweep.c.id, sweep.c.notify).where(sweep.c.id.in_(subjects))
        )
        names = {row.id: set(row.notify) for row in asked}
        rows = [
            {"notice": row.id, "target": name, "state": DeliveryState.WAITING}
            for row in fresh
            for name, target in targets.items()
            if _wants(target, name, row.kind, row.subject, names.get(row.subject, set()))
        ]
        filled = [row | {"tries": 0, "next_try_s": 0.0, "error": ""} for row in rows]
        insert_new(connection, notice_delivery, filled)
        ids = [row.id for row in fresh]
        connection.execute(update(notice).where(notice.c.id.in_(ids)).values(spread=True))


def _wants(
    target: NoticeTarget, name: str, kind: str, subject: str, requested: Collection[str]
) -> bool:
    if kind == NoticeKind.TEST:
        return subject == name
    if name in requested:
        return True
    return not target.only_requested and (not target.kinds or kind in target.kinds)


def due_deliveries(db: Database, now: float) -> list[DueDelivery]:
    """Return the oldest deliveries whose time has come."""
    state, next_try_s = notice_delivery.c.state, notice_delivery.c.next_try_s
    waiting = (state == DeliveryState.WAITING, next_try_s <= now)
    columns = (notice, notice_delivery.c.target, notice_delivery.c.tries)
    rows = db.rows(
        select(*columns)
        .join(notice, notice.c.id == notice_delivery.c.notice)
        .where(*waiting)
        .order_by(notice_delivery.c.next_try_s, notice.c.id)
        .limit(DUE_MAX)
    )
    return [DueDelivery(_notice(row), row.target, row.tries) for row in rows]


def note_delivery(db: Database, due: DueDelivery, error: str, now: float) -> DeliveryState:
    """Store the outcome of a try: sent, to be tried again later, or given up after days."""
    delay_s = min(FIRST_DELAY_S * 2 ** min(due.tries, 20), DELAY_MAX_S)
    state = DeliveryState.WAITING
    if not error:
        state = DeliveryState.SENT
    elif now - due.notice.raised_at_s > GIVE_UP_AFTER_S:
        state = DeliveryState.GIVEN_UP
    same = (notice_delivery.c.notice == due.notice.id, notice_delivery.c.target == due.target)
    values = {"state": state, "tries": due.tries + 1, "next_try_s": now + delay_s}
    with db.write() as connection:
        changed = update(notice_delivery).where(*same)
        connection.execute(changed.values(**values, error=error[:ERROR_MAX]))
    return state


def count_waiting(db: Database) -> int:
    """Count the deliveries that are not done."""
    waiting = notice_delivery.c.state == DeliveryState.WAITING
    return int(db.value(select(func.count()).select_from(notice_delivery).where(waiting)))


def latest_notices(db: Database, limit: int) -> list[StoredNotice]:
    """Return notices, newest first, with their deliveries."""
    with db.read() as connection:
        rows = connection.execute(select(notice).order_by(notice.c.id.desc()).limit(limit)).all()
        sent = connection.execute(
            select(notice_delivery).where(notice_delivery.c.notice.in_([row.id for row in rows]))
        ).all()
    found: dict[int, list[NoticeDelivery]] = {}
    for item in sent:
        delivery = NoticeDelivery(item.target, DeliveryState(item.state), item.error)
        found.setdefault(item.notice, []).append(delivery)
    return [_notice(row, found.get(row.id, ())) for row in rows]


def _notice(row: Any, deliveries: Sequence[NoticeDelivery] = ()) -> StoredNotice:
    what = (row.id, NoticeKind(row.kind), row.subject, row.text)
    return StoredNotice(*what, row.raised_at_s, row.cleared_at_s, tuple(deliveries))


def phones_of_lab(db: Database) -> dict[str, PhoneView]:
    """Return every phone that is not retired."""
    columns = (phone.c.serial, phone.c.host, phone.c.health, phone.c.health_reason)
    rows = db.rows(select(*columns).where(phone.c.health != Health.RETIRED))
    return {row.serial: PhoneView(row.host, row.health, row.health_reason) for row in rows}


def open_sweeps(db: Database, with_phones: bool) -> dict[str, SweepView]:
    """Return the active and the paused sweeps, with the phones of their queued runs if wanted."""
    states = (SweepState.ACTIVE, SweepState.PAUSED)
    columns = (*(sweep.c.id, sweep.c.name, sweep.c.state), sweep.c.paused_by, sweep.c.state_reason)
    of_run = (run.c.sweep, run.c.phone)
    with db.read() as connection:
        rows = connection.execute(select(*columns).where(sweep.c.state.in_(states))).all()
        active = [row.id for row in rows if row.state == SweepState.ACTIVE]
        mine = run.c.sweep.in_(active)
        blocked = connection.execute(
            select(run.c.sweep, func.count())
            .where(mine, run.c.state == RunState.BLOCKED)
            .group_by(run.c.sweep)
        ).all()
        queued = (run.c.state == RunState.QUEUED) | (run.c.state == RunState.LEASED)
        pairs = (
            connection.execute(select(*of_run).where(mine, queued).distinct()).all()
            if with_phones
            else []
        )
    phones: dict[str, set[str]] = {}
    for name, serial in pairs:
        phones.setdefault(name, set()).add(serial)
    counts = {row[0]: row[1] for row in blocked}
    return {
        row.id: SweepView(
            *(row.name, row.state, row.paused_by, row.state_reason),
            *(counts.get(row.id, 0), frozenset(phones.get(row.id, ()))),
        )
        for row in rows
    }
