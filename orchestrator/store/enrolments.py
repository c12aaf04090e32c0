"""Hosts that may use the broker of a lab: offered, enrolled once, revoked.

Of secrets only digests are kept: Redis takes the SHA-256 of a password, so that users of hosts can
be created again after the broker lost its data.
"""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from time import time
from typing import Any

from sqlalchemy import Connection, Row, select, update

from orchestrator.store.audit_log import AuditEntry, record_audit
from orchestrator.store.database import Database
from orchestrator.store.operator_change import (
    Actor,
    ChangeText,
    OperatorChange,
    PlannedChange,
    execute_change,
)
from orchestrator.store.tables import enrolment
from workloads.protocol.faults import InvalidRequest
from workloads.text import safe_text


class Access(StrEnum):
    """Whether a host may use the broker."""

    OFFERED = "offered"  # it has not joined yet
    ENROLLED = "enrolled"
    REVOKED = "revoked"


@dataclass(frozen=True)
class HostAccess:
    """A host that was added to the lab."""

    host: str
    access: Access
    enrolled_at_s: float  # 0: never
    certificate_until_s: float  # 0: it has none
    password_digest: str


def secret_digest(secret: str) -> str:
    """Return the SHA-256 of a secret, as Redis stores passwords."""
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


def offer(
    db: Database, host: str, secret: str, until_s: float, actor: Actor, renewed: bool
) -> None:
    """Let a host join with a secret, once, until a time; `renewed`: it was added before."""
    with db.write() as connection:
        row = _row(connection, host)
        if renewed and row is None:
            raise _unknown(host)
        if not renewed and row is not None and not row.revoked:
            raise InvalidRequest(
                f"{host} was added before; replace its secrets with: farm host add {host} --renew"
            )
        values = {"offer_digest": secret_digest(secret), "offer_until_s": until_s, "revoked": False}
        if row is None:
            connection.execute(enrolment.insert(), [{"host": host, **values}])
        else:
            connection.execute(update(enrolment).where(enrolment.c.host == host).values(**values))
        ends = datetime.fromtimestamp(until_s, UTC).isoformat(timespec="seconds")
        action, undo = "rotate-host" if renewed else "add-host", f"farm host revoke {host}"
        entry = AuditEntry(datetime.now(UTC), actor.name, action, host, {}, {"until": ends}, undo)
        record_audit(connection, entry)


def offered_host(db: Database, secret: str) -> str | None:
    """Return the host that may join with a secret now."""
    found = db.value(select(enrolment.c.host).where(*_is_offer(secret)))
    return None if found is None else str(found)


def accept(db: Database, secret: str, password_digest: str, certificate_until_s: float) -> bool:
    """Enrol the host with this secret, and spend the secret; False if it is spent already."""
    values = {
        "offer_digest": "",
        "password_digest": password_digest,
        "enrolled_at_s": time(),
        "certificate_until_s": certificate_until_s,
    }
    with db.write() as connection:
        host = connection.execute(select(enrolment.c.host).where(*_is_offer(secret))).scalar()
        statement = update(enrolment).where(*_is_offer(secret)).values(**values)
        if connection.execute(statement).rowcount != 1:
            return False
        entry = AuditEntry(datetime.now(UTC), str(host), "join", str(host), {}, {}, None)
        record_audit(connection, entry)
    return True


def revoke(db: Database, host: str, actor: Actor) -> OperatorChange:
    """End the access of a host."""

    def plan(connection: Connection) -> PlannedChange:
        row = _row(connection, host)
        if row is None:
            raise _unknown(host)
        ended = {"revoked": True, "offer_digest": "", "password_digest": ""}
        same = enrolment.c.host == host
        return PlannedChange(
            {"revoked": bool(row.revoked)},
            {"revoked": True},
            ChangeText("its access to the lab has ended", "is already revoked", None),
            lambda: connection.execute(update(enrolment).where(same).values(**ended)),
        )

    return execute_change(db, "revoke-host", host, actor, plan)


def host_accesses(db: Database) -> list[HostAccess]:
    """Return all hosts that were ever added, by name."""
    rows = db.rows(select(enrolment).order_by(enrolment.c.host))
    return [_access(row) for row in rows]


def lab_hosts(accesses: Sequence[HostAccess], named: Collection[str]) -> frozenset[str] | None:
    """Return the hosts that get runs; None: every host, because the lab names none."""
    if not accesses and not named:
        return None
    revoked = {item.host for item in accesses if item.access is Access.REVOKED}
    joined = {item.host for item in accesses if item.password_digest}
    return frozenset({*named, *joined} - revoked)


def _is_offer(secret: str) -> tuple[Any, ...]:
    now = time()
    digest = secret_digest(secret)
    return (enrolment.c.offer_digest == digest, enrolment.c.offer_until_s > now)


def _row(connection: Connection, host: str) -> Row[Any] | None:
    return connection.execute(select(enrolment).where(enrolment.c.host == host)).first()


def _access(row: Row[Any]) -> HostAccess:
    joined = Access.ENROLLED if row.password_digest else Access.OFFERED
    access = Access.REVOKED if row.revoked else joined
    ends = (row.enrolled_at_s, row.certificate_until_s)
    return HostAccess(row.host, access, *ends, row.password_digest)


def _unknown(host: str) -> InvalidRequest:
    return InvalidRequest(
        f"'{safe_text(host, 40)}' was never added to the lab; 'farm host list' shows all"
    )
