"""Threads: one per core, unless the workload says otherwise; each stays on its core."""

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.collect.readings import Readings, parse_readings
from agent.collect.thread_affinity import TASKS, moved_threads
from agent.deadline import Deadline
from agent.lane import run_attempt
from agent.lane_context import LaneContext
from agent.launch.launch_spec import LaunchSpec
from agent.phone.adb import AdbServer
from agent.phone.phone_driver import Phone
from agent.phone.phone_paths import OUTPUT, lane_file
from agent.virtual.fleet_server import FleetConfig
from tests.agent.jobs import a_job
from tests.agent.virtual_phones import open_phone
from tests.busy_computer import CORE_REASONS, assert_accepted, needs_two_cores, needs_x86
from tests.virtual.running_fleet import serve_fleet_in_process
from workloads.catalogue import bind, lower
from workloads.protocol.condition import LAUNCHES, Protocol
from workloads.protocol.messages import Report
from workloads.protocol.phone_facts import CoreSet
from workloads.protocol.verdict import ReasonCode, Validity


def test_the_workload_decides_and_the_plan_states_it() -> None:
    cores = CoreSet(name="big2", cpus=(4, 5))
    for name, threads in (("mlp-4", 2), ("emdl-lenet", 4)):
        spec = LaunchSpec("runner", bind(name, {}), cores, LAUNCHES[Protocol.COLD], ())
        assert spec.threads == threads
        plan = lower(spec.case, spec.threads)
        assert json.loads(plan.split(b"\n")[1])["threads"] == threads


@pytest.mark.parametrize("cores", ["big2", "all8"])
def test_more_and_fewer_threads_than_cores_are_accepted(
    phone: Phone, context: LaneContext, cores: str
) -> None:
    job = a_job(phone.facts.serial, workload="emdl-lenet", cores=cores)
    report = run_attempt(job, phone, context).report
    assert report.fault is None
    assert report.applied.threads == 4
    assert report.verdict is not None
    assert report.verdict.validity is Validity.VALID, report.verdict.reasons


def masks(*texts: str | None) -> Readings:
    lines = [{"line": "nodes", "paths": [TASKS]}]
    lines += [{"line": "reading", "t_ns": n, "v": [text]} for n, text in enumerate(texts)]
    return parse_readings("".join(f"{json.dumps(line)}\n" for line in lines).encode())


@pytest.mark.parametrize(
    ("text", "threads", "moved"),
    [
        ("2 0 3 0", 2, None),
        ("1 1 1 0", 1, None),
        ("4 0 3 0", 4, None),  # more threads than cores
        ("1 2 2 0", 1, None),  # fewer
        ("5 0 3 3", 2, None),  # three threads of a driver
        ("0 0 0 0", 2, None),  # the sampler of another program
        ("2 1 1 1", 2, (0x1, 1)),  # both on one core
        ("2 0 3 1", 2, (0x3, 1)),  # one of them on both
        ("2 0 3 2", 2, (0x3, 0)),  # their cores exchanged
        ("2 0 5 1", 2, (0x5, 1)),  # outside
        ("3 0 7 1", 2, (0x7, 2)),  # a driver's thread outside
        ("1 1 1 0", 2, (0x1, 1)),  # a thread ended
        ("3 0 3 0", 2, (0x3, 3)),  # more work than requested
    ],
)
def test_a_thread_that_left_its_core_is_found(
    text: str, threads: int, moved: tuple[int, int] | None
) -> None:
    good = f"{threads} 0 3 0"
    found = moved_threads(masks(good, None, text), 0x3, threads)
    assert (found and found[1:]) == moved
    assert found is None or found.t_ns == 2


@pytest.fixture(scope="module")
def native_phone(adb: AdbServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Phone]:
    """This computer as a phone, with the real runner."""
    folder = tmp_path_factory.mktemp("native")
    fleet = FleetConfig(("meizu-16t",), native=True, journal=folder / "journals")
    with serve_fleet_in_process(fleet) as (address,):
        phone = open_phone(adb, address.address)
        yield phone
        phone.close()
        adb.disconnect(address.address)


def runner_threads(phone: Phone) -> list[int]:
    """The threads of the running runner that are pinned to one core, the first one first."""
    deadline = Deadline.after(120)
    while not deadline.expired:
        printed = phone.shell(["cat", lane_file(OUTPUT)]).text
        if '"window"' in printed:
            pid = json.loads(printed.splitlines()[0])["pid"]
            tids = sorted(int(task.name) for task in Path(f"/proc/{pid}/task").iterdir())
            return [tid for tid in tids if len(os.sched_getaffinity(tid)) == 1]
        time.sleep(0.1)
    raise AssertionError("the run did not begin")


def run_native(
    adb: AdbServer, phone: Phone, context: LaneContext, cores: str, moves: tuple[int, str] | None
) -> Report:
    """Run the real runner for some seconds; move a thread to other cores with `taskset -p`."""
    reports: list[Report] = []
    job = a_job(phone.facts.serial, cores=cores, freq="free", start_temp_max_c=None, time_min_s=5)
    lane = threading.Thread(
        target=lambda: reports.append(run_attempt(job, phone, context).report), name="lane"
    )
    beside = open_phone(adb, phone.address)
    beside.shell(["rm", "-f", lane_file(OUTPUT)])
    lane.start()
    if moves is not None:
        number, mask = moves
        tid = runner_threads(beside)[number]
        beside.shell_checked(["taskset", "-p", mask, str(tid)])
    lane.join(timeout=300)
    beside.close()
    assert reports, "the lane did not end"
    return reports[0]


@needs_x86
@needs_two_cores
@pytest.mark.parametrize(
    ("cores", "moves", "count"),
    [
        ("all2", (1, "1"), 1),  # within the set: both threads on one core
        ("all2", (1, "3"), 1),  # within the set: as a scheduler would
        ("all1", (0, "2"), 0),  # out of the set
    ],
)
def test_a_thread_that_is_moved_with_taskset_voids_the_run(
    adb: AdbServer,
    native_phone: Phone,
    context: LaneContext,
    cores: str,
    moves: tuple[int, str],
    count: int,
) -> None:
    report = run_native(adb, native_phone, context, cores, moves)
    assert report.fault is None, report.fault
    assert report.verdict is not None
    assert report.verdict.validity is Validity.VOID
    reasons = {reason.code: reason for reason in report.verdict.reasons}
    assert reasons[ReasonCode.THREADS_MOVED].values["count"] == count


@needs_x86
@needs_two_cores
@pytest.mark.parametrize("cores", ["all1", "all2"])
def test_a_run_whose_threads_stay_is_accepted(
    adb: AdbServer, native_phone: Phone, context: LaneContext, cores: str
) -> None:
    report = run_native(adb, native_phone, context, cores, None)
    assert report.verdict is not None, report.fault
    assert not CORE_REASONS & {reason.code for reason in report.verdict.reasons}
    assert_accepted(report.verdict)
