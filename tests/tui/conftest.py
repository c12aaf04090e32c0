"""Screens show local time; in these tests that is UTC. Labs without phones: heartbeats by hand."""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from agent.host_broker import HostBroker as AgentBroker
from orchestrator.dispatch.central_broker import CentralBroker
from orchestrator.planning.trials import Trial
from orchestrator.store import submission
from orchestrator.store.database import Database
from orchestrator.store.ingest import store_parcels
from orchestrator.supervisor.embedded_broker import embedded_broker, wait_for_broker
from orchestrator.supervisor.process import ServiceProcess, stop_all
from tests.builders import a_phone, a_trial, an_announcement, planned_runs
from workloads.lab_settings import Lab
from workloads.protocol.faults import BrokerDown
from workloads.protocol.messages import HostHeartbeat, PhoneStatus


@pytest.fixture(autouse=True)
def in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same screen on every machine."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


@dataclass
class QuietLab:
    """Broker, store and a sweep; no agent, so heartbeats are what the test says."""

    lab: Lab
    child: ServiceProcess
    db: Database
    broker: CentralBroker
    said: dict[str, str] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)

    def beat(self) -> None:
        """Tell of all phones every half second, as an agent does."""
        agent = AgentBroker(self.lab.broker_url, "host-a")
        while not self.stop.wait(0.5):
            phones = tuple(
                PhoneStatus(serial=serial, state="idle", reason=why, temp_c=30.0)
                for serial, why in self.said.items()
            )
            try:
                beat = HostHeartbeat(
                    host="host-a", sent_at=datetime.now(UTC), max_parallel=9, phones=phones
                )
                agent.publish_heartbeat(beat)
            except BrokerDown:
                continue


def meet(db: Database, serial: str, **facts: object) -> None:
    """Let the store know a phone."""
    store_parcels(db, "host-a", [an_announcement(a_phone(serial, **facts))])


def queue(db: Database, trials: list[Trial]) -> None:
    """Queue one run of each trial."""
    row = {"id": "sw-00000001", "name": "quiet", "source": "", "seed": 1}
    submission.submit(db, row, trials, planned_runs(trials))


@pytest.fixture
def quiet_lab(lab: Lab) -> Iterator[QuietLab]:
    """A lab with four phones that do nothing."""
    child = embedded_broker(lab)
    child.start()
    wait_for_broker(lab, child)
    db = Database(lab.store_url)
    db.migrate()
    for at in range(4):
        meet(db, f"PH{at}")
    queue(db, [a_trial(at, f"PH{at}") for at in range(4)])
    made = QuietLab(
        lab, child, db, CentralBroker(lab.broker_url), {f"PH{at}": "" for at in range(4)}
    )
    beating = threading.Thread(target=made.beat, daemon=True)
    beating.start()
    try:
        yield made
    finally:
        made.stop.set()
        beating.join()
        stop_all([child])
        db.close()
