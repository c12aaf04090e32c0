"""Carrying a study out: its sweeps become runs of a lab, and those become evidence."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from orchestrator.dispatch.broker import Broker
from orchestrator.exits import NoPhoneMatches
from orchestrator.nouns import MeasuredRun, RunState
from orchestrator.plan.cases import Fetch, fetch_nothing
from orchestrator.plan.expand import Expansion
from orchestrator.plan.sweep import read_sweep
from orchestrator.store import queries
from orchestrator.store.database import Database
from orchestrator.study.evidence import Evidence, evidence_of
from orchestrator.submission import submit
from workloads.timeline import read_blob

LOOK_S = 0.5


def submit_all(
    texts: Sequence[str], db: Database, broker: Broker, fetch: Fetch = fetch_nothing
) -> tuple[list[str], dict[str, str]]:
    """Queue a study's sweeps; answer their ids, and which phones were left out, with the reason.

    Not every phone can do all that a study asks; it is refused only if none can do any of it.
    """
    sent: list[str] = []
    left_out: dict[str, str] = {}
    refused: NoPhoneMatches | None = None
    for text in texts:
        try:
            done = submit(text, db, broker, fetch)
        except NoPhoneMatches as error:
            refused = error
            continue
        sent.append(done.sweep.id)
        left_out |= whole_phones(done.expansion)
    if not sent and refused is not None:
        raise refused
    return sent, left_out


def whole_phones(expansion: Expansion) -> dict[str, str]:
    """The phones that a sweep leaves out, or some of whose cells it does, and why."""
    return {item.phone: item.reason for item in expansion.skipped}


def stored_ids(texts: Sequence[str], db: Database, fetch: Fetch = fetch_nothing) -> list[str]:
    """Those of a study's sweeps that a store has."""
    wanted = [read_sweep(text, fetch).id for text in texts]
    known = {item.id for item in queries.sweep_summaries(db)}
    return [each for each in wanted if each in known]


def wait_for(sweeps: Sequence[str], db: Database, look: Callable[[], object]) -> None:
    """Wait without a word until all runs are in."""
    for sweep in sweeps:
        while not queries.sweep_summaries(db, sweep)[0].finished:
            look()
            time.sleep(LOOK_S)


def gather(db: Database, sweeps: Sequence[str], left_out: Mapping[str, str]) -> Evidence:
    """Everything that a store has of some sweeps, as evidence."""
    runs = [run for sweep in sweeps for run in queries.measured_runs(db, sweep, void=True)]
    outcomes = [each for sweep in sweeps for each in queries.run_outcomes(db, sweep)]
    phones = {each.phone for each in outcomes} | set(left_out)
    known = {
        phone.serial: (phone.facts.model, phone.facts.provenance)
        for phone in queries.known_phones(db)
        if phone.serial in phones
    }
    return evidence_of(runs, outcomes, _told(db, runs), left_out, known)


def failures(db: Database, sweeps: Sequence[str]) -> int:
    """Runs that came to nothing; what memory or a GPU does not allow is an answer instead."""
    return sum(
        each.state is RunState.FAILED and each.fit is None and each.case.backend == "cpu"
        for sweep in sweeps
        for each in queries.run_outcomes(db, sweep)
    )


def _told(
    db: Database, runs: Sequence[MeasuredRun]
) -> Iterator[tuple[MeasuredRun, dict[str, Any]]]:
    for run in runs:
        blob = queries.telemetry(db, run.telemetry) if run.valid and run.telemetry else None
        if blob is not None:
            yield run, read_blob(blob)
