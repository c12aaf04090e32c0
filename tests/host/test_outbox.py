"""The post: sends until confirmed, over the broker's worst days."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from agent.broker import Broker as AgentBroker
from agent.post import Post
from agent.spool import Spool
from orchestrator.dispatch.broker import Broker
from tests.builders import a_phone, a_sighting
from workloads.fault import BrokerDown


def wait_for(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait for something to become true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def test_a_parcel_is_sent_until_the_centre_confirms_it(tmp_path: Path, broker_url: str) -> None:
    spool = Spool(tmp_path / "spool.db")
    sent: list[str] = []

    def send(parcels: Sequence[str]) -> None:
        sent.extend(parcels)
        if len(sent) == 1:
            raise BrokerDown

    post = Post(spool, AgentBroker(broker_url, "host-a"), send, resend_s=0.1)
    parcel = a_sighting(a_phone())
    spool.add([parcel])
    post.start()
    post.post([parcel])
    wait_for(lambda: len(sent) >= 3)
    Broker(broker_url).confirm("host-a", [parcel.parcel])
    assert post.drained(10)
    assert [] == spool.waiting()
    post.stop()


def test_what_an_earlier_life_left_is_sent_first(tmp_path: Path, broker_url: str) -> None:
    spool = Spool(tmp_path / "spool.db")
    spool.add([a_sighting(a_phone())])
    sent: list[str] = []
    post = Post(spool, AgentBroker(broker_url, "host-a"), sent.extend)
    post.start()
    wait_for(lambda: len(sent) == 1)
    post.stop()
