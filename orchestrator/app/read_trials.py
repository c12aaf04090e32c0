"""Lists the trials of a sweep, and reads the reports on one of them."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.analysis.run_chart import ChartRow, RunChart, build_run_chart
from orchestrator.analysis.stats import median
from orchestrator.analysis.trial_series import group_by_trial
from orchestrator.app.control_sweeps import find_sweep
from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.operation import Role, operation
from orchestrator.planning.states import RunState
from orchestrator.store import results, trial_queries
from orchestrator.store.metric_rows import metric_values
from orchestrator.store.phone_queries import known_phones
from orchestrator.store.trial_queries import AttemptReport, TrialSummary
from workloads.protocol.faults import InvalidRequest
from workloads.protocol.phone_facts import ThermalZone
from workloads.protocol.telemetry import read_telemetry
from workloads.protocol.verdict import Validity

__all__ = ["ChartRow"]

TRIALS_MAX = 100_001  # in one answer
_ONE_CHART = threading.Lock()  # a chart takes a hundred times the memory of its telemetry


@dataclass(frozen=True)
class TrialDetails:
    """A trial, and every report on it in the order of arrival, some with a chart."""

    summary: TrialSummary
    reports: tuple[AttemptReport, ...]
    charts: tuple[RunChart | None, ...]


@operation(Role.VIEWER)
def list_trials(
    lab: LabConnection,
    sweep: str,
    limit: int = 1000,
    state: RunState | None = None,
    phone: str | None = None,
    verdict: Validity | None = None,
) -> list[TrialSummary]:
    """List trials of a sweep: with a run in a state or verdict, or of a phone (serial's prefix)."""
    sweep_id = find_sweep(lab, sweep).id
    at_most = max(1, min(limit, TRIALS_MAX))
    return trial_queries.trial_summaries(lab.store, sweep_id, at_most, state, phone, verdict)


@dataclass(frozen=True)
class TrialResult:
    """What a trial has measured: the median of its runs that count."""

    summary: TrialSummary
    value: float | None  # of the headline metric
    runs: int
    source: str


@operation(Role.VIEWER, heavy=True)
def list_trial_results(
    lab: LabConnection, sweep: str, limit: int = 1000, label: str = ""
) -> list[TrialResult]:
    """List trials of a sweep, or of one of its cells by its label, with what they measured."""
    sweep_id = find_sweep(lab, sweep).id
    measured = {each.trial: each for each in group_by_trial(metric_values(lab.store, "", sweep_id))}
    found = []
    for summary in trial_queries.trial_summaries(lab.store, sweep_id, TRIALS_MAX):
        series = measured.get(summary.id)
        values = series.values if series else ()
        source = str(series.provenance or "") if series else ""
        if not label or summary.label == label:
            value = median(values) if values else None
            found.append(TrialResult(summary, value, len(values), source))
    return found[: max(1, min(limit, TRIALS_MAX))]


@operation(Role.VIEWER)
def show_trial(lab: LabConnection, prefix: str, draw: bool = False) -> TrialDetails:
    """Return the trial whose id begins with a prefix, with all reports on it.

    `draw` adds charts of the newest run, and of the runs that do not count.
    """
    trial_id = trial_queries.find_trial(lab.store, prefix)
    summary, reports = trial_queries.trial_reports(lab.store, trial_id)
    phones = known_phones(lab.store) if draw else []
    zones = next((phone.facts.cpu_zones for phone in phones if phone.serial == summary.phone), ())
    charts = [
        _draw(lab, item, zones) if draw and _is_drawn(item, reports[-1]) else None
        for item in reports
    ]
    return TrialDetails(summary, tuple(reports), tuple(charts))


def _is_drawn(item: AttemptReport, newest: AttemptReport) -> bool:
    verdict = item.verdict
    return item is newest or (verdict is not None and verdict.validity is not Validity.VALID)


def _draw(lab: LabConnection, item: AttemptReport, zones: Sequence[ThermalZone]) -> RunChart | None:
    """Return the chart of a run; None where no telemetry is stored or it cannot be read."""
    digest = item.report.telemetry
    blob = results.telemetry_blob(lab.store, digest) if digest else None
    if blob is None:
        return None
    with _ONE_CHART:
        try:
            recorded = read_telemetry(blob)
        except InvalidRequest:
            return None
        return build_run_chart(recorded, zones, item.verdict.reasons if item.verdict else ())
