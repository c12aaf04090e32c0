"""Announcements wait while results are stored."""

import json
from collections.abc import Iterator

import pytest

from orchestrator.dispatch.announcements import WaitingAnnouncements
from orchestrator.dispatch.central_broker import CentralBroker
from orchestrator.dispatch.ingest_service import WAITING_MAX, IngestService
from orchestrator.store.database import Database
from orchestrator.store.phone_queries import known_phones
from tests.builders import a_phone, a_report, an_announcement
from tests.farm.conftest import wait_for
from tests.leasing import lease_next
from tests.store import three_phones
from workloads.protocol.limits import HOST_PHONES_MAX
from workloads.protocol.messages import results_queue


def test_hosts_take_turns_and_each_announcement_waits_once() -> None:
    waiting = WaitingAnnouncements()
    many = [an_announcement(a_phone(f"A{number}"), "host-a") for number in range(3)]
    few = [an_announcement(a_phone("B0"), "host-b")]
    for _ in range(2):  # hosts repeat what is not confirmed
        assert waiting.add("host-a", many) == waiting.add("host-b", few) == 0
    taken = [(host, item.facts.serial) for host, item in waiting.take(3)]
    assert taken == [("host-a", "A0"), ("host-b", "B0"), ("host-a", "A1")]
    assert [item.facts.serial for _, item in waiting.take(9)] == ["A2"]
    assert waiting.take(9) == []


def test_a_host_cannot_announce_without_limit() -> None:
    waiting = WaitingAnnouncements()
    one = an_announcement(a_phone("A"), "host-a")
    many = [
        one.model_copy(update={"facts_digest": f"{number:064x}"})
        for number in range(HOST_PHONES_MAX + 7)
    ]
    assert waiting.add("host-a", many) == 7
    assert waiting.add("host-b", many[:1]) == 0


@pytest.fixture
def service(store: Database, broker_url: str) -> Iterator[IngestService]:
    """An ingest service that has not begun to store."""
    three_phones.announce_phones(store)
    three_phones.submit(store, repeat=1)
    with CentralBroker(broker_url) as broker:
        found = IngestService(store, broker)
        yield found
        found.stop()


def test_a_report_is_stored_before_the_announcements_that_came_first(
    store: Database, service: IngestService
) -> None:
    ((host, job),) = lease_next(store, {"PH1": "host-a"}, lease_timeout_s=30)
    for number in range(4 * WAITING_MAX):  # more than deliveries may wait
        text = an_announcement(a_phone(f"X{number}"), "host-z").model_dump_json()
        service.take(results_queue("host-z"), [text])
    service.take(results_queue(host), [a_report(job).model_dump_json()])
    waiting = [item for item in service._waiting.queue if item.parcels]
    assert [(item.host, len(item.parcels)) for item in waiting] == [(host, 1)]
    service.start()
    wait_for(lambda: len(known_phones(store)) == 3 + 4 * WAITING_MAX, "all are announced")
    names = [phone.serial for phone in known_phones(store)]
    assert json.dumps(names).count("X") == 4 * WAITING_MAX
