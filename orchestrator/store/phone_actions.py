"""Operators' actions on phones and hosts: reserve, tag, quarantine and drain them."""

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, select, update

from orchestrator.planning.states import Health, RunState
from orchestrator.store.database import Database, count_rows, insert_new
from orchestrator.store.operator_change import (
    Actor,
    ChangeText,
    OperatorChange,
    PlannedChange,
    Values,
    execute_change,
)
from orchestrator.store.phone_health import HealthState, set_health
from orchestrator.store.phone_queries import MOVED_BY_OPERATOR
from orchestrator.store.tables import host, phone, run
from workloads.protocol.faults import InvalidRequest
from workloads.text import safe_text
from workloads.units import count_text


def set_drained(
    db: Database, name: str, actor: Actor, drained: bool, reason: str = ""
) -> OperatorChange:
    """Send no more runs to a host, or send runs to it again; running runs finish."""
    action, undo = ("drain", " --off") if drained else ("undrain", "")

    def plan(connection: Connection) -> PlannedChange:
        row = connection.execute(select(host).where(host.c.name == name)).first()
        known = connection.execute(select(phone.c.serial).where(phone.c.host == name)).first()
        if row is None and known is None:
            shown = safe_text(name)
            raise InvalidRequest(f"there is no host '{shown}'; 'farm host list' shows all")
        running = count_rows(connection, run, run.c.host == name, run.c.state == RunState.LEASED)
        finish = f"; {count_text(running, 'running run')} will finish" if running else ""

        def apply() -> None:
            values = {"drained": drained, "reason": safe_text(reason, 200)}
            insert_new(connection, host, [{"name": name, **values}])
            connection.execute(update(host).where(host.c.name == name).values(**values))

        return PlannedChange(
            {"drained": bool(row is not None and row.drained)},
            {"drained": drained},
            ChangeText(
                f"drained; no new runs start{finish}" if drained else "gets runs again",
                "is already drained" if drained else "is not drained",
                f"farm host drain {name}{undo}",
            ),
            apply,
            reason,
        )

    return execute_change(db, action, name, actor, plan)


def reserve(
    db: Database, serial: str, actor: Actor, person: str = "", until: float = 0.0, reason: str = ""
) -> OperatorChange:
    """Reserve a phone for a person (default: the user) until a time (0: until unreserved)."""
    person = safe_text(person or actor.name, 64).strip()
    if not person:
        raise InvalidRequest("the name of the person is empty; a phone is reserved for a person")
    end = f" until {datetime.fromtimestamp(until, UTC):%Y-%m-%d %H:%M} UTC" if until else ""
    values = {"reserved_by": person, "reserved_until": until}
    values |= {"reserved_reason": safe_text(reason, 200)}
    text = ChangeText(
        f"reserved for {person}{end}; a running run will finish",
        f"is already reserved for {person}{end}",
        f"farm phone reserve {serial} --off",
    )
    return _set_values(db, "reserve", serial, actor, values, text, reason)


def unreserve(db: Database, serial: str, actor: Actor) -> OperatorChange:
    """End the reservation of a phone."""
    with db.read() as connection:
        row = _phone_row(connection, serial)
    values = {"reserved_by": "", "reserved_until": 0.0, "reserved_reason": ""}
    undo = f"farm phone reserve {serial} --person {row.reserved_by!r}"
    text = ChangeText("gets runs again", "is not reserved", undo)
    return _set_values(db, "unreserve", serial, actor, values, text)


def tag(
    db: Database, serial: str, actor: Actor, add: Collection[str] = (), remove: Collection[str] = ()
) -> OperatorChange:
    """Add tags to a phone or remove them; sweeps select phones by tags."""
    with db.read() as connection:
        before = set(_phone_row(connection, serial).tags)
    after = sorted((before | set(add)) - set(remove))
    back = [*(f"-{name}" for name in set(after) - before), *(before - set(after))]
    undo = f"farm phone tag {serial} {' '.join(sorted(back))}"
    text = ChangeText(f"tags: {', '.join(after) or 'none'}", "already has these tags", undo)
    return _set_values(db, "tag", serial, actor, {"tags": after}, text)


def move(db: Database, serial: str, actor: Actor, to: str) -> OperatorChange:
    """Say which host has a phone; runs that another host has begun still count for that one."""
    with db.read() as connection:
        before = _phone_row(connection, serial).host
    text = ChangeText(
        f"belongs to {to} now", f"belongs to {to} already", f"farm phone move {serial} {before}"
    )
    return _set_values(db, MOVED_BY_OPERATOR, serial, actor, {"host": to}, text)


def quarantine(db: Database, serial: str, actor: Actor, reason: str) -> OperatorChange:
    """Give a phone no more runs until an operator releases it."""
    state = HealthState(Health.QUARANTINED, safe_text(reason, 400))
    text = ChangeText(
        "quarantined; a running run will finish",
        "is already quarantined for this reason",
        f"farm phone release {serial}",
    )
    return _change_health(db, "quarantine", serial, actor, state, text)


def retire(db: Database, serial: str, actor: Actor, reason: str) -> OperatorChange:
    """Take a phone out of the lab permanently; results stay, waiting runs are skipped."""

    def plan(connection: Connection) -> PlannedChange:
        row = _phone_row(connection, serial)
        waiting = (run.c.phone == serial, run.c.state.in_((RunState.QUEUED, RunState.BLOCKED)))
        runs = count_rows(connection, run, *waiting)
        skipped = f"; {count_text(runs, 'waiting run')} skipped" if runs else ""
        state = HealthState(Health.RETIRED, safe_text(reason, 400))

        def apply() -> None:
            set_health(connection, serial, state)
            note = "the phone was retired"
            connection.execute(
                update(run).where(*waiting).values(state=RunState.SKIPPED, note=note)
            )

        return PlannedChange(
            {"health": row.health, "reason": row.health_reason, "waiting": runs},
            {"health": str(state.health), "reason": state.reason, "waiting": 0},
            ChangeText(
                f"retired{skipped}; a running run will finish",
                "is already retired for this reason",
                f"farm phone release {serial}",
            ),
            apply,
        )

    return execute_change(db, "retire", serial, actor, plan)


def commission(db: Database, serial: str, actor: Actor, command: str) -> OperatorChange:
    """Record that a phone is commissioned by a command to its host."""
    text = ChangeText("is being commissioned; its canaries get new references", "", None)
    after = {"command": command}
    return execute_change(
        db, "commission", serial, actor, lambda _: PlannedChange({}, after, text, lambda: None)
    )


def release(db: Database, serial: str, actor: Actor) -> OperatorChange:
    """Return a held, quarantined or retired phone to service."""
    undo = f"farm phone quarantine {serial} --why ..."
    text = ChangeText("gets runs again", "is neither quarantined nor retired", undo)
    return _change_health(db, "release", serial, actor, HealthState(), text)


def _change_health(
    db: Database, action: str, serial: str, actor: Actor, state: HealthState, text: ChangeText
) -> OperatorChange:
    def plan(connection: Connection) -> PlannedChange:
        row = _phone_row(connection, serial)
        return PlannedChange(
            {"health": row.health, "reason": row.health_reason},
            {"health": str(state.health), "reason": state.reason},
            text,
            lambda: set_health(connection, serial, state),
        )

    return execute_change(db, action, serial, actor, plan)


def _set_values(
    db: Database,
    action: str,
    serial: str,
    actor: Actor,
    values: Values,
    text: ChangeText,
    reason: str = "",
) -> OperatorChange:
    def plan(connection: Connection) -> PlannedChange:
        row = _phone_row(connection, serial)._mapping
        return PlannedChange(
            {name: row[name] for name in values},
            values,
            text,
            lambda: connection.execute(
                update(phone).where(phone.c.serial == serial).values(**values)
            ),
            reason,
        )

    return execute_change(db, action, serial, actor, plan)


def _phone_row(connection: Connection, serial: str) -> Any:
    row = connection.execute(select(phone).where(phone.c.serial == serial)).first()
    if row is None:
        raise InvalidRequest(f"there is no phone '{serial}'; 'farm phone list' shows all")
    return row
