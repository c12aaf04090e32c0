"""Queries on phones: their facts, health, tags and reservations."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import select

from orchestrator.planning.states import Health, PhoneAvailability
from orchestrator.store.database import Database, as_utc
from orchestrator.store.tables import audit, phone
from workloads.protocol.messages import PhoneState, PhoneStatus
from workloads.protocol.phone_facts import PhoneFacts

# Actions of the audit log: a host announced the phone of another one, or an operator moved it.
MOVED, MOVED_BY_OPERATOR = "move", "move-phone"


@dataclass(frozen=True)
class Lease:
    """The run that a phone is leased for, and until when (epoch seconds) if no heartbeat comes."""

    sweep: str
    trial: str
    repeat: int
    block: int
    attempt: int
    until: float
    label: str
    cell: tuple[str, str] = ("", "")  # digests of case and condition


@dataclass(frozen=True)
class KnownPhone:
    """A phone that the store knows, with its latest heartbeat and its lease."""

    serial: str
    host: str
    facts: PhoneFacts
    status: PhoneStatus  # away while no host reports the phone
    last_seen_at: datetime | None = None
    health: Health = Health.GOOD
    health_reason: str = ""
    tags: tuple[str, ...] = ()
    reserved_by: str = ""
    reserved_until: float = 0.0
    reserved_reason: str = ""
    lease: Lease | None = None
    queued: int = 0  # runs of the shown sweep that this phone has still to do
    availability: PhoneAvailability | None = None  # None: heartbeats and leases were not read


def known_phones(db: Database) -> list[KnownPhone]:
    """Return every phone that was ever announced, without heartbeats."""
    rows = db.rows(select(phone).order_by(phone.c.serial))
    return [phone_from_row(row, PhoneFacts.model_validate(row.facts)) for row in rows]


def phone_from_row(row: Any, facts: PhoneFacts) -> KnownPhone:
    """Build a phone from its row and its facts, without a heartbeat."""
    return KnownPhone(
        serial=row.serial,
        host=row.host,
        facts=facts,
        status=PhoneStatus.model_construct(serial=row.serial, state=PhoneState.AWAY),
        last_seen_at=as_utc(row.last_seen_at),
        health=Health(row.health),
        health_reason=row.health_reason,
        tags=tuple(row.tags),
        reserved_by=row.reserved_by,
        reserved_until=row.reserved_until,
        reserved_reason=row.reserved_reason,
    )


class OwnedPhone(NamedTuple):
    """The host that a phone belongs to, and the digest of its facts."""

    host: str
    facts_digest: str


def owned_phones(db: Database) -> dict[str, OwnedPhone]:
    """Return the host and the digest of every phone that the store knows."""
    rows = db.rows(select(phone.c.serial, phone.c.host, phone.c.facts_digest))
    return {row.serial: OwnedPhone(row.host, row.facts_digest) for row in rows}


def previous_hosts(db: Database, serials: Collection[str]) -> dict[str, str]:
    """Return the hosts that these phones left, unless an operator moved them last."""
    moved = (audit.c.action.in_((MOVED, MOVED_BY_OPERATOR)), audit.c.target.in_(serials))
    found = {row.target: row for row in db.rows(select(audit).where(*moved).order_by(audit.c.id))}
    return {serial: str(row.before["host"]) for serial, row in found.items() if row.action == MOVED}


def phone_models(db: Database) -> dict[str, str]:
    """Return the model name of every phone."""
    rows = db.rows(select(phone.c.serial, phone.c.facts["model"].as_string()))
    return {row[0]: row[1] for row in rows}
