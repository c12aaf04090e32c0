"""Phones that cannot be used are shown with what to do; two transports of a phone are one phone."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from agent.deadline import Deadline
from agent.lane import run_attempt
from agent.lane_context import LaneContext
from agent.phone.adb import AdbServer
from agent.phone_registry import PhoneRegistry
from agent.phone_slot import PhoneSlot
from agent.timeouts import DEFAULT_TIMEOUTS
from agent.virtual.fleet_server import FleetConfig
from tests.agent.jobs import a_job
from tests.agent.lane_harness import LONG_AND_COOL, assert_valid
from tests.virtual.running_fleet import serve_fleet_in_thread
from workloads.protocol.messages import PhoneState, Report
from workloads.protocol.unusable_phone import PhoneProblem, problem_of_state

SOON = replace(
    DEFAULT_TIMEOUTS,
    registry_poll_interval_s=0.1,
    adb_connect_timeout_s=1.0,
    idle_snapshot_interval_s=0.2,
)


@contextmanager
def running(adb: AdbServer, folder: Path, *addresses: str) -> Iterator[PhoneRegistry]:
    disconnect_all(adb)  # of other tests
    registry = PhoneRegistry(adb, addresses, folder, lambda _: None, SOON)
    registry.start()
    try:
        yield registry
    finally:
        registry.stop()
        disconnect_all(adb)


def disconnect_all(adb: AdbServer) -> None:
    for address in adb.list():
        adb.disconnect(address)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = Deadline.after(120)
    while not condition():
        assert not deadline.expired
        time.sleep(0.02)


def problems(registry: PhoneRegistry) -> dict[str, PhoneProblem]:
    return {item.address: item.problem for item in registry.unusable()}


def test_phones_that_cannot_be_used_are_shown_with_what_to_do(
    adb: AdbServer, tmp_path: Path
) -> None:
    with serve_fleet_in_thread(FleetConfig(("meizu-16t", "xiaomi-mi-9"), speed=100)) as (
        server,
        (first, second),
    ):
        server.mischief.add("unauthorized", phone=first.serial)
        server.mischief.add("truncated", phone=second.serial, command="grep *", bytes=60)
        addresses = (first.address, second.address, "127.0.0.1:9")
        with running(adb, tmp_path, *addresses) as registry:
            expected = {
                first.address: PhoneProblem.UNAUTHORIZED,
                second.address: PhoneProblem.PROBE_FAILED,
                "127.0.0.1:9": PhoneProblem.UNREACHABLE,
            }
            wait_for(lambda: problems(registry) == expected)
            texts = {item.address: item.advice for item in registry.unusable()}
            assert "tap Allow" in texts[first.address]
            assert not registry.slots()
            server.mischief.clear()
            wait_for(lambda: len(registry.slots()) == 2)
            wait_for(lambda: problems(registry).keys() == {"127.0.0.1:9"})
            # A phone that had a slot shows its problem there.
            server.mischief.add("unauthorized", phone=first.serial)
            slot = registry.slot(first.serial)
            assert slot is not None
            wait_for(lambda: slot.away_reason == PhoneProblem.UNAUTHORIZED.text)
            assert slot.phone_status().state is PhoneState.AWAY
            assert first.address not in problems(registry)


def test_a_phone_that_never_answers_is_shown_all_the_time(
    adb: AdbServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It accepts connections; adb lists it as offline in between."""
    with serve_fleet_in_thread(FleetConfig(("meizu-16t",), speed=100)) as (server, (phone,)):
        server.mischief.add("offline", phone=phone.serial)
        with running(adb, tmp_path, phone.address) as registry:
            unreachable = {phone.address: PhoneProblem.UNREACHABLE}
            wait_for(lambda: problems(registry) == unreachable)
            deadline = Deadline.after(4)
            while not deadline.expired:
                assert problems(registry) == unreachable
                time.sleep(0.05)
            lines = [line for line in caplog.messages if f"address={phone.address}" in line]
            assert len(lines) == 1, lines
            server.mischief.clear()
            wait_for(lambda: len(registry.slots()) == 1)
            assert not problems(registry)


def test_two_transports_of_a_phone_are_one_phone(
    adb: AdbServer, tmp_path: Path, context: LaneContext
) -> None:
    """A run continues over the second one when the first one is lost."""
    plan = FleetConfig(("meizu-16t", "huawei-honor-8"), speed=100)
    with serve_fleet_in_thread(plan) as (server, (phone, other)):
        port = phone.address.rpartition(":")[2]
        by_name = f"localhost:{port}"
        with running(adb, tmp_path) as registry:
            adb.connect(phone.address, Deadline.after(120))
            wait_for(lambda: len(registry.slots()) == 1)
            adb.connect(by_name, Deadline.after(120))
            server.mischief.add("duplicate_serial", phone=other.serial, serial=phone.serial)
            adb.connect(other.address, Deadline.after(120))
            wait_for(lambda: problems(registry) == {other.address: PhoneProblem.SAME_SERIAL})
            (slot,) = registry.slots()
            assert slot.phone.address == phone.address
            slot.job = a_job(slot.facts.serial, **LONG_AND_COOL)
            reports = []
            lane = threading.Thread(target=lambda: reports.append(run(slot, context)), name="lane")
            lane.start()
            wait_for(lambda: slot.status.steps is not None or not lane.is_alive())
            adb.disconnect(phone.address)
            wait_for(lambda: slot.phone.address == by_name)
            lane.join(timeout=120)
            assert_valid(reports[0])
            assert slot.phone_status().flaps == 0


def run(slot: PhoneSlot, context: LaneContext) -> Report:
    assert slot.job is not None
    context.status = slot.status
    return run_attempt(slot.job, slot.phone, context).report


def test_states_of_adb_are_problems() -> None:
    denied = "no permissions (user in plugdev group; are your udev rules wrong?); see [http://x]"
    assert problem_of_state("device") is None
    assert problem_of_state(denied) is PhoneProblem.NO_RIGHTS
    assert problem_of_state("recovery") is PhoneProblem.NOT_ANDROID
    assert problem_of_state("a state of next year") is PhoneProblem.OFFLINE
    assert all(problem.text for problem in PhoneProblem)
