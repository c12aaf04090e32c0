"""Carrying a study out: its sweeps become runs of a lab, and those become evidence."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from orchestrator.analysis.measurements import MeasuredRun
from orchestrator.app.app_errors import NoPhoneMatches
from orchestrator.app.submit_sweep import submit_sweep
from orchestrator.decisions.states import RunState
from orchestrator.dispatch.central_broker import CentralBroker
from orchestrator.planning.expand import Expansion
from orchestrator.store import phone_queries, results, sweep_queries
from orchestrator.store.database import Database
from orchestrator.study.evidence import StudyEvidence, collect_evidence
from orchestrator.sweepfile.sweep_file import read_sweep
from orchestrator.sweepfile.workload_reader import FetchFile, fetch_no_file
from workloads.protocol.telemetry import Telemetry, read_telemetry

LOOK_S = 0.5


def submit_studies(
    texts: Sequence[str], db: Database, broker: CentralBroker, fetch: FetchFile = fetch_no_file
) -> tuple[list[str], dict[str, str]]:
    """Queue a study's sweeps; answer their ids, and which phones were left out, with the reason.

    Not every phone can do all that a study asks; it is refused only if none can do any of it.
    """
    sent: list[str] = []
    left_out: dict[str, str] = {}
    refused: NoPhoneMatches | None = None
    for text in texts:
        try:
            done = submit_sweep(text, db, broker, fetch)
        except NoPhoneMatches as error:
            refused = error
            continue
        sent.append(done.sweep.id)
        left_out |= skipped_phones(done.expansion)
    if not sent and refused is not None:
        raise refused
    return sent, left_out


def skipped_phones(expansion: Expansion) -> dict[str, str]:
    """The phones that a sweep leaves out, or some of whose cells it does, and why."""
    return {item.phone: item.reason for item in expansion.skipped}


def stored_ids(texts: Sequence[str], db: Database, fetch: FetchFile = fetch_no_file) -> list[str]:
    """Those of a study's sweeps that a store has."""
    wanted = [read_sweep(text, fetch).id for text in texts]
    known = {item.id for item in sweep_queries.sweep_summaries(db)}
    return [each for each in wanted if each in known]


def wait_for(sweeps: Sequence[str], db: Database, look: Callable[[], object]) -> None:
    """Wait without a word until all runs are in."""
    for sweep in sweeps:
        while not sweep_queries.sweep_summaries(db, sweep)[0].finished:
            look()
            time.sleep(LOOK_S)


def gather_evidence(
    db: Database, sweeps: Sequence[str], left_out: Mapping[str, str]
) -> StudyEvidence:
    """Everything that a store has of some sweeps, as evidence."""
    runs = [run for sweep in sweeps for run in results.measured_runs(db, sweep, include_void=True)]
    outcomes = [each for sweep in sweeps for each in results.run_outcomes(db, sweep)]
    phones = {each.phone for each in outcomes} | set(left_out)
    known = {
        phone.serial: (phone.facts.model, phone.facts.provenance)
        for phone in phone_queries.known_phones(db)
        if phone.serial in phones
    }
    return collect_evidence(runs, outcomes, _told(db, runs), left_out, known)


def failed_runs_of(db: Database, sweeps: Sequence[str]) -> int:
    """Runs that came to nothing; what memory or a GPU does not allow is an answer instead."""
    return sum(
        each.state is RunState.FAILED and each.memory_outcome is None and each.case.backend == "cpu"
        for sweep in sweeps
        for each in results.run_outcomes(db, sweep)
    )


def _told(db: Database, runs: Sequence[MeasuredRun]) -> Iterator[tuple[MeasuredRun, Telemetry]]:
    for run in runs:
        blob = results.telemetry_blob(db, run.telemetry) if run.valid and run.telemetry else None
        if blob is not None:
            yield run, read_telemetry(blob)
