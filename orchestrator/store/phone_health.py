"""The health of phones in the store: how reports, flaps and checks change it."""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from time import time
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, delete, select, update

from orchestrator.decisions.health import (
    FLAPS_MAX,
    Health,
    HealthState,
    health_after_check,
    health_after_flaps,
    health_after_report,
)
from orchestrator.store.audit_log import AuditEntry, record_automatic
from orchestrator.store.database import Database, insert_and_count
from orchestrator.store.tables import command_result, phone
from workloads.protocol.limits import HOST_PHONES_MAX
from workloads.protocol.messages import CommandKind, CommandResult, Event, EventKind, Report
from workloads.protocol.metrics import Provenances
from workloads.protocol.phone_facts import PhoneFacts

_RESULT_COLUMNS = tuple(item.name for item in command_result.c if item.name != "received_at_s")
_HEALTH = (phone.c.health, phone.c.health_reason, phone.c.strikes)
_LOCKED = (
    select(phone.c.serial, phone.c.facts_digest, *_HEALTH)
    .where(phone.c.serial.in_(bindparam("serials", expanding=True)))
    .order_by(phone.c.serial)
    .with_for_update(key_share=True)
)
_FACTS = select(phone.c.serial, phone.c.facts_digest, phone.c.facts).where(
    phone.c.serial.in_(bindparam("serials", expanding=True))
)
ANNOUNCED_MAX = 10_000
HOST_RESULTS_MAX = HOST_PHONES_MAX  # results of commands that are kept per host
_announced: dict[tuple[str, str], Provenances | None] = {}  # by serial and digest of the facts


class LockedPhone(NamedTuple):
    """The health of a phone, and which metrics it was announced with."""

    health: HealthState
    announced: Provenances | None


def lock_phones(connection: Connection, serials: Collection[str]) -> dict[str, LockedPhone]:
    """Read phones and lock their rows until the transaction ends.

    Facts are kept in memory while nothing has changed: they are longer than all the rest.
    """
    rows = connection.execute(_LOCKED, {"serials": sorted(serials)}).all()
    new = [row.serial for row in rows if (row.serial, row.facts_digest) not in _announced]
    if new:
        if len(_announced) > ANNOUNCED_MAX:
            _announced.clear()
        for row in connection.execute(_FACTS, {"serials": new}):
            stated = PhoneFacts.model_validate(row.facts).provenance
            _announced[row.serial, row.facts_digest] = stated
    return {
        row.serial: LockedPhone(_health_state(row), _announced.get((row.serial, row.facts_digest)))
        for row in rows
    }


def update_from_reports(
    connection: Connection, before: Mapping[str, HealthState], reports: Iterable[Report]
) -> dict[str, HealthState]:
    """Update the health of phones from their reports; return the phones whose health changed."""
    after = dict(before)
    for report in reports:
        if report.phone in after:
            after[report.phone] = health_after_report(after[report.phone], report)
    changed = {}
    for serial, state in after.items():
        if state != before[serial]:
            set_health(connection, serial, state)
            if state.health is not before[serial].health:
                changed[serial] = state
    return changed


def update_from_flaps(db: Database, flaps: Mapping[str, int]) -> dict[str, HealthState]:
    """Update the health of phones that were lost often; return those that became suspect."""
    frequent = {serial: count for serial, count in flaps.items() if count >= FLAPS_MAX}
    changed: dict[str, HealthState] = {}
    if not frequent:
        return changed
    with db.write() as connection:
        for serial, count in frequent.items():
            before = _health_of(connection, serial)
            if before is not None and (after := health_after_flaps(before, count)) != before:
                set_health(connection, serial, after)
                changed[serial] = after
    return changed


def store_command_result(connection: Connection, result: CommandResult) -> HealthState | None:
    """Store the result of a command; return the phone's new health if it changed."""
    row = {name: getattr(result, name) for name in _RESULT_COLUMNS} | {"received_at_s": time()}
    if not insert_and_count(connection, command_result, [row]):
        return None
    if not result.was_executed or result.command not in (CommandKind.CHECK, CommandKind.RESTORE):
        return None  # nothing else tells about a phone's health
    before = _health_of(connection, result.phone)
    # A restore that succeeded does not prove that the rest is well; one that failed is enough.
    if before is None or before.health is Health.RETIRED:
        return None
    if result.command is CommandKind.RESTORE and result.succeeded:
        return None
    if result.succeeded and before.health is Health.QUARANTINED:
        return None  # only an operator releases a quarantined phone
    after = health_after_check(result.succeeded, result.text)
    set_health(connection, result.phone, after)
    if after.health is before.health:
        return None
    _record_change(connection, result, before, after)
    return after


def forget_old_results(connection: Connection, host: str) -> None:
    """Delete all but the newest command results of a host; no client waits for older ones."""
    own = command_result.c.host == host
    newest = (
        select(command_result.c.id)
        .where(own)
        .order_by(command_result.c.received_at_s.desc(), command_result.c.id)
        .limit(HOST_RESULTS_MAX)
    )
    connection.execute(delete(command_result).where(own, command_result.c.id.not_in(newest)))


def _record_change(
    connection: Connection, result: CommandResult, before: HealthState, after: HealthState
) -> None:
    """Record in the audit log that a check changed a phone's health."""
    is_good = after.health is Health.GOOD
    undo = None if is_good else f"farm phone release {result.phone}"
    was, is_now = (
        {"health": str(state.health), "reason": state.reason[:600]} for state in (before, after)
    )
    action = "release" if is_good else "quarantine"
    entry = AuditEntry(
        datetime.now(UTC), str(result.command), action, result.phone, was, is_now, undo
    )
    record_automatic(connection, entry)


class CommandOutcome(NamedTuple):
    """The stored result of a command, and the digest of the file that came with it."""

    succeeded: bool
    text: str
    file: str | None = None


def find_command_result(db: Database, command_id: str) -> CommandOutcome | None:
    """Return the result of a command; None while there is none."""
    rows = db.rows(select(command_result).where(command_result.c.id == command_id))
    return CommandOutcome(bool(rows[0].succeeded), rows[0].text, rows[0].file) if rows else None


def suspect_phones(db: Database) -> set[str]:
    """Return phones that wait for a check."""
    return set(db.values(select(phone.c.serial).where(phone.c.health == Health.SUSPECT)))


def unhealthy_phones(db: Database) -> list[tuple[str, str, str]]:
    """Return phones that get no runs because of their health: serial, health and reason."""
    rows = db.rows(
        select(phone.c.serial, phone.c.health, phone.c.health_reason)
        .where(phone.c.health.not_in((Health.GOOD, Health.RETIRED)))
        .order_by(phone.c.health, phone.c.serial)
    )
    return [(row.serial, row.health, row.health_reason) for row in rows]


def health_event(serial: str, host: str, state: HealthState) -> Event:
    """Return the event that reports a phone's new health."""
    reason = f": {state.reason}" if state.reason else ""
    text = f"{serial} is {state.health}{reason}"
    return Event(
        occurred_at=datetime.now(UTC), kind=EventKind.HEALTH, text=text, phone=serial, host=host
    )


def _health_of(connection: Connection, serial: str) -> HealthState | None:
    row = connection.execute(select(*_HEALTH).where(phone.c.serial == serial)).first()
    return _health_state(row) if row is not None else None


def _health_state(row: Any) -> HealthState:
    return HealthState(Health(row.health), row.health_reason, row.strikes)


def set_health(connection: Connection, serial: str, state: HealthState) -> None:
    """Store a phone's health."""
    values = {"health": state.health, "health_reason": state.reason[:600], "strikes": state.strikes}
    connection.execute(update(phone).where(phone.c.serial == serial).values(**values))
