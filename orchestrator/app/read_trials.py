"""Lists the trials of a sweep, and reads the reports on one of them."""

from dataclasses import dataclass

from orchestrator.app.control_sweeps import find_sweep
from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.operation import Role, operation
from orchestrator.decisions.states import RunState
from orchestrator.store import trial_queries
from orchestrator.store.trial_queries import AttemptReport, TrialSummary

__all__ = ["AttemptReport", "RunState", "TrialDetails", "TrialSummary", "list_trials", "show_trial"]


@dataclass(frozen=True)
class TrialDetails:
    """A trial, and every report on it in the order of arrival."""

    summary: TrialSummary
    reports: tuple[AttemptReport, ...]


@operation(Role.VIEWER)
def list_trials(
    lab: LabConnection,
    sweep: str,
    limit: int,
    state: RunState | None = None,
    phone: str | None = None,
) -> list[TrialSummary]:
    """List trials of a sweep: those with a run in a state, or of a phone (prefix of its serial)."""
    sweep_id = find_sweep(lab, sweep).id
    return trial_queries.trial_summaries(lab.store, sweep_id, limit, state, phone)


@operation(Role.VIEWER)
def show_trial(lab: LabConnection, prefix: str) -> TrialDetails:
    """Return the trial whose id begins with a prefix, with all reports on it."""
    trial_id = trial_queries.find_trial(lab.store, prefix)
    summary, reports = trial_queries.trial_reports(lab.store, trial_id)
    return TrialDetails(summary, tuple(reports))
