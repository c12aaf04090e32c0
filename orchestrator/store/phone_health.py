"""The health of phones: how reports, flaps and checks change it.

A phone is held after repeated failures or canary drift, after frequent disconnects, or when its
settings were not restored. A held phone gets no runs; a health check then returns it to service
or quarantines it until an operator releases it.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from time import time
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, delete, func, select, update

from orchestrator.planning.states import HELD_BEFORE, Health
from orchestrator.store.audit_log import AuditEntry, record_automatic
from orchestrator.store.database import Database, insert_and_count
from orchestrator.store.tables import command_result, phone
from workloads.protocol.faults import Blame, FaultKind
from workloads.protocol.limits import HOST_PHONES_MAX
from workloads.protocol.messages import CommandKind, CommandResult, Event, EventKind, Report
from workloads.protocol.metrics import Provenances
from workloads.protocol.phone_facts import PhoneFacts
from workloads.protocol.verdict import ReasonCode

_RESULT_COLUMNS = tuple(item.name for item in command_result.c if item.name != "received_at_s")
_HEALTH = (phone.c.health, phone.c.health_reason, phone.c.strikes)
_LOCKED = (
    select(phone.c.serial, phone.c.host, phone.c.facts_digest, *_HEALTH)
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


STRIKES_MAX = 3
FLAPS_MAX = 4
_DRIFT = frozenset({ReasonCode.CANARY_CHANGED, ReasonCode.CANARY_DRIFTED})


@dataclass(frozen=True)
class HealthState:
    """The health of a phone, the reason for it, and the number of consecutive strikes."""

    health: Health = Health.GOOD
    reason: str = ""
    strikes: int = 0


def health_after_report(state: HealthState, report: Report) -> HealthState:
    """Return the state after one more report; only a check brings a held phone back."""
    if state.health is not Health.GOOD:
        return state
    if report.restore_error is not None:
        reason = f"settings were not restored: {report.restore_error}"
        return HealthState(Health.HELD, reason, state.strikes + 1)
    strike = _strike(report)
    if strike is None:
        # A fault that the phone is not to blame for proves nothing: the strikes stay.
        return HealthState() if report.fault is None else state
    strikes = state.strikes + 1
    if strikes < STRIKES_MAX:
        return HealthState(Health.GOOD, "", strikes)
    return HealthState(Health.HELD, f"{strikes} failures in a row, the last: {strike}", strikes)


def health_after_flaps(state: HealthState, flaps: int) -> HealthState:
    """Return the state of a phone that was lost this often in the last ten minutes."""
    if state.health is not Health.GOOD or flaps < FLAPS_MAX:
        return state
    reason = f"disconnected {flaps} times in ten minutes"
    return HealthState(Health.HELD, reason, state.strikes)


def health_after_check(passed: bool, text: str) -> HealthState:
    """Return a checked phone to service, or quarantine it with the reason."""
    return HealthState() if passed else HealthState(Health.QUARANTINED, text)


def _strike(report: Report) -> str | None:
    """Return the text of what counts against the phone in a report, or None."""
    fault = report.fault
    if fault is None:
        reasons = report.verdict.reasons if report.verdict is not None else ()
        return next((reason.text for reason in reasons if reason.code in _DRIFT), None)
    if fault.blame is Blame.PHONE or fault.kind is FaultKind.SENSOR_MISSING:
        return str(fault)
    return None


class LockedPhone(NamedTuple):
    """The health of a phone, its host, and which metrics it was announced with."""

    health: HealthState
    host: str
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
        row.serial: LockedPhone(
            _health_state(row), row.host, _announced.get((row.serial, row.facts_digest))
        )
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
    """Update the health of phones that were lost often; return those that became held."""
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


def held_phones(db: Database) -> set[str]:
    """Return phones that wait for a check."""
    return set(
        db.values(select(phone.c.serial).where(phone.c.health.in_((Health.HELD, HELD_BEFORE))))
    )


def count_unhealthy(db: Database) -> dict[str, int]:
    """Count the phones that get no runs because of their health."""
    unhealthy = phone.c.health.not_in((Health.GOOD, Health.RETIRED))
    return dict(
        db.rows(select(phone.c.health, func.count()).where(unhealthy).group_by(phone.c.health))
    )


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
