"""Tokens of the API: each belongs to a person, has a role and an end; only a digest is stored."""

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Row, select, update

from orchestrator.store.audit_log import AuditEntry, record_audit
from orchestrator.store.database import Database, as_utc
from orchestrator.store.operator_change import (
    Actor,
    ChangeText,
    OperatorChange,
    PlannedChange,
    execute_change,
)
from orchestrator.store.tables import token
from workloads.protocol.base import digest_of_bytes
from workloads.protocol.faults import InvalidRequest
from workloads.text import safe_text

PERSON_MAX = 64


@dataclass(frozen=True)
class TokenRecord:
    """A token as it may be shown."""

    id: str
    person: str
    role: str
    created_at: datetime
    expires_at: datetime
    revoked: bool
    once: bool = False  # a code for a session of the page

    def is_valid(self, now: datetime) -> bool:
        """Return whether the token can be used."""
        return not self.revoked and now < self.expires_at


def add_token(
    db: Database,
    person: str,
    role: str,
    expires_at: datetime,
    actor: Actor,
    once: bool = False,
    prefix: str = "",
) -> tuple[TokenRecord, str]:
    """Create a token; return it with its secret, which cannot be read again."""
    person = safe_text(person, PERSON_MAX).strip()
    if not person:
        raise InvalidRequest("the name of the person is empty; a token belongs to a person")
    secret, now = prefix + secrets.token_urlsafe(32), datetime.now(UTC)
    added = TokenRecord(f"tk-{secrets.token_hex(4)}", person, role, now, expires_at, False, once)
    with db.write() as connection:
        row = {**vars(added), "digest": digest_of_bytes(secret.encode())}
        connection.execute(token.insert(), [row])
        after = {"person": person, "role": role, "expires_at": expires_at.isoformat()}
        undo = f"farm lab token revoke {added.id}"
        action = "add-login-code" if once else "add-token"
        entry = AuditEntry(now, actor.name, action, added.id, {}, after, undo)
        record_audit(connection, entry)
    return added, secret


def spend_code(db: Database, secret: str) -> TokenRecord | None:
    """Revoke a valid code and return it; None if it is unknown, expired or used."""
    now = datetime.now(UTC)
    same = (token.c.digest == digest_of_bytes(secret.encode(errors="replace")), token.c.once)
    valid = (token.c.revoked.is_(False), token.c.expires_at > now)
    with db.write() as connection:
        spent = connection.execute(update(token).where(*same, *valid).values(revoked=True))
        if spent.rowcount != 1:
            return None
        row = connection.execute(select(token).where(*same)).one()
    return _record(row)


def list_tokens(db: Database) -> list[TokenRecord]:
    """Return all tokens, newest first."""
    rows = db.rows(select(token).order_by(token.c.created_at.desc()))
    return [_record(row) for row in rows]


def find_token(db: Database, secret: str) -> TokenRecord | None:
    same = token.c.digest == digest_of_bytes(secret.encode(errors="replace"))
    return next((_record(row) for row in db.rows(select(token).where(same))), None)


def revoke_token(db: Database, token_id: str, actor: Actor) -> OperatorChange:
    """End a token at once."""

    def plan(connection: Connection) -> PlannedChange:
        same = token.c.id == token_id
        row = connection.execute(select(token).where(same)).first()
        if row is None:
            shown = safe_text(token_id, 40)
            raise InvalidRequest(f"there is no token '{shown}'; 'farm lab token list' shows all")
        return PlannedChange(
            {"revoked": bool(row.revoked)},
            {"revoked": True},
            ChangeText(f"the token of {row.person} is revoked", "is already revoked", None),
            lambda: connection.execute(update(token).where(same).values(revoked=True)),
        )

    return execute_change(db, "revoke-token", token_id, actor, plan)


def _record(row: Row[Any]) -> TokenRecord:
    ends = as_utc(row.created_at), as_utc(row.expires_at)
    return TokenRecord(row.id, row.person, row.role, *ends, bool(row.revoked), bool(row.once))
