"""Fixtures of the terminal view: UTC as local time, and a lab whose heartbeats the test sends."""

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
from workloads.lab.settings import Lab
from workloads.protocol.faults import BrokerDown
from workloads.protocol.messages import HostHeartbeat, PhoneStatus


@pytest.fixture(autouse=True)
def use_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make screens, which show local time, independent of the computer."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


@dataclass
class QuietLab:
    """Broker, store and a sweep without an agent; the lab itself sends the heartbeats."""

    lab: Lab
    broker_process: ServiceProcess
    db: Database
    broker: CentralBroker
    reasons: dict[str, str] = field(default_factory=dict)  # of every phone, for the heartbeats
    stop: threading.Event = field(default_factory=threading.Event)

    def send_heartbeats(self) -> None:
        """Send the state of all phones every half second, as an agent does."""
        agent = AgentBroker(self.lab.broker_url, "host-a")
        while not self.stop.wait(0.5):
            phones = tuple(
                PhoneStatus(serial=serial, state="idle", reason=reason, temp_c=30.0)
                for serial, reason in self.reasons.items()
            )
            try:
                heartbeat = HostHeartbeat(
                    host="host-a", sent_at=datetime.now(UTC), max_parallel=9, phones=phones
                )
                agent.publish_heartbeat(heartbeat)
            except BrokerDown:
                continue


def announce_phone(db: Database, serial: str, **facts: object) -> None:
    """Announce a phone to the store."""
    store_parcels(db, "host-a", [an_announcement(a_phone(serial, **facts))])


def queue_runs(db: Database, trials: list[Trial]) -> None:
    """Queue one run of each trial."""
    row = {"id": "sw-00000001", "name": "quiet", "source": "", "seed": 1}
    submission.submit(db, row, trials, planned_runs(trials))


@pytest.fixture
def quiet_lab(lab: Lab) -> Iterator[QuietLab]:
    """A lab with four idle phones and one queued run per phone."""
    process = embedded_broker(lab)
    process.start()
    wait_for_broker(lab, process)
    db = Database(lab.store_url)
    db.migrate()
    serials = [f"PH{index}" for index in range(4)]
    for serial in serials:
        announce_phone(db, serial)
    queue_runs(db, [a_trial(index, serial) for index, serial in enumerate(serials)])
    broker = CentralBroker(lab.broker_url)
    quiet = QuietLab(lab, process, db, broker, dict.fromkeys(serials, ""))
    heartbeats = threading.Thread(target=quiet.send_heartbeats, daemon=True)
    heartbeats.start()
    try:
        yield quiet
    finally:
        quiet.stop.set()
        heartbeats.join()
        stop_all([process])
        db.close()
