"""A hostile client of the broker: no message and no value ends a process, and the lab works on."""

import json
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import redis

from orchestrator.app.lab_status import read_lab_status
from orchestrator.commands.up import PhoneCounter
from orchestrator.store.phone_queries import known_phones
from orchestrator.supervisor.process import stop_all
from orchestrator.supervisor.services import agent_process, services
from tests.builders import a_phone, a_run, an_announcement
from tests.farm.conftest import SETTINGS, Farm, wait_for
from tests.farm.hostile_messages import envelope, hostile_content, hostile_messages
from workloads.catalogue import bind
from workloads.lab.settings import Lab
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
HOSTS_OF_LAB = (HOST, "host-b", "newer", "older", "broken")
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
# Well-formed messages that ask for something senseless.
SENSELESS_CASES = [
    {"workload": "lenet", "parameters": {}},
    {"workload": "lenet", "parameters": {"batch_size": 10**18}},
    {"workload": "decoder-1m", "parameters": {"batch_size": 1, "micro_batches": 10**9}},
    {"workload": "nothing", "parameters": {"x": -1}},
    {"workload": "lenet", "parameters": {"batch_size": 4}, "options": {"input": "\x1b[2J"}},
    {"workload": "lenet", "parameters": {"batch_size": 4}, "backend": "opencl", "data": "0" * 64},
]


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    """A lab whose agent has no phones; the tests of this file attack it one after the other."""
    root = tmp_path_factory.mktemp("attacked") / "lab"
    root.mkdir()
    (root / "lab.toml").write_text(f"{SETTINGS}hosts = {list(HOSTS_OF_LAB)}\n")
    lab = Lab.read(root, {})
    with services(lab, [agent_process(lab, HOST, "--private-adb")]) as processes:
        attacked = Farm(lab, processes)
        wait_for(
            lambda: attacked.broker.heartbeats() and attacked.broker.ingest_services(), "lab is up"
        )
        yield attacked


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
    for number, case in enumerate(SENSELESS_CASES):
        job = as_json(JOB) | {"run": as_json(a_run(number)), "case": case}
        message = envelope(RUN, json.dumps(job), host_queue(HOST))
        raw.lpush(host_queue(HOST), json.dumps(message))
    for number, text in enumerate(hostile_content(as_json(BEAT), count // 4, seed)):
        raw.set(heartbeat_key(f"host-{number}\x1b[2J"), "x", ex=5)
        raw.set(heartbeat_key("host-b"), text, ex=5)
    for text in hostile_content(as_json(EVENT), count // 4, seed):
        raw.xadd("farm:events", {"e": text})
    raw.close()


def is_working(farm: Farm, serial: str) -> bool:
    """Deliver an announcement, and wait until it is stored and the scheduler is alive."""
    raw = redis.Redis.from_url(farm.lab.broker_url)
    announcement = an_announcement(a_phone(serial), HOST).model_dump_json()
    raw.lpush(
        results_queue(HOST), json.dumps(envelope(DELIVER, [announcement], results_queue(HOST)))
    )
    raw.close()
    wait_for(lambda: serial in {phone.serial for phone in known_phones(farm.db)}, "it is stored")
    wait_for(lambda: farm.broker.scheduler() is not None, "the scheduler is alive")
    return all(process.alive for process in farm.processes.values())


@pytest.mark.parametrize("count", [120, pytest.param(2000, marks=pytest.mark.slow)])
def test_no_message_ends_a_process(farm: Farm, count: int) -> None:
    pids = {name: process.pid for name, process in farm.processes.items()}
    attack(farm, count, seed=count)
    assert is_working(farm, f"PH{count}")
    wait_for(lambda: refused(farm) > count / 2, "the agent has read its messages")
    wait_for(lambda: not unfinished_jobs(farm), "every job that could be read has a report")
    assert all(process.alive for process in farm.processes.values())
    assert pids == {name: process.pid for name, process in farm.processes.items()}
    wait_for(lambda: dropped(farm) > count / 2, "ingest shows what it dropped")
    listed = json.loads(farm.command("host", "list", "--json").stdout)
    found = {item["problem"] for host in listed for item in host["problems"]}
    assert {"refuses", "dropped"} <= found
    for log in (farm.lab.root / "logs").glob("*.log"):
        text = log.read_text()
        assert "Traceback" not in text, text[-2000:]
        assert "\x1b" not in text


def dropped(farm: Farm) -> int:
    """Return how many messages of the host ingest has dropped."""
    return sum(ingest.dropped.get(HOST, 0) for ingest in farm.broker.ingest_services())


def unfinished_jobs(farm: Farm) -> set[str]:
    """Return the senseless jobs on which the agent has not reported."""
    text = (farm.lab.root / "logs" / f"agent-{HOST}.log").read_text()
    runs = {str(a_run(number)) for number in range(len(SENSELESS_CASES))}
    return {run for run in runs if f"attempt ended run={run}" not in text}


def refused(farm: Farm) -> int:
    """Return how many messages the agent has refused."""
    return sum(beat.refused for beat in farm.broker.heartbeats() if beat.host == HOST)


WRONG_TYPES = (
    ("SET", "farm:status", "[1,2]"),
    ("SET", "farm:ingests", "x"),
    ("SET", "farm:events", "x"),
    ("SET", f"farm:confirmed:{HOST}", "x"),
    ("SET", host_queue(HOST), "x"),
    ("SET", results_queue(HOST), "x"),
    ("RPUSH", heartbeat_key(HOST), "x"),
)


def test_keys_of_a_wrong_type_are_replaced(farm: Farm) -> None:
    raw = redis.Redis.from_url(farm.lab.broker_url)
    for command, key, value in WRONG_TYPES:
        raw.delete(key)
        raw.execute_command(command, key, value)  # type: ignore[no-untyped-call]
    queues = (host_queue(HOST), results_queue(HOST))
    wait_for(lambda: {raw.type(queue) for queue in queues} == {b"none"}, "both are deleted")
    top = 2**64 - 1
    raw.delete("farm:events")
    raw.xadd("farm:events", {"e": "x"}, id=f"{top}-{top}")  # no higher id exists
    assert is_working(farm, "PH1")
    wait_for(farm.broker.heartbeats, "the agent is shown again")
    event = Event(occurred_at=datetime.now(UTC), kind="control", text="hello")
    farm.broker.publish_event(event)
    assert farm.broker.latest_events(1)[1] == [event]
    assert all(process.alive for process in farm.processes.values())
    raw.close()


@pytest.mark.parametrize("text", ["[1,2]", "{}", "x", '{"at":5}', "[" * 10**5, '{"phones":1}'])
def test_a_bad_status_does_not_end_the_lab(farm: Farm, text: str) -> None:
    """`farm up` reads the status twice per second."""
    raw = redis.Redis.from_url(farm.lab.broker_url)
    raw.set("farm:status", text)
    PhoneCounter(farm.connection).poll()
    raw.close()


def test_the_files_of_a_lab_are_private(farm: Farm) -> None:
    files = [farm.lab.store_file, *(farm.lab.root / "logs").glob("*.log")]
    assert len(files) > 3
    assert [file for file in files if file.stat().st_mode & 0o077] == []


@pytest.mark.slow
def test_an_agent_without_rights_logs_it_and_starts_when_it_has_them(farm: Farm) -> None:
    raw = redis.Redis.from_url(farm.lab.broker_url)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    raw.config_set("bind", "127.0.0.1")
    raw.config_set("port", port)
    rights = ["~*", "&*", "+@all", "-brpop", "-lpush", "-set"]
    raw.execute_command("ACL", "SETUSER", "weak", "on", ">pw", *rights)  # type: ignore[no-untyped-call]
    other = Lab.read(farm.lab.root.parent / "weak", {})
    other.root.mkdir()
    wrapper = ("env", f"FARM_BROKER=redis://weak:pw@127.0.0.1:{port}/0")
    agent = agent_process(other, "older", "--private-adb", wrapper=wrapper)
    agent.start()
    try:
        wait_for(lambda: "no permissions" in agent.log_file.read_text(), "it is refused")
        time.sleep(3)
        assert agent.alive
        raw.execute_command(*["ACL", "SETUSER", "weak", "+@all"])  # type: ignore[no-untyped-call]
        heard = lambda: "older" in {beat.host for beat in farm.broker.heartbeats()}  # noqa: E731
        wait_for(heard, "it sends heartbeats")
        text = agent.log_file.read_text()
        assert "Traceback" not in text
        assert "pw" not in text
    finally:
        stop_all([agent])
        raw.close()


def publish(farm: Farm, host: str, **changes: Any) -> None:
    """Send a heartbeat of a host, with other fields."""
    beat = HostHeartbeat(host=host, sent_at=datetime.now(UTC), max_parallel=1)
    content = json.loads(beat.model_dump_json()) | changes
    raw = redis.Redis.from_url(farm.lab.broker_url)
    raw.set(heartbeat_key(host), json.dumps(content), ex=60)
    raw.close()


def shown(farm: Farm) -> dict[str, set[tuple[str, str]]]:
    """Return the hosts and problems that each of the three commands shows."""
    hosts = json.loads(farm.command("host", "list", "--json").stdout)
    status = json.loads(farm.command("status", "--json").stdout)
    doctor = json.loads(farm.command("doctor", "--json").stdout)
    return {
        "agent list": {
            (each["host"], item["problem"]) for each in hosts for item in each["problems"]
        },
        "status": {(item["host"], item["problem"]) for item in status["problems"]},
        "doctor": {(item["subject"].removeprefix("host "), item["level"]) for item in doctor},
    }


def problems_seen(farm: Farm) -> set[tuple[str, str]]:
    """Return the hosts and problems in the state of the lab."""
    view = read_lab_status(farm.connection, with_progress=False)
    return {(item.host, item.problem) for item in view.host_problems}


@pytest.mark.slow  # two agents wait for their heartbeats
def test_hosts_that_differ_from_the_lab_are_shown(farm: Farm) -> None:
    """Other versions, an unknown name, and a second agent of one name in another folder."""
    other = Lab.read(farm.lab.root.parent / "other", {})
    other.root.mkdir()
    wrapper = ("env", f"FARM_BROKER={farm.lab.broker_url}")
    rival = agent_process(other, HOST, "--private-adb", wrapper=wrapper)
    rival.start()
    expected = {
        *{("newer", "other_protocol"), ("older", "other_software"), ("broken", "unreadable")},
        *{("stranger", "unknown_host"), (HOST, "same_name")},
    }
    try:
        publish(farm, "newer", version=2, software="9.0.0", new_field=1)
        publish(farm, "older", software="0.0.1")
        publish(farm, "broken", phones="none")
        publish(farm, "stranger")
        wait_for(lambda: expected <= problems_seen(farm), "the status names all")
        found = shown(farm)
        assert expected <= found["status"]
        assert expected <= found["agent list"]
        assert {(HOST, "error"), ("newer", "error"), ("broken", "error")} <= found["doctor"]
        assert {("ingest", "ok"), ("scheduler", "ok")} <= found["doctor"]
    finally:
        stop_all([rival])
    wait_for(lambda: (HOST, "same_name") not in problems_seen(farm), "one agent is in order")
