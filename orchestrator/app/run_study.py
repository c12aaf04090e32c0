"""Runs studies: their sweeps become runs of a lab, and the results become evidence for claims."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.analysis.measurements import NothingMatches
from orchestrator.app.app_errors import NoPhoneMatches
from orchestrator.app.control_sweeps import find_sweep
from orchestrator.app.export_results import incomplete_text, with_telemetry
from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.lab_status import read_lab_status
from orchestrator.app.operation import Role, operation
from orchestrator.app.screen.waiting_sweep import SweepWait, find_obstacles, obstacle_text
from orchestrator.app.submit_sweep import submit_sweep
from orchestrator.export.study_page import render_study_page
from orchestrator.planning.states import RunState
from orchestrator.store import phone_queries, results, sweep_queries
from orchestrator.store.database import Database
from orchestrator.study.claim_table import (
    HEADINGS,
    ClaimRow,
    any_simulated,
    blank_repeats,
    evaluate_claims,
    table_notes,
)
from orchestrator.study.evidence import StudyEvidence, collect_evidence
from orchestrator.study.experiment import PlannedCell, experiment_rows
from orchestrator.study.figure_panels import figure_panels
from orchestrator.study.group_answers import group_answers
from orchestrator.study.study_catalogue import Claim, Study, all_studies, find_study
from orchestrator.study.telemetry_metrics import TELEMETRY_METRICS
from orchestrator.study.topic_table import HEADINGS as TOPIC_HEADINGS
from orchestrator.study.topic_table import count_outcomes, topic_rows
from orchestrator.sweepfile.sweep_file import read_sweep
from orchestrator.sweepfile.workload_reader import FetchFile, fetch_no_file
from workloads.protocol.verdict import FAMILIES

__all__ = ["HEADINGS", "TOPIC_HEADINGS", "Claim", "all_studies", "blank_repeats"]
__all__ += ["count_outcomes", "group_answers", "table_notes", "topic_rows"]

FINISHED_POLL_S, PHONES_POLL_S = 0.5, 5.0


@dataclass(frozen=True)
class StudyAnswer:
    """The claims of a study compared with the evidence, and the report page."""

    study: Study
    rows: tuple[ClaimRow, ...]
    simulated: bool
    html: str
    incomplete: tuple[str, ...] = ()  # sweeps that are not finished
    failed_runs: int = 0
    waiting: tuple[str, ...] = ()  # what only a person can do to continue the sweeps


@operation(Role.OPERATOR)
def submit_study(
    lab: LabConnection, texts: Sequence[str], fetch: FetchFile = fetch_no_file
) -> tuple[list[str], dict[str, str]]:
    """Queue the sweeps of a study; return their ids, and the skipped phones with the reason.

    Few phones can run everything that a study needs; it is refused only if no phone can run any
    of it.
    """
    submitted: list[str] = []
    skipped: dict[str, str] = {}
    refused: NoPhoneMatches | None = None
    for text in texts:
        try:
            submission = submit_sweep(lab, text, fetch)
        except NoPhoneMatches as error:
            refused = error
            skipped |= error.skipped
            continue
        submitted.append(submission.sweep.id)
        skipped |= {item.phone: item.reason for item in submission.skipped}
    if not submitted and refused is not None:
        raise refused
    return submitted, skipped


@operation(Role.VIEWER)
def stored_study_sweeps(
    lab: LabConnection, texts: Sequence[str], fetch: FetchFile = fetch_no_file
) -> list[str]:
    """Return the ids of those sweeps that the store has."""
    wanted = [read_sweep(text, fetch).id for text in texts]
    stored = {summary.id for summary in sweep_queries.sweep_summaries(lab.store)}
    return [sweep_id for sweep_id in wanted if sweep_id in stored]


def wait_for_sweep(
    lab: LabConnection, sweep: str, on_poll: Callable[[], object], tell: Callable[[str], None]
) -> str:
    """Wait until a sweep has ended, or return what only a person can do to continue it."""
    looked_at, wait = time.monotonic(), SweepWait()
    while not find_sweep(lab, sweep).finished:
        on_poll()
        time.sleep(FINISHED_POLL_S)
        if time.monotonic() - looked_at > PHONES_POLL_S:
            looked_at = time.monotonic()
            view = read_lab_status(lab, sweep)
            if wait.is_stuck(view):
                return obstacle_text(find_obstacles(view))
            if text := wait.news(view):
                tell(text)
    return ""


@operation(Role.VIEWER)
def answer_stored_study(
    lab: LabConnection, name: str, sweeps: Sequence[str], skipped: Mapping[str, str]
) -> StudyAnswer:
    """Compare the claims of a study with what the store has of its sweeps."""
    study = find_study(name)
    evidence = _read_evidence(lab.store, study, sweeps, skipped)
    return _answer(study, evidence, lab.store, sweeps)


def _read_evidence(
    store: Database, study: Study, sweeps: Sequence[str], skipped: Mapping[str, str]
) -> StudyEvidence:
    """Return what the store has of a study's sweeps as evidence."""
    runs = [
        run for sweep in sweeps for run in results.measured_runs(store, sweep, include_void=True)
    ]
    outcomes = [outcome for sweep in sweeps for outcome in results.run_outcomes(store, sweep)]
    phones = {outcome.phone for outcome in outcomes} | set(skipped)
    known = {
        phone.serial: (phone.facts.model, phone.facts.provenance)
        for phone in phone_queries.known_phones(store)
        if phone.serial in phones
    }
    wanted = study.metrics & TELEMETRY_METRICS
    is_read = bool(wanted) or study.traced is not None
    counted = (run for run in runs if is_read and run.verdict.doubted != FAMILIES)
    recorded = with_telemetry(store, counted, [])
    return collect_evidence(runs, outcomes, recorded, skipped, known, study.traced, wanted)


def _answer(
    study: Study, evidence: StudyEvidence, store: Database, sweeps: Sequence[str]
) -> StudyAnswer:
    """Compare the claims of a study with evidence, and render the page."""
    rows = tuple(evaluate_claims(study, evidence))
    if not any(row.result for row in rows):
        reasons = dict.fromkeys(row.missing.text for row in rows if row.missing)
        raise NothingMatches(f"{study.name} has no evidence: {'; '.join(list(reasons)[:3])}")
    stored = [sweep_queries.sweep_summaries(store, name) for name in sweeps]
    summaries = [item for found in stored for item in found]
    incomplete = [
        f"{item.name}: {incomplete_text(item)}" for item in summaries if not item.finished
    ]
    rates = [
        value
        for observation in evidence.observations
        if observation.metric == "readings_per_s"
        for value in observation.values
    ]
    page = render_study_page(
        study,
        rows,
        [(figure, figure_panels(figure, evidence)) for figure in study.figures],
        experiment_rows(study.experiment, _planned_cells(store, sweeps), rates),
        sweeps,
        any_simulated(rows),
        " ".join(incomplete),
    )
    return StudyAnswer(
        study,
        rows,
        any_simulated(rows),
        page,
        tuple(incomplete),
        _failed_runs(store, sweeps),
    )


def _planned_cells(store: Database, sweeps: Sequence[str]) -> list[PlannedCell]:
    """Return the cells that some sweeps planned, with the number of their runs on a phone."""
    planned = [outcome for sweep in sweeps for outcome in results.run_outcomes(store, sweep)]
    runs = Counter(outcome.trial for outcome in planned)
    by_trial = {outcome.trial: outcome for outcome in planned}
    return [PlannedCell(o.case, o.condition, runs[trial]) for trial, o in by_trial.items()]


def _failed_runs(store: Database, sweeps: Sequence[str]) -> int:
    """Count failed runs; a run that memory or a missing GPU does not allow is an answer instead."""
    return sum(
        outcome.state is RunState.FAILED
        and outcome.memory_outcome is None
        and outcome.case.backend == "cpu"
        for sweep in sweeps
        for outcome in results.run_outcomes(store, sweep)
    )
