"""Notes that people write on a sweep: entries of the audit log, so each has its author and time."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from orchestrator.store.audit_log import audit_entries
from orchestrator.store.database import Database
from orchestrator.store.operator_change import (
    Actor,
    ChangeText,
    OperatorChange,
    PlannedChange,
    execute_change,
)
from workloads.protocol.faults import InvalidRequest
from workloads.text import safe_text

NOTE_CHARS_MAX, NOTES_MAX = 1000, 200
ACTION = "note"


@dataclass(frozen=True)
class SweepNote:
    """What a person wrote on a sweep."""

    written_at: datetime
    person: str
    text: str


def add_note(db: Database, sweep_id: str, text: str, actor: Actor) -> OperatorChange:
    """Add a note; it stays with the sweep."""
    note = " ".join(text.split())
    if not note or len(note) > NOTE_CHARS_MAX:
        raise InvalidRequest(f"a note has 1 to {NOTE_CHARS_MAX} characters, not {len(note)}")
    if len(sweep_notes(db, sweep_id)) >= NOTES_MAX:
        raise InvalidRequest(f"{sweep_id} has {NOTES_MAX} notes already; no more are kept")
    shown = safe_text(note, NOTE_CHARS_MAX)

    def plan(_: Connection) -> PlannedChange:
        said = ChangeText(f"note added: {shown}", "has this note", None)
        return PlannedChange({}, {"note": shown}, said, lambda: None)

    return execute_change(db, ACTION, sweep_id, actor, plan)


def sweep_notes(db: Database, sweep_id: str) -> list[SweepNote]:
    """Return the notes on a sweep, the oldest first."""
    entries = audit_entries(db, sweep_id, limit=100 * NOTES_MAX)
    return [
        SweepNote(entry.occurred_at, entry.actor, str(entry.after.get("note", "")))
        for entry in reversed(entries)
        if entry.action == ACTION
    ]
