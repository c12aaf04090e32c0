"""The mechanism behind operators' changes: one transaction, recorded in the audit log.

Repeating a change has no effect and leaves no entry. A dry run returns the same description and
changes nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection

from orchestrator.store.audit_log import AuditEntry, record_audit
from orchestrator.store.database import Database
from workloads.protocol.messages import Event, EventKind
from workloads.text import safe_text

Values = Mapping[str, Any]
SWEEP_PREFIX = "sw-"


@dataclass(frozen=True)
class Actor:
    """Who makes a change, and whether it is a dry run."""

    name: str
    dry_run: bool = False


class ChangeText(NamedTuple):
    """A change as text: what it does, the text for no effect, and the command that undoes it."""

    summary: str
    unchanged: str  # continues "TARGET ..."
    undo: str | None  # a command; None: it cannot be undone


@dataclass(frozen=True)
class OperatorChange:
    """What an operator changed: the values before and after, and the texts about it."""

    action: str
    target: str
    before: Values
    after: Values
    text: ChangeText
    dry_run: bool = False

    @property
    def changed(self) -> bool:
        """Whether anything is different now, or would be after a dry run."""
        return self.before != self.after

    @property
    def lines(self) -> tuple[str, ...]:
        """The change as lines of text: what has changed, and how to undo it."""
        if not self.changed:
            return (f"{self.target} {self.text.unchanged}",)
        prefix = "dry run: " if self.dry_run else ""
        undo = "cannot be undone" if self.text.undo is None else f"undo with: {self.text.undo}"
        return (f"{prefix}{self.target}: {self.text.summary}", undo)

    @property
    def event(self) -> Event:
        """The event for watchers; it also wakes the scheduler."""
        sweep = self.target if self.target.startswith(SWEEP_PREFIX) else ""
        text = f"{self.target}: {self.text.summary}"
        return Event(occurred_at=datetime.now(UTC), kind=EventKind.CONTROL, text=text, sweep=sweep)


@dataclass(frozen=True)
class PlannedChange:
    """A change that is described but not yet made, and the function that makes it."""

    before: Values
    after: Values
    text: ChangeText
    apply: Callable[[], object]
    reason: str = ""  # that the operator gave, for the audit log


def execute_change(
    db: Database,
    action: str,
    target: str,
    actor: Actor,
    build: Callable[[Connection], PlannedChange],
) -> OperatorChange:
    """Plan a change, make it unless it is a dry run, and record it if anything changed."""
    with db.write() as connection:
        plan = build(connection)
        change = OperatorChange(action, target, plan.before, plan.after, plan.text, actor.dry_run)
        if change.changed and not actor.dry_run:
            plan.apply()
            said = {"reason": safe_text(plan.reason, 400)} if plan.reason else {}
            entry = AuditEntry(
                *(datetime.now(UTC), actor.name, action, target),
                *(dict(plan.before), dict(plan.after) | said, plan.text.undo),
            )
            record_audit(connection, entry)
    return change
