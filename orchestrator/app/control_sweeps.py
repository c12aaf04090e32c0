"""Lists, shows and controls sweeps; lists the audit log."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from orchestrator.analysis.measurements import MeasuredRun
from orchestrator.analysis.verdict_counts import judgement_text
from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.operation import Role, operation
from orchestrator.planning.states import RunState, SweepState
from orchestrator.store import audit_log, results, sweep_actions, sweep_notes, sweep_queries
from orchestrator.store.audit_log import AuditEntry
from orchestrator.store.database import Database
from orchestrator.store.operator_change import Actor, OperatorChange
from orchestrator.store.sweep_notes import SweepNote
from orchestrator.store.sweep_queries import RunNote, SweepSummary
from orchestrator.store.verdict_totals import with_left_out
from orchestrator.sweepfile.policy import PRIORITY_MAX
from workloads.protocol.condition import HEADLINES
from workloads.protocol.faults import InvalidRequest

__all__ = ["PRIORITY_MAX", "SweepState", "judgement_text"]

ENTRIES_MAX = 10_000  # of the audit log, in one answer

SweepAction = Callable[[Database, str, Actor], OperatorChange]


@dataclass(frozen=True)
class SweepDetails:
    """A sweep with its file, its failed runs, and its accepted and void runs."""

    summary: SweepSummary
    source: str
    failures: tuple[RunNote, ...]
    runs: tuple[MeasuredRun, ...]


@operation(Role.VIEWER)
def list_sweeps(lab: LabConnection) -> list[SweepSummary]:
    """List all sweeps, newest first."""
    return with_left_out(lab.store, sweep_queries.sweep_summaries(lab.store))


@operation(Role.VIEWER)
def find_sweep(lab: LabConnection, name: str) -> SweepSummary:
    """Find a sweep by id, by a unique prefix of its id, or by name (the newest of that name)."""
    return sweep_queries.find_sweep(lab.store, name)


@operation(Role.VIEWER)
def show_sweep(lab: LabConnection, name: str, headlines: bool = False) -> SweepDetails:
    """Return a sweep with its failures and its results, of all metrics or of the headline ones."""
    metrics = frozenset(HEADLINES.values()) if headlines else ()
    (summary,) = with_left_out(lab.store, [find_sweep(lab, name)])
    return SweepDetails(
        summary,
        sweep_queries.sweep_source(lab.store, summary.id),
        tuple(sweep_queries.runs_in_state(lab.store, summary.id, RunState.FAILED)),
        tuple(results.measured_runs(lab.store, summary.id, True, metrics)),
    )


@operation(Role.VIEWER, changes=True)
def add_note(lab: LabConnection, name: str, text: str, dry_run: bool = False) -> OperatorChange:
    """Write a note on a sweep, for everybody who looks at it."""
    return sweep_notes.add_note(lab.store, find_sweep(lab, name).id, text, lab.actor(dry_run))


@operation(Role.VIEWER)
def list_notes(lab: LabConnection, name: str) -> list[SweepNote]:
    """List the notes on a sweep, the oldest first."""
    return sweep_notes.sweep_notes(lab.store, find_sweep(lab, name).id)


@operation(Role.OPERATOR)
def pause_sweep(
    lab: LabConnection, name: str, reason: str = "", dry_run: bool = False
) -> OperatorChange:
    """Start no more runs of a sweep; running ones finish."""
    return _change(lab, name, dry_run, partial(sweep_actions.pause, reason=reason))


@operation(Role.OPERATOR)
def resume_sweep(lab: LabConnection, name: str, dry_run: bool = False) -> OperatorChange:
    """Continue a paused or cancelled sweep."""
    return _change(lab, name, dry_run, sweep_actions.resume)


@operation(Role.OPERATOR)
def cancel_sweep(lab: LabConnection, name: str, dry_run: bool = False) -> OperatorChange:
    """Drop the queued runs of a sweep and stop the running ones; results are kept."""
    return _change(lab, name, dry_run, sweep_actions.cancel)


@operation(Role.OPERATOR)
def retry_sweep(lab: LabConnection, name: str, dry_run: bool = False) -> OperatorChange:
    """Queue the failed and blocked runs of a sweep again."""
    return _change(lab, name, dry_run, sweep_actions.retry)


@operation(Role.OPERATOR)
def set_sweep_priority(
    lab: LabConnection, name: str, priority: int, dry_run: bool = False
) -> OperatorChange:
    """Give a sweep a larger or smaller share of the lab."""
    if not 0 <= priority <= PRIORITY_MAX:
        raise InvalidRequest(f"a priority is a number from 0 to {PRIORITY_MAX}, not {priority}")
    return _change(lab, name, dry_run, partial(sweep_actions.set_priority, priority=priority))


@operation(Role.VIEWER)
def list_audit(lab: LabConnection, target: str | None = None, limit: int = 100) -> list[AuditEntry]:
    """List the operators' changes to one sweep, phone or host, or all of them; newest first."""
    return audit_log.audit_entries(lab.store, target, max(1, min(limit, ENTRIES_MAX)))


def publish_change(lab: LabConnection, change: OperatorChange) -> OperatorChange:
    """Publish the event of a change that was made; it wakes the scheduler."""
    if change.changed and not change.dry_run:
        lab.broker.publish_event(change.event)
    return change


def _change(lab: LabConnection, name: str, dry_run: bool, action: SweepAction) -> OperatorChange:
    lab.broker.check()
    sweep = find_sweep(lab, name)
    return publish_change(lab, action(lab.store, sweep.id, lab.actor(dry_run)))
