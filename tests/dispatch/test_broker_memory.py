"""The memory of the broker: no host can fill it for longer than a moment."""

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime

import pytest
import redis

from orchestrator.dispatch.broker_memory import CONNECTIONS_MAX, limit_queues, queues_to_cut
from orchestrator.dispatch.central_broker import CentralBroker
from orchestrator.dispatch.host_notices import HostProblem, host_notices
from orchestrator.dispatch.ingest_service import IngestService
from orchestrator.store.database import Database
from orchestrator.store.enrolments import Access, HostAccess, secret_digest
from tests.farm.conftest import wait_for
from workloads.lab.process_identity import software_version
from workloads.protocol.host_user import host_user
from workloads.protocol.limits import MIB
from workloads.protocol.messages import (
    HostHeartbeat,
    confirmed_key,
    heartbeat_key,
    host_queue,
    results_queue,
)

BAD, GOOD = "host-a", "host-b"
LAB = frozenset({BAD, GOOD})


@pytest.fixture
def admin(broker_url: str) -> Iterator["redis.Redis[bytes]"]:
    """The broker, with little memory."""
    with redis.Redis.from_url(broker_url, protocol=2) as client:
        client.config_set("maxmemory", 32 * MIB)
        yield client


@pytest.fixture
def centre(broker_url: str, admin: "redis.Redis[bytes]") -> Iterator[CentralBroker]:
    """The broker as the centre uses it, with the users of two hosts."""
    with CentralBroker(broker_url) as broker:
        broker.set_host_users(ACCESSES)
        yield broker


ACCESSES = [HostAccess(host, Access.ENROLLED, 1.0, 0.0, secret_digest(host)) for host in LAB]


def fill(broker_url: str, host: str) -> None:
    """Send until the broker has no memory left, as a host that never waits."""
    url = broker_url.replace("unix://", f"unix://{host_user(host)}:{host}@")
    with redis.Redis.from_url(url, protocol=2) as raw:
        for _ in range(64):
            try:
                raw.lpush(results_queue(host), bytes(MIB))
            except redis.exceptions.OutOfMemoryError:
                return
    raise AssertionError("the broker took everything")


def test_the_largest_queues_are_cut() -> None:
    assert queues_to_cut({"a": 100, "b": 1}, 800) == []
    assert queues_to_cut({"a": 101, "b": 100}, 800) == ["a"]
    many = {f"h{number}": 90 + number for number in range(6)}  # none is above an eighth
    assert queues_to_cut(many, 800) == ["h5", "h4"]


def test_a_host_that_fills_the_broker_stops_nobody(
    store: Database, centre: CentralBroker, admin: "redis.Redis[bytes]", broker_url: str
) -> None:
    """The host sends no heartbeats; nobody has to do anything."""
    fill(broker_url, BAD)
    service = IngestService(store, centre, LAB)
    service.start()
    try:
        wait_for(lambda: not admin.exists(results_queue(BAD)), "its queue is cut")
        admin.lpush(results_queue(GOOD), "x")
        wait_for(
            lambda: any(beat.dropped.get(BAD) for beat in centre.ingest_services()), "it is named"
        )
        (notice,) = host_notices([], centre.ingest_services(), LAB)
        assert (notice.host, notice.problem) == (BAD, HostProblem.DROPPED)
        assert "of the broker and were deleted" in notice.text
        fill(broker_url, BAD)
        wait_for(lambda: host_user(BAD).encode() not in names(admin), "it has to wait")
        centre.set_host_users(ACCESSES)
        assert names(admin) == {host_user(GOOD).encode()}
        with pytest.raises(redis.AuthenticationError):
            fill(broker_url, BAD)
    finally:
        service.stop()


def test_a_host_cannot_use_up_the_connections_of_the_broker(
    centre: CentralBroker, admin: "redis.Redis[bytes]", broker_url: str
) -> None:
    urls = [broker_url.replace("unix://", f"unix://{host_user(h)}:{h}@") for h in (BAD, GOOD)]
    with ExitStack() as opened:
        many, few = (
            [opened.enter_context(redis.Redis.from_url(url, protocol=2)) for _ in range(count)]
            for url, count in zip(urls, (CONNECTIONS_MAX + 1, 9), strict=True)
        )
        assert all(client.ping() for client in (*many[:-1], *few))
        assert list(limit_queues(centre, LAB)) == []
        many[-1].ping()
        ((host, reason),) = limit_queues(centre, LAB)
        assert (host, f"{CONNECTIONS_MAX + 1} connections" in reason) == (BAD, True)
        assert names(admin) == {host_user(GOOD).encode()}
        assert all(client.ping() for client in few)
        with pytest.raises(redis.ConnectionError):
            many[0].ping()
        centre.set_host_users(ACCESSES)
        assert names(admin) == {host_user(GOOD).encode()}, "it has to wait"


def names(admin: "redis.Redis[bytes]") -> set[bytes]:
    """Return the users of hosts."""
    found = admin.execute_command("ACL USERS")  # type: ignore[no-untyped-call]
    users = {name if isinstance(name, bytes) else name.encode() for name in found}
    return {name for name in users if name.startswith(b"host.")}


def test_what_a_host_outside_of_the_lab_sends_is_not_stored(
    store: Database, centre: CentralBroker, admin: "redis.Redis[bytes]"
) -> None:
    keys = [key("revoked") for key in (results_queue, host_queue, confirmed_key)]
    for key in (*keys, results_queue(GOOD)):
        admin.rpush(key, "x")
    admin.set(heartbeat_key("revoked"), "x")
    assert list(limit_queues(centre, LAB)) == []
    assert admin.exists(*keys) == 0
    assert admin.exists(results_queue(GOOD)) == 1
    assert 0 < admin.ttl(heartbeat_key("revoked")) <= 60
    service = IngestService(store, centre, LAB)
    service.take(results_queue("revoked"), ["{}"])
    assert service._waiting.empty()


def test_a_heartbeat_that_is_too_long_is_deleted_and_never_read_in_full(
    centre: CentralBroker, admin: "redis.Redis[bytes]"
) -> None:
    admin.set(heartbeat_key(BAD), bytes(8 * MIB))
    beat = HostHeartbeat(
        host=GOOD, sent_at=datetime.now(UTC), max_parallel=1, software=software_version()
    )
    admin.set(heartbeat_key(GOOD), beat.model_dump_json(), ex=5)
    readings = {item.host: item.heartbeat for item in centre.host_readings(LAB)}
    assert readings == {BAD: None, GOOD: beat}
    ((host, reason),) = limit_queues(centre, LAB)
    assert (host, "too long" in reason) == (BAD, True)
    assert [item.host for item in centre.host_readings(LAB)] == [GOOD]


def test_a_flood_of_names_displaces_no_host(
    centre: CentralBroker, admin: "redis.Redis[bytes]"
) -> None:
    beat = HostHeartbeat(host="zz", sent_at=datetime.now(UTC), max_parallel=1).model_dump_json()
    admin.set(heartbeat_key("zz"), beat)
    assert centre.found_hosts() == ("zz",)
    with admin.pipeline(transaction=False) as pipe:
        for number in range(1500):
            pipe.set(heartbeat_key(f"a{number}"), "x")
        pipe.execute()
    wait_for(lambda: len(centre.found_hosts()) == 1000, "they are found")
    assert centre.found_hosts()[0] == "zz"
    assert "zz" in {beat.host for beat in centre.heartbeats()}
