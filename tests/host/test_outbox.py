"""The outbox: it sends parcels until they are confirmed."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from agent.host_broker import HostBroker
from agent.outbox import Outbox
from agent.spool import Spool
from agent.timeouts import DEFAULT_TIMEOUTS
from orchestrator.dispatch.central_broker import CentralBroker
from tests.builders import a_phone, an_announcement
from workloads.protocol.faults import BrokerDown


def wait_for(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait until a condition is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not hold in time"
        time.sleep(0.01)


def test_a_parcel_is_sent_until_it_is_confirmed(tmp_path: Path, broker_url: str) -> None:
    spool = Spool(tmp_path / "spool.db")
    sent: list[str] = []
    timeouts = replace(DEFAULT_TIMEOUTS, outbox_resend_interval_s=0.1)

    def send(parcels: Sequence[str]) -> None:
        sent.extend(parcels)
        if len(sent) == 1:
            raise BrokerDown

    outbox = Outbox(spool, HostBroker(broker_url, "host-a"), send, timeouts)
    parcel = an_announcement(a_phone())
    spool.add_parcels([parcel])
    outbox.start()
    outbox.post([parcel])
    wait_for(lambda: len(sent) >= 3)
    CentralBroker(broker_url).confirm("host-a", [parcel.parcel_id])
    assert outbox.wait_until_empty(10)
    assert spool.unconfirmed_ids() == []
    outbox.stop()


def test_parcels_of_an_earlier_agent_are_sent(tmp_path: Path, broker_url: str) -> None:
    spool = Spool(tmp_path / "spool.db")
    spool.add_parcels([an_announcement(a_phone())])
    sent: list[str] = []
    outbox = Outbox(spool, HostBroker(broker_url, "host-a"), sent.extend)
    outbox.start()
    wait_for(lambda: len(sent) == 1)
    outbox.stop()
