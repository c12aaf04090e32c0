"""The audit log: who changed what, when, and the command that undoes it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, delete, select

from orchestrator.store.database import Database, as_utc
from orchestrator.store.tables import audit
from workloads.text import safe_text

AUTOMATIC_MAX = 100  # entries per host or check, action and target


@dataclass(frozen=True)
class AuditEntry:
    """One change that an operator, or a budget, has made."""

    occurred_at: datetime
    actor: str
    action: str
    target: str
    before: dict[str, Any]
    after: dict[str, Any]
    undo: str | None  # None: it cannot be undone


def record_audit(connection: Connection, entry: AuditEntry) -> None:
    """Store an entry, in the transaction that makes the change."""
    row = vars(entry) | {"actor": safe_text(entry.actor, 100)}
    connection.execute(audit.insert(), [row])


def record_automatic(connection: Connection, entry: AuditEntry) -> None:
    """Store an entry that no person caused, and forget the oldest: hosts cause any number."""
    record_audit(connection, entry)
    same = [audit.c[name] == getattr(entry, name) for name in ("actor", "action", "target")]
    newest = select(audit.c.id).where(*same).order_by(audit.c.id.desc()).limit(AUTOMATIC_MAX)
    connection.execute(delete(audit).where(*same, audit.c.id.not_in(newest)))


def audit_entries(db: Database, target: str | None = None, limit: int = 100) -> list[AuditEntry]:
    """Return entries, newest first, about one sweep, phone or host, or about all."""
    query = select(audit).order_by(audit.c.id.desc()).limit(limit)
    if target is not None:
        query = query.where(audit.c.target == target)
    rows = db.rows(query)
    return [
        AuditEntry(
            *(as_utc(row.occurred_at), row.actor, row.action, row.target),
            *(row.before, row.after, row.undo),
        )
        for row in rows
    ]
