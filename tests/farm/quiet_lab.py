"""A lab with a real broker and store, and no processes: a test sends what its hosts would send."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import redis

from orchestrator.dispatch.central_broker import CentralBroker, SchedulerHeartbeat
from orchestrator.store.database import Database
from orchestrator.supervisor.embedded_broker import embedded_broker, wait_for_broker
from orchestrator.supervisor.process import stop_all
from tests.farm.farm_command import run_in_process
from workloads.lab.process_identity import software_version
from workloads.lab.settings import Lab
from workloads.protocol.messages import HostHeartbeat, PhoneStatus, heartbeat_key
from workloads.protocol.unusable_phone import PhoneProblem, UnusablePhone


@dataclass(frozen=True)
class QuietLab:
    """A lab whose hosts are played by the test."""

    lab: Lab
    store: Database
    broker: CentralBroker

    def send(self, *phones: PhoneStatus, host: str = "host-a", unusable: str = "") -> None:
        """Send the heartbeat of a host with these phones."""
        problems = (UnusablePhone(address=unusable, problem=PhoneProblem.UNAUTHORIZED),)
        beat = HostHeartbeat(
            host=host,
            sent_at=datetime.now(UTC),
            max_parallel=8,
            phones=phones,
            software=software_version(),
            unusable=problems if unusable else (),
        )
        with redis.Redis.from_url(self.lab.broker_url) as client:
            client.set(heartbeat_key(host), beat.model_dump_json())
        self.broker.publish_scheduler(SchedulerHeartbeat(sent_at=datetime.now(UTC)))

    def command(self, *words: str, columns: int = 0) -> tuple[int, str, str]:
        """Run a farm command on this lab: piped, or at a terminal of some columns."""
        return run_in_process(*words, "--lab", str(self.lab.root), columns=columns)


@contextmanager
def quiet_lab(root: Path) -> Iterator[QuietLab]:
    """Start the broker of a lab, and create its store."""
    lab = Lab.read(root, {})
    process = embedded_broker(lab)
    process.start()
    wait_for_broker(lab, process)
    store, broker = Database(lab.store_url), CentralBroker(lab.broker_url)
    store.migrate()
    try:
        yield QuietLab(lab, store, broker)
    finally:
        broker.close()
        store.close()
        stop_all([process])
