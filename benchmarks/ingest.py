"""Ingest: stored reports per second on SQLite and PostgreSQL, one by one and in batches.

    .venv/bin/python -m benchmarks.ingest [--reports 2000] [--batches 1 20 100]

Reports with 49 metrics, as a run on a phone has, of 60 phones on 10 hosts; they are parsed from
their text as the service parses them. PostgreSQL commits synchronously.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from orchestrator.dispatch.garbage_collection import freeze_gc
from orchestrator.dispatch.ingest_service import read_parcels
from orchestrator.store import submission
from orchestrator.store.database import Database
from orchestrator.store.ingest import Delivery, store_deliveries
from tests.builders import SIMULATED, a_phone, a_report, a_trial, an_announcement, planned_runs
from tests.conftest import new_database, postgres_server, store_url_of
from tests.leasing import lease_next
from workloads.protocol.messages import Job
from workloads.protocol.metrics import METRICS, Metric

PHONES, HOSTS, METRICS_PER_RUN = 60, 10, 49
METRIC_VALUES = tuple(
    Metric(name=f"{name}.1" if kind.per else name, value=1.5, unit=kind.unit, provenance=SIMULATED)
    for name, kind in list(METRICS.items())[:METRICS_PER_RUN]
)


def host_of(number: int) -> str:
    """Return the host of a phone."""
    return f"host-{number % HOSTS}"


def prepare(db: Database, runs: int) -> None:
    """Store phones, and a sweep with enough runs."""
    db.migrate()
    hosts = {f"PH{number}": host_of(number) for number in range(PHONES)}
    for serial, host in hosts.items():
        store_deliveries(db, [Delivery(host, [an_announcement(a_phone(serial), host)])])
    trials = [a_trial(0, serial) for serial in hosts]
    row = {"id": "sw-00000001", "name": "ingest", "source": "", "seed": 1}
    submission.submit(db, row, trials, planned_runs(trials, -(-runs // PHONES)))


def rounds(db: Database) -> Iterator[list[tuple[str, str]]]:
    """Lease a run to every phone, and yield hosts with the texts of the reports."""
    idle = {f"PH{number}": host_of(number) for number in range(PHONES)}
    while jobs := lease_next(db, idle, lease_timeout_s=3600):
        yield [(host, report_text(host, job)) for host, job in jobs]


def report_text(host: str, job: Job) -> str:
    """Return the text of a report on a job."""
    return a_report(job, host=host, metrics=METRIC_VALUES).model_dump_json()


def measure(db: Database, reports: int, batch: int) -> float:
    """Return the reports per second; the time of leasing does not count."""
    stored, spent_s = 0, 0.0
    waiting: list[tuple[str, str]] = []
    for ended in rounds(db):
        waiting += ended
        if len(waiting) < batch and stored + len(waiting) < reports:
            # Phones with a report that is not stored have no next run: smaller batches at the end.
            batch = min(batch, PHONES)
        while len(waiting) >= batch:
            part, waiting = waiting[:batch], waiting[batch:]
            started = time.perf_counter()
            deliveries = [Delivery(host, read_parcels(host, [text])[0]) for host, text in part]
            store_deliveries(db, deliveries)
            spent_s += time.perf_counter() - started
            stored += len(part)
        if stored >= reports:
            break
    return stored / spent_s


def main() -> None:
    """Measure both databases and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reports", type=int, default=2000)
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 20, 60])
    options = parser.parse_args()
    freeze_gc()
    with tempfile.TemporaryDirectory(prefix="farm-") as folder, postgres_server() as server:
        for batch in options.batches:
            urls = {
                "SQLite": f"sqlite:///{Path(folder) / f'{batch}.db'}",
                "PostgreSQL": new_database(store_url_of(server), f"ingest_{batch}"),
            }
            for name, url in urls.items():
                db = Database(url)
                prepare(db, options.reports)
                rate = measure(db, options.reports, batch)
                print(f"{name:11} transactions of {batch:3}: {rate:7.0f} reports/s", flush=True)
                db.close()


if __name__ == "__main__":
    main()
