"""Lists the trials of a sweep, and reads the reports on one of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.analysis.run_chart import ChartRow, RunChart, build_run_chart
from orchestrator.app.control_sweeps import find_sweep
from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.operation import Role, operation
from orchestrator.decisions.states import RunState
from orchestrator.store import results, trial_queries
from orchestrator.store.phone_queries import known_phones
from orchestrator.store.trial_queries import AttemptReport, TrialSummary
from workloads.protocol.faults import InvalidRequest
from workloads.protocol.telemetry import read_telemetry

__all__ = [
    "AttemptReport",
    "ChartRow",
    "RunChart",
    "RunState",
    "TrialDetails",
    "TrialSummary",
    "draw_runs",
    "list_trials",
    "show_trial",
]


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


@operation(Role.VIEWER)
def draw_runs(lab: LabConnection, reports: Sequence[AttemptReport]) -> list[RunChart | None]:
    """Return the chart of each run; None where no telemetry is stored or it cannot be read."""
    serials = {item.report.phone for item in reports}
    facts = {phone.serial: phone.facts for phone in known_phones(lab.store)}
    zones = {serial: facts[serial].cpu_zones for serial in serials & facts.keys()}
    charts: list[RunChart | None] = []
    for item in reports:
        report = item.report
        blob = results.telemetry_blob(lab.store, report.telemetry) if report.telemetry else None
        reasons = report.verdict.reasons if report.verdict else ()
        try:
            recorded = read_telemetry(blob) if blob is not None else None
        except InvalidRequest:
            recorded = None
        known = zones.get(report.phone, ())
        charts.append(build_run_chart(recorded, known, reasons) if recorded else None)
    return charts
