"""Notices and their delivery: a spool in the store, so that no notice is lost in a restart.

A notice about a change is stored in the transaction that makes the change. A condition is reported
when it begins, not again while it holds, and at most every ten minutes if it comes and goes.
"""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Select, delete, func, select, update

from orchestrator.store.database import Database, insert_new
from orchestrator.store.tables import notice, notice_delivery
from workloads.lab.service_settings import NoticeKind

REPEAT_INTERVAL_S = 600.0
FIRST_DELAY_S, DELAY_MAX_S = 5.0, 3600.0
GIVE_UP_AFTER_S = 3 * 86400.0
KEPT_S = 30 * 86400.0
TEXT_MAX, ERROR_MAX = 1000, 300
TARGET = "lab"  # a lab has one webhook or command

NoticeKey = tuple[NoticeKind, str]  # and its subject: a sweep, a phone or a host


class DeliveryState(StrEnum):
    """How far the delivery of a notice is."""

    WAITING = "waiting"
    SENT = "sent"
    GIVEN_UP = "given_up"


@dataclass(frozen=True)
class StoredNotice:
    """A notice, and how far its delivery is."""

    id: int
    kind: NoticeKind
    subject: str
    text: str
    raised_at_s: float
    cleared_at_s: float | None = None
    delivery: DeliveryState = DeliveryState.WAITING
    tries: int = 0
    error: str = ""  # of the last try


def _notices() -> Select[Any]:
    """Select notices of the kinds that this version knows, with their delivery."""
    of_notice = notice_delivery.c.notice == notice.c.id
    delivery = (notice_delivery.c.state, notice_delivery.c.tries, notice_delivery.c.error)
    return (
        select(notice, *delivery)
        .join(notice_delivery, of_notice & (notice_delivery.c.target == TARGET))
        .where(notice.c.kind.in_(list(NoticeKind)))
    )


def _stored_notice(row: Any) -> StoredNotice:
    return StoredNotice(
        id=row.id,
        kind=NoticeKind(row.kind),
        subject=row.subject,
        text=row.text,
        raised_at_s=row.raised_at_s,
        cleared_at_s=row.cleared_at_s,
        delivery=DeliveryState(row.state),
        tries=row.tries,
        error=row.error,
    )


def add_event(connection: Connection, kind: NoticeKind, subject: str, text: str) -> int:
    """Store a notice about something that is over at once; return its id."""
    now = time.time()
    row = {"kind": kind, "subject": subject, "text": text[:TEXT_MAX], "spread": False}
    times = {"raised_at_s": now, "cleared_at_s": now}
    added = notice.insert().values(row | times).returning(notice.c.id)
    number = int(connection.execute(added).scalar_one())
    _queue_deliveries(connection)
    return number


def _queue_deliveries(connection: Connection) -> None:
    """Queue the delivery of every notice that has none."""
    fresh = select(notice.c.id).where(~notice.c.spread).with_for_update()
    ids = list(connection.execute(fresh).scalars())
    new = {"target": TARGET, "state": DeliveryState.WAITING, "tries": 0, "next_try_s": 0.0}
    insert_new(connection, notice_delivery, [{"notice": n, "error": "", **new} for n in ids])
    connection.execute(update(notice).where(notice.c.id.in_(ids)).values(spread=True))


def new_conditions(
    found: Mapping[NoticeKey, str],
    open_now: Collection[NoticeKey],
    raised_at_s: Mapping[NoticeKey, float],
    now: float,
) -> dict[NoticeKey, str]:
    """Return the conditions that are reported now."""
    return {
        key: text
        for key, text in found.items()
        if key not in open_now
        and not 0 <= now - raised_at_s.get(key, -REPEAT_INTERVAL_S) < REPEAT_INTERVAL_S
    }


def update_conditions(db: Database, found: Mapping[NoticeKey, str], now: float) -> set[NoticeKey]:
    """Store the conditions that are new, and the end of those that are over; return the new."""
    recent = (notice.c.cleared_at_s.is_(None)) | (notice.c.raised_at_s > now - 3600)
    columns = (notice.c.kind, notice.c.subject, notice.c.raised_at_s, notice.c.cleared_at_s)
    rows = db.rows(select(*columns).where(recent).order_by(notice.c.id))
    held = {(row.kind, row.subject) for row in rows if row.cleared_at_s is None}
    raised_at_s = {(row.kind, row.subject): row.raised_at_s for row in rows}
    new, ended = new_conditions(found, held, raised_at_s, now), held - found.keys()
    if new or ended:
        _write_conditions(db, new, ended, now)
    return set(new)


def _write_conditions(
    db: Database, new: Mapping[NoticeKey, str], ended: Collection[NoticeKey], now: float
) -> None:
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
        _queue_deliveries(connection)
        old = select(notice.c.id).where(notice.c.cleared_at_s < now - KEPT_S)
        connection.execute(delete(notice_delivery).where(notice_delivery.c.notice.in_(old)))
        connection.execute(delete(notice).where(notice.c.cleared_at_s < now - KEPT_S))


def due_notices(db: Database, now: float) -> list[StoredNotice]:
    """Return the notices whose delivery should be tried now, oldest first."""
    waiting = notice_delivery.c.state == DeliveryState.WAITING
    due = _notices().where(waiting, notice_delivery.c.next_try_s <= now)
    return [_stored_notice(row) for row in db.rows(due.order_by(notice.c.id).limit(50))]


def note_delivery(db: Database, due: StoredNotice, error: str, now: float) -> DeliveryState:
    """Store the outcome of a try: sent, to be tried again later, or given up after days."""
    delay_s = min(FIRST_DELAY_S * 2 ** min(due.tries, 20), DELAY_MAX_S)
    state = DeliveryState.WAITING
    if not error:
        state = DeliveryState.SENT
    elif now - due.raised_at_s > GIVE_UP_AFTER_S:
        state = DeliveryState.GIVEN_UP
    same = (notice_delivery.c.notice == due.id, notice_delivery.c.target == TARGET)
    values = {"state": state, "tries": due.tries + 1, "next_try_s": now + delay_s}
    with db.write() as connection:
        changed = update(notice_delivery).where(*same)
        connection.execute(changed.values(**values, error=error[:ERROR_MAX]))
    return state


def count_waiting(db: Database) -> int:
    """Count the deliveries that are not done."""
    of_lab = notice_delivery.c.target == TARGET
    waiting = notice_delivery.c.state == DeliveryState.WAITING
    return int(db.value(select(func.count()).select_from(notice_delivery).where(of_lab, waiting)))


def latest_notices(db: Database, limit: int) -> list[StoredNotice]:
    """Return notices, newest first."""
    return [
        _stored_notice(row) for row in db.rows(_notices().order_by(notice.c.id.desc()).limit(limit))
    ]
