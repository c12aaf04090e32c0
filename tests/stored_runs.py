"""Puts measured runs into a store as the product does: submitted, leased, reported."""

from collections.abc import Mapping, Sequence

from orchestrator.analysis.measurements import MeasuredRun
from orchestrator.planning.trials import PlannedRun, Trial
from orchestrator.store import submission
from orchestrator.store.database import Database
from orchestrator.store.ingest import store_parcels
from tests.builders import a_faulty_report, a_report, an_announcement
from tests.leasing import lease_next
from workloads.protocol.base import digest_of, digest_of_bytes
from workloads.protocol.faults import RunnerFailed
from workloads.protocol.messages import Job, split_into_chunks


def store_runs(
    db: Database,
    runs: Sequence[MeasuredRun],
    name: str = "stored",
    telemetry: Mapping[tuple[str, int], bytes] | None = None,
    crashed: int = 0,
) -> str:
    """Store runs as one sweep, with the given telemetry; return the id of the sweep.

    The first repeats, as many as `crashed`, have a report of a crash instead.
    """
    sweep = f"sw-{digest_of(name)[:8]}"
    run_by_key = {(trial_id(sweep, run), run.repeat): run for run in runs}
    trials = {
        trial: Trial(trial, run.case, run.condition, run.phone)
        for (trial, _), run in run_by_key.items()
    }
    facts_by_phone = {run.phone: run.facts for run in runs}
    hosts = {run.phone: run.host for run in runs}
    for phone, facts in facts_by_phone.items():
        store_parcels(db, hosts[phone], [an_announcement(facts, hosts[phone])])
    planned = [
        PlannedRun(trial, repeat, run.block, run.position)
        for (trial, repeat), run in run_by_key.items()
    ]
    source = f"farm: 1\nname: {name}\n"
    row = {"id": sweep, "name": name, "source": source, "seed": 7}
    submission.submit(db, row, list(trials.values()), planned)
    blobs = {
        (trial_id(sweep, run), run.repeat): (telemetry or {}).get((run.trial, run.repeat))
        for run in runs
    }
    for _ in run_by_key:
        for _, job in lease_next(db, hosts, lease_timeout_s=30, now=2e9):
            key = job.run.trial, job.run.repeat
            if job.run.repeat < crashed:
                crash = RunnerFailed("the runner ended with signal 11")
                store_parcels(db, hosts[job.phone], [a_faulty_report(job, crash)])
            else:
                _report(db, job, run_by_key[key], blobs[key])
    return sweep


def trial_id(sweep: str, run: MeasuredRun) -> str:
    """Return a trial id that differs between sweeps."""
    return f"tr-{digest_of([sweep, run.trial])[:16]}"


def _report(db: Database, job: Job, run: MeasuredRun, blob: bytes | None) -> None:
    digest = digest_of_bytes(blob) if blob else None
    report = a_report(
        job,
        run.host,
        started_at=run.started_at,
        ended_at=run.ended_at,
        control=run.control,
        metrics=tuple(run.metrics.values()),
        verdict=run.verdict,
        applied=run.applied,
        telemetry=digest,
        chunks=1 if blob else 0,
    )
    chunks = split_into_chunks(digest, blob) if blob and digest else []
    store_parcels(db, run.host, [*chunks, report])
