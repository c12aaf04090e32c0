"""Health in the store: what reports and checks make of a phone, and who is to be checked."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, bindparam, select, update

from orchestrator.plan.health import (
    FLAPS_MAX,
    Health,
    Standing,
    after_check,
    after_flaps,
    after_report,
)
from orchestrator.store import tables
from orchestrator.store.database import Database
from orchestrator.store.tables import checkup, phone
from workloads.fault import Refused
from workloads.messages import Checkup, Report

_STANDING = (phone.c.health, phone.c.health_why, phone.c.strikes)
_LOCKED = (
    select(phone.c.serial, *_STANDING)
    .where(phone.c.serial.in_(bindparam("serials", expanding=True)))
    .order_by(phone.c.serial)
    .with_for_update(key_share=True)
)


def mark(db: Database, serial: str, standing: Standing) -> None:
    """Set a phone's standing, by hand."""
    with db.write() as connection:
        if not set_standing(connection, serial, standing):
            raise Refused(f"there is no phone '{serial}'; 'farm phone list' shows all")


def locked_standings(connection: Connection, serials: Collection[str]) -> dict[str, Standing]:
    """Where these phones stand; they are locked until the transaction ends."""
    found = connection.execute(_LOCKED, {"serials": sorted(serials)})
    return {row.serial: _read(row) for row in found}


def note_reports(
    connection: Connection, before: Mapping[str, Standing], reports: Iterable[Report]
) -> dict[str, Standing]:
    """Let reports tell of their phones; answer those whose health has changed."""
    after = dict(before)
    for report in reports:
        if report.phone in after:
            after[report.phone] = after_report(after[report.phone], report)
    changed = {}
    for serial, standing in after.items():
        if standing != before[serial]:
            set_standing(connection, serial, standing)
            if standing.health is not before[serial].health:
                changed[serial] = standing
    return changed


def note_flaps(db: Database, flaps: Mapping[str, int]) -> dict[str, Standing]:
    """Let heartbeats tell of phones that come and go; answer those that became suspect."""
    often = {serial: count for serial, count in flaps.items() if count >= FLAPS_MAX}
    changed: dict[str, Standing] = {}
    if not often:
        return changed
    with db.write() as connection:
        for serial, count in often.items():
            now = _standing(connection, serial)
            if now is not None and (then := after_flaps(now, count)) != now:
                set_standing(connection, serial, then)
                changed[serial] = then
    return changed


def store_checkup(db: Database, connection: Connection, found: Checkup) -> Standing | None:
    """Keep what a check found; answer the phone's new standing if it changed."""
    row = {name: getattr(found, name) for name in ("id", "phone", "host", "verb", "good", "text")}
    if not db.insert_and_count(connection, checkup, [row | {"at": found.at}]):
        return None
    if found.verb == "tune":
        return None  # it says nothing of the phone's health
    now = _standing(connection, found.phone)
    # A restore that worked does not say that all else is well; one that failed says enough.
    if now is None or (found.verb == "restore" and found.good):
        return None
    if found.good and now.health is Health.QUARANTINED:
        return None  # it was somebody's decision, and only somebody takes it back
    then = after_check(found.good, found.text)
    set_standing(connection, found.phone, then)
    return then if then.health is not now.health else None


def find_checkup(db: Database, checkup_id: str) -> tuple[bool, str] | None:
    """What became of a command: whether all was well, and in words; None while it is not known."""
    with db.read() as connection:
        row = connection.execute(select(checkup).where(checkup.c.id == checkup_id)).first()
    return (bool(row.good), str(row.text)) if row is not None else None


def suspects(db: Database) -> set[str]:
    """Phones that wait for a check."""
    with db.read() as connection:
        rows = connection.execute(select(phone.c.serial).where(phone.c.health == Health.SUSPECT))
        return {row.serial for row in rows}


def ill_phones(db: Database) -> list[tuple[str, str, str]]:
    """Phones that get no runs: serial, health and why."""
    with db.read() as connection:
        rows = connection.execute(
            select(phone.c.serial, phone.c.health, phone.c.health_why)
            .where(phone.c.health != Health.GOOD)
            .order_by(phone.c.health, phone.c.serial)
        )
        return [(row.serial, row.health, row.health_why) for row in rows]


def _standing(connection: Connection, serial: str) -> Standing | None:
    found = connection.execute(select(*_STANDING).where(phone.c.serial == serial)).first()
    return _read(found) if found is not None else None


def _read(row: Any) -> Standing:
    return Standing(Health(row.health), row.health_why, row.strikes)


def set_standing(connection: Connection, serial: str, standing: Standing) -> bool:
    """Write a phone's standing down; say whether there is such a phone."""
    values = {
        "health": standing.health,
        "health_why": standing.why[:600],
        "strikes": standing.strikes,
    }
    return bool(
        connection.execute(
            update(tables.phone).where(phone.c.serial == serial).values(**values)
        ).rowcount
    )
