"""Leases in trouble: a store that hangs, a host that was cut off, an ingest that is frozen."""

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, text

from agent.host_broker import HostBroker
from orchestrator.dispatch.central_broker import CentralBroker
from orchestrator.dispatch.job_queue import JobQueue
from orchestrator.dispatch.scheduler import Scheduler
from orchestrator.store import leases, submission
from orchestrator.store.database import Database
from orchestrator.store.ingest import store_parcels
from orchestrator.store.tables import run
from tests.builders import a_phone, a_report, a_trial, an_announcement, planned_runs
from tests.conftest import new_database
from workloads.protocol.messages import Event, HostHeartbeat, Job, PhoneStatus, RunId

LEASE_S = 1.0
SWEEP = {"id": "sw-00000001", "name": "test", "source": "farm: 1", "seed": 1}
ANNOUNCEMENT = an_announcement(a_phone())


class SimulatedHost:
    """A host with the phone PH1, as its heartbeats show it."""

    def __init__(self, url: str) -> None:
        self._broker = HostBroker(url, "host-a")
        self.run: RunId | None = None
        self.unconfirmed: tuple[RunId, ...] = ()

    def publish(self, **changes: Any) -> None:
        """Send a heartbeat."""
        status = PhoneStatus(
            serial="PH1",
            state="busy" if self.run else "idle",
            run=self.run,
            facts_digest=ANNOUNCEMENT.facts_digest,
        )
        beat = HostHeartbeat(
            host="host-a",
            sent_at=datetime.now(UTC),
            max_parallel=4,
            phones=(status,),
            unconfirmed=self.unconfirmed,
        )
        self._broker.publish_heartbeat(beat.model_copy(update=changes))


def fill(store: Database) -> None:
    """Announce PH1, and queue two runs for it."""
    store_parcels(store, "host-a", [ANNOUNCEMENT])
    trials = [a_trial(0), a_trial(1)]
    submission.submit(store, SWEEP, trials, planned_runs(trials))


def rows(store: Database) -> list[tuple[str, int]]:
    """Return state and attempt of every run."""
    with store.read() as connection:
        query = select(run.c.state, run.c.attempt).order_by(run.c.id)
        return [tuple(row) for row in connection.execute(query)]  # type: ignore[misc]


@pytest.fixture
def host(broker_url: str) -> SimulatedHost:
    """A host with one phone."""
    return SimulatedHost(broker_url)


@pytest.fixture
def scheduler(store: Database, broker_url: str) -> Scheduler:
    """A scheduler with short leases, and two queued runs."""
    fill(store)
    broker = CentralBroker(broker_url)
    return Scheduler(store, broker, JobQueue(broker_url), LEASE_S)


def leased_job(store: Database, scheduler: Scheduler, host: SimulatedHost) -> Job:
    """Let the scheduler lease the first run, and return its job."""
    host.publish()
    assert scheduler.tick() == 1
    (leased,) = leases.leased_runs(store)
    first = a_trial(0)
    return Job(
        run=leased.run,
        phone="PH1",
        fence=1,
        lease_timeout_s=LEASE_S,
        case=first.case,
        condition=first.condition,
    )


def test_a_finished_run_is_not_thrown_away_after_a_cut(
    store: Database, scheduler: Scheduler, host: SimulatedHost
) -> None:
    """The heartbeat is back before the spool is sent, and the lease has expired by then."""
    job = leased_job(store, scheduler, host)
    time.sleep(1.5 * LEASE_S)
    host.publish(phones=())
    scheduler.tick()
    assert rows(store)[0] == ("queued", 1)
    host.unconfirmed = (job.run,)
    for _ in range(3):
        host.publish()
        assert scheduler.tick() == 0
    result = store_parcels(store, "host-a", [a_report(job)])
    assert dict(result.reports) == {"accepted": 1}
    host.publish()  # it still names the run, but the store has its report
    assert scheduler.tick() == 1
    assert rows(store) == [("done", 1), ("leased", 1)]


def test_an_ingest_that_is_frozen_for_longer_than_a_lease_costs_no_run(
    store: Database, scheduler: Scheduler, host: SimulatedHost
) -> None:
    job = leased_job(store, scheduler, host)
    host.unconfirmed = (job.run,)
    deadline = time.monotonic() + 2 * LEASE_S
    while time.monotonic() < deadline:
        host.publish()
        assert scheduler.tick() == 0
        time.sleep(0.1)
    assert rows(store)[0] == ("leased", 1)
    assert dict(store_parcels(store, "host-a", [a_report(job)]).reports) == {"accepted": 1}


@pytest.fixture
def postgres_store(postgres: str, tmp_path: Path) -> Iterator[Database]:
    """A store whose reads can be blocked."""
    database = Database(new_database(postgres, tmp_path.name))
    database.migrate()
    yield database
    database.close()


@pytest.mark.parametrize("table", ["phone", pytest.param("run", marks=pytest.mark.slow)])
def test_a_store_that_hangs_within_a_tick_expires_no_live_lease(
    postgres_store: Database, broker_url: str, host: SimulatedHost, table: str
) -> None:
    fill(postgres_store)
    broker = CentralBroker(broker_url)
    lease_s = 4.0  # long enough that two ticks follow each other between two renewals
    scheduler = Scheduler(postgres_store, broker, JobQueue(broker_url), lease_s)
    host.run = leased_job(postgres_store, scheduler, host).run
    stop = threading.Event()

    def send_heartbeats() -> None:
        while not stop.wait(0.1):
            host.publish()

    def send_events() -> None:
        """Wake the scheduler so often that a tick follows another before leases are renewed."""
        events = CentralBroker(broker_url)
        while not stop.wait(0.005):
            now = datetime.now(UTC)
            events.publish_event(Event(occurred_at=now, kind="control", text=""))

    threads = [
        threading.Thread(target=send_heartbeats),
        threading.Thread(target=send_events),
        threading.Thread(target=scheduler.serve, args=(stop,)),
    ]
    for thread in threads:
        thread.start()
    try:
        time.sleep(0.3)
        with postgres_store.write() as connection:
            connection.execute(text(f'LOCK TABLE "{table}" IN ACCESS EXCLUSIVE MODE'))
            time.sleep(1.5 * lease_s)
        time.sleep(0.5)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert rows(postgres_store)[0] == ("leased", 1)
