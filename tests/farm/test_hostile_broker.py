"""A hostile client of the broker: no message and no value ends a process, and the lab works on."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
import redis

from orchestrator.store.phone_queries import known_phones
from orchestrator.supervisor.services import agent_process, services
from tests.builders import a_phone, a_run, an_announcement
from tests.farm.conftest import SETTINGS, Farm, wait_for
from tests.farm.hostile_messages import envelope, hostile_content, hostile_messages
from workloads.catalogue import bind
from workloads.lab_settings import Lab
from workloads.protocol.condition import Condition
from workloads.protocol.messages import (
    DELIVER,
    RUN,
    Event,
    HostHeartbeat,
    Job,
    PhoneStatus,
    heartbeat_key,
    host_queue,
    results_queue,
)

HOST = "host-a"
JOB = Job(
    run=a_run(),
    phone="PH9",
    fence=7,
    lease_timeout_s=3.0,
    case=bind("noop", {}),
    condition=Condition(),
)
NOW = datetime.now(UTC)
BEAT = HostHeartbeat(
    host="host-b",
    sent_at=NOW,
    max_parallel=1,
    phones=(PhoneStatus(serial="PH9", state="idle", run=a_run(), temp_c=20.0),),
    unconfirmed=(a_run(),),
)
EVENT = Event(occurred_at=NOW, kind="accepted", text="x", phone="PH9")


@contextmanager
def lab_without_phones(lab: Lab) -> Iterator[Farm]:
    """Start a lab whose agent has no phones."""
    lab.root.mkdir(parents=True)
    (lab.root / "lab.toml").write_text(SETTINGS)
    lab = Lab.read(lab.root, {})
    with services(lab, [agent_process(lab, HOST, "--private-adb")]) as processes:
        farm = Farm(lab, processes)
        wait_for(lambda: farm.broker.heartbeats() and farm.broker.ingest_services(), "lab is up")
        yield farm


def as_json(message: Any) -> dict[str, Any]:
    """Return a message as JSON-like content."""
    content: dict[str, Any] = json.loads(message.model_dump_json())
    return content


def attack(farm: Farm, count: int, seed: int) -> None:
    """Write hostile messages to both queues, and hostile values to every key."""
    raw = redis.Redis.from_url(farm.lab.broker_url)
    jobs = hostile_content(as_json(JOB), 50, seed)
    parcels = hostile_content(as_json(an_announcement(a_phone("PH8"))), 50, seed)
    floods = (
        hostile_messages(RUN, jobs, host_queue(HOST), count, seed),
        hostile_messages(DELIVER, [[text] for text in parcels], results_queue(HOST), count, seed),
    )
    for queue, messages in zip((host_queue(HOST), results_queue(HOST)), floods, strict=True):
        for message in messages:
            raw.lpush(queue, message)
    for number, text in enumerate(hostile_content(as_json(BEAT), count // 4, seed)):
        raw.sadd("farm:hosts", "host-b", f"host-{number}\x1b[2J")
        raw.set(heartbeat_key("host-b"), text, ex=5)
    for text in hostile_content(as_json(EVENT), count // 4, seed):
        raw.xadd("farm:events", {"e": text})
    raw.close()


def is_working(farm: Farm, serial: str) -> bool:
    """Deliver an announcement, and see whether it is stored and a status is published."""
    raw = redis.Redis.from_url(farm.lab.broker_url)
    announcement = an_announcement(a_phone(serial), HOST).model_dump_json()
    raw.lpush(
        results_queue(HOST), json.dumps(envelope(DELIVER, [announcement], results_queue(HOST)))
    )
    raw.close()
    wait_for(lambda: serial in {phone.serial for phone in known_phones(farm.db)}, "it is stored")
    wait_for(lambda: farm.broker.status() is not None, "a status is published")
    return farm.command("status").returncode == 0


@pytest.mark.parametrize("count", [120, pytest.param(2000, marks=pytest.mark.slow)])
def test_no_message_ends_a_process(lab: Lab, count: int) -> None:
    with lab_without_phones(lab) as farm:
        pids = {name: process.pid for name, process in farm.processes.items()}
        attack(farm, count, seed=count)
        assert is_working(farm, "PH1")
        wait_for(farm.broker.heartbeats, "the agent sends heartbeats")
        assert all(process.alive for process in farm.processes.values())
        assert pids == {name: process.pid for name, process in farm.processes.items()}
        (ingest,) = farm.broker.ingest_services()
        assert ingest.dropped[HOST] > count / 2
        beat = next(beat for beat in farm.broker.heartbeats() if beat.host == HOST)
        assert beat.refused > count / 2
        listed = json.loads(farm.command("agent", "list", "--json").stdout)
        found = {item["problem"] for host in listed for item in host["problems"]}
        assert {"refuses", "dropped"} <= found
        for log in (lab.root / "logs").glob("*.log"):
            text = log.read_text()
            assert "Traceback" not in text, text[-2000:]
            assert "\x1b" not in text


WRONG_TYPES = (
    ("SET", "farm:status", "[1,2]"),
    ("SET", "farm:hosts", "x"),
    ("SET", "farm:ingests", "x"),
    ("SET", "farm:events", "x"),
    ("SET", f"farm:confirmed:{HOST}", "x"),
    ("SET", host_queue(HOST), "x"),
    ("SET", results_queue(HOST), "x"),
    ("RPUSH", heartbeat_key(HOST), "x"),
)


def test_keys_of_a_wrong_type_are_replaced(lab: Lab) -> None:
    """`farm up` reads the status twice per second, so a bad one ended the whole lab."""
    with lab_without_phones(lab) as farm:
        raw = redis.Redis.from_url(lab.broker_url)
        for command, key, value in WRONG_TYPES:
            raw.delete(key)
            raw.execute_command(command, key, value)  # type: ignore[no-untyped-call]
        for queue in (host_queue(HOST), results_queue(HOST)):
            wait_for(lambda queue=queue: raw.type(queue) == b"none", "the key is deleted")
        top = 2**64 - 1
        raw.delete("farm:events")
        raw.xadd("farm:events", {"e": "x"}, id=f"{top}-{top}")  # no higher id exists
        assert is_working(farm, "PH1")
        assert is_working(farm, "PH2")
        assert all(process.alive for process in farm.processes.values())
        findings = json.loads(farm.command("doctor", "--json").stdout)
        levels = {item["subject"]: item["level"] for item in findings}
        assert (levels["ingest"], levels["scheduler"]) == ("ok", "ok")
        raw.close()
