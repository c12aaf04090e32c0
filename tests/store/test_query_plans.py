"""No statement that is repeated while a lab works reads a whole table of runs or reports.

The store has fifty sweeps of equal size and knows it (ANALYZE). Every statement of ingest, tick,
status and `sweep show` is recorded while the product executes it, and explained afterwards.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import (
    ColumnElement,
    Connection,
    String,
    Table,
    cast,
    event,
    insert,
    literal,
    select,
    text,
    update,
)
from sqlalchemy.engine import Engine

from agent.host_broker import HostBroker
from orchestrator.app.control_sweeps import show_sweep
from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.lab_status import read_lab_status
from orchestrator.dispatch.central_broker import CentralBroker
from orchestrator.dispatch.job_queue import JobQueue
from orchestrator.dispatch.scheduler import Scheduler
from orchestrator.store import submission
from orchestrator.store.database import Database
from orchestrator.store.ingest import store_parcels
from orchestrator.store.leases import phones_of_unstored_reports, unfinished_runs
from orchestrator.store.tables import chunk, metric_value, report, run, sweep
from tests.builders import SIMULATED, a_phone, a_report, a_trial, an_announcement, planned_runs
from tests.leasing import lease_next
from workloads.lab.settings import Lab
from workloads.protocol.base import digest_of_bytes
from workloads.protocol.messages import (
    HostHeartbeat,
    Job,
    PhoneState,
    PhoneStatus,
    split_into_chunks,
)
from workloads.protocol.metrics import Metric

SWEEPS, PHONES, REPEATS = 50, 10, 20
LARGE = {"run", "report", "metric_value", "chunk"}
HOSTS = {f"PH{number}": "host-a" for number in range(PHONES)}
BLOB = b"telemetry"


class Recorder:
    """The statements that an engine executed, with one set of parameters each."""

    def __init__(self) -> None:
        self.statements: dict[str, Any] = {}

    def __call__(self, _1: Any, _2: Any, statement: str, values: Any, _3: Any, many: bool) -> None:
        self.statements[statement] = values[0] if many else values


@contextmanager
def recorded() -> Iterator[Recorder]:
    """Record what every engine executes."""
    recorder = Recorder()
    event.listen(Engine, "before_cursor_execute", recorder)
    yield recorder
    event.remove(Engine, "before_cursor_execute", recorder)


def whole_tables(db: Database, statement: str, values: Any) -> set[str]:
    """Return the large tables of which a statement reads every row."""
    if not re.match(r"\s*(SELECT|UPDATE|DELETE|WITH|INSERT)", statement, re.IGNORECASE):
        return set()
    prefix = "EXPLAIN QUERY PLAN " if db.url.startswith("sqlite") else "EXPLAIN "
    with db.read() as connection:
        rows = connection.exec_driver_sql(prefix + statement, values).all()
    plan = "\n".join(str(row[-1]) for row in rows)
    if prefix == "EXPLAIN ":
        # The newest eight sweeps are a sixth of this store; then PostgreSQL reads all reports.
        newest = {"report"} if "count(*)" in statement and "report.validity" in statement else set()
        return (set(re.findall(r"Seq Scan on (\w+)", plan)) & LARGE) - newest
    names = re.findall(rf"\b({'|'.join(LARGE)}) AS (\w+)", statement)
    tables = {alias: table for table, alias in names}
    # The index of leases has as many entries as phones work.
    scanned = re.findall(r"^SCAN (\w+)(?! USING INDEX one_lease_per_phone)", plan, re.MULTILINE)
    return {tables.get(name, name) for name in scanned} & LARGE


def jobs_of(db: Database) -> list[Job]:
    return [job for _, job in lease_next(db, HOSTS, lease_timeout_s=3600)]


@pytest.fixture
def full(store: Database) -> Database:
    """A store with fifty sweeps: of the last one, runs are left."""
    store_parcels(store, "host-a", [an_announcement(a_phone(serial)) for serial in HOSTS])
    for number in range(SWEEPS):
        trials = [a_trial(number, serial) for serial in HOSTS]
        row = {"id": f"sw-{number:08}", "name": f"s{number}", "source": "farm: 1", "seed": 1}
        submission.submit(store, row, trials, planned_runs(trials, REPEATS))
    metrics = (Metric(name="step_ms", value=1.5, unit="ms", provenance=SIMULATED),)
    job = jobs_of(store)[0]
    telemetry = digest_of_bytes(BLOB)
    chunks = split_into_chunks(telemetry, BLOB)
    first = a_report(job, metrics=metrics, telemetry=telemetry, chunks=len(chunks))
    store_parcels(store, "host-a", [*chunks, first])
    copy_to_other_runs(store)
    return store


def copy_to_other_runs(db: Database) -> None:
    """Give every run of the other sweeps the report, the metric and the chunk of one run."""
    last = f"sw-{SWEEPS - 1:08}"
    other = select(run).where(run.c.state == "queued", run.c.sweep != last).subquery()
    key = (other.c.trial, other.c.repeat)
    digest = (other.c.trial + cast(other.c.repeat, String),)
    with db.write() as connection:
        copy(connection, report, ["trial", "repeat"], key, leave_out="id")
        copy(connection, metric_value, ["run"], (other.c.id,))
        copy(connection, chunk, ["digest"], digest)
        ended = update(run).where(run.c.id.in_(select(other.c.id)))
        connection.execute(ended.values(state="done", attempt=1))
        connection.execute(update(sweep).where(sweep.c.id != last).values(state="finished"))
        connection.execute(text("ANALYZE"))


def copy(
    connection: Connection,
    table: Table,
    names: list[str],
    values: Sequence[ColumnElement[Any]],
    leave_out: str = "",
) -> None:
    """Copy the only row of a table, with these values of these columns."""
    one = select(table).limit(1).subquery()
    copied = [column.name for column in table.c if column.name not in (*names, leave_out)]
    rows = select(*values, *(one.c[name] for name in copied)).join(one, literal(True))
    connection.execute(insert(table).from_select([*names, *copied], rows))


def heartbeat(broker_url: str, jobs: list[Job]) -> None:
    """Show half of the phones at work, and half idle with a report under way."""
    digests = {serial: an_announcement(a_phone(serial)).facts_digest for serial in HOSTS}
    busy = {job.phone: job.run for job in jobs[::2]}
    phones = tuple(
        PhoneStatus(
            serial=serial,
            state=PhoneState.BUSY if serial in busy else PhoneState.IDLE,
            run=busy.get(serial),
            facts_digest=digests[serial],
        )
        for serial in HOSTS
    )
    beat = HostHeartbeat(
        host="host-a",
        sent_at=datetime.now(UTC),
        max_parallel=PHONES,
        phones=phones,
        unconfirmed=tuple(job.run for job in jobs[1::2]),
    )
    HostBroker(broker_url, "host-a").publish_heartbeat(beat)


def test_no_statement_of_a_working_lab_reads_all_runs(
    full: Database, broker_url: str, lab: Lab
) -> None:
    """Ingest, tick, status and 'sweep show' cost what they concern, not what there is."""
    scheduler = Scheduler(full, CentralBroker(broker_url), JobQueue(broker_url), 3600)
    connection = LabConnection(Lab.read(lab.root, {"FARM_STORE": full.url}))
    with recorded() as recorder:
        jobs = jobs_of(full)
        heartbeat(broker_url, jobs)
        scheduler.tick()
        store_parcels(full, "host-a", [a_report(job) for job in jobs])
        heartbeat(broker_url, [])
        scheduler.tick()
        runs = {job.run: "host-a" for job in jobs}
        phones_of_unstored_reports(full, runs)
        unfinished_runs(full, runs)
        read_lab_status(connection)
        show_sweep(connection, f"sw-{SWEEPS - 1:08}")
    assert len(recorder.statements) > 30
    found = {
        statement: tables
        for statement, values in recorder.statements.items()
        if (tables := whole_tables(full, statement, values))
    }
    assert not found, "\n\n".join(f"{tables}: {statement}" for statement, tables in found.items())
