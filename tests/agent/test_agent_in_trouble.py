"""The agent in trouble: killed, frozen, without adb or cable, its phone taken to another host.

Whatever happens: never two runs at once on a phone, no run that counts twice, and a phone that is
restored once an agent has it again. By default only the worst stage is tested; all are slow.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from agent.deadline import Deadline
from agent.lane import run_attempt
from agent.phone.adb import AdbServer
from tests.agent.jobs import a_job
from tests.agent.lane_harness import LONG_AND_COOL, QUICK, LaneHarness, assert_valid
from tests.agent.virtual_phones import open_phone
from workloads.protocol.faults import Blame, FaultKind
from workloads.protocol.stage import Stage
from workloads.protocol.verdict import Validity

OVER = "over"  # the lane has ended
STAGES = [str(stage) for stage in Stage if stage not in {Stage.START, Stage.RESOLVE, Stage.UNKNOWN}]
STAGES.append(OVER)
# By default only the worst stage.
WORST_AND_SLOW_STAGES = [
    stage if stage == "run" else pytest.param(stage, marks=pytest.mark.slow) for stage in STAGES
]
# A lane that sends itself a signal as soon as it enters a stage, and prints its report.
LANE = """
import os, sys
from pathlib import Path
from agent.lane import run_attempt
from agent.lane_context import LaneContext
from agent.lane_status import LaneStatus
from agent.phone.adb import AdbServer
from tests.agent.jobs import a_job
from tests.agent.lane_harness import QUICK
from tests.agent.virtual_phones import open_phone

address, port, state, stage, signal = sys.argv[1:]

class StatusWithSignal(LaneStatus):
    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if name == "stage" and value == (None if stage == "over" else stage):
            if getattr(self, "armed", False):
                os.kill(os.getpid(), int(signal))

phone = open_phone(AdbServer(Path(state) / "adb", private=False, port=int(port)), address)
status = StatusWithSignal()
object.__setattr__(status, "armed", True)
context = LaneContext("host-a", Path(state), status=status, canary=False)
job = a_job(phone.facts.serial, fence=1, **QUICK)
print(run_attempt(job, phone, context).report.model_dump_json())
"""


@contextmanager
def a_lane(lane_harness: LaneHarness, stage: str, number: int) -> Iterator["subprocess.Popen[str]"]:
    """Run an agent in another process, which sends itself a signal at a stage."""
    lane_harness.initial_state = lane_harness.read_phone_state()
    words = [
        lane_harness.phone.address,
        str(lane_harness.adb.port),
        str(lane_harness.context.state_dir),
        stage,
    ]
    lane = subprocess.Popen(
        [sys.executable, "-c", LANE, *words, str(int(number))], stdout=subprocess.PIPE, text=True
    )
    try:
        yield lane
    finally:
        lane.kill()
        lane.wait()


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_an_agent_that_is_killed_leaves_nothing_behind(
    lane_harness: LaneHarness, stage: str
) -> None:
    with a_lane(lane_harness, stage, signal.SIGKILL) as lane:
        assert lane.wait(300) == -signal.SIGKILL
    lane_harness.verify_recovery()


@pytest.mark.parametrize("stage", WORST_AND_SLOW_STAGES)
def test_a_frozen_agent_is_superseded(
    lane_harness: LaneHarness, stage: str, tmp_path: Path
) -> None:
    with a_lane(lane_harness, stage, signal.SIGSTOP) as lane:
        _wait_until_stopped(lane.pid)
        context = lane_harness.context
        lane_harness.context = replace(context, host="host-b", state_dir=tmp_path / "host-b")
        assert_valid(lane_harness.run_attempt(fence=2, **QUICK))
        os.kill(lane.pid, signal.SIGCONT)
        report = json.loads(lane.communicate(timeout=300)[0])
        lane_harness.context = context
    finished = stage in {Stage.RESTORE, OVER}  # its run was over and collected
    assert (report["fault"] is None) == finished, report["fault"]
    if not finished:
        assert report["fault"]["blame"] in {Blame.FARM, Blame.PHONE}, report["fault"]
    lane_harness.verify_recovery()


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES[:-1])
def test_a_killed_adb_server_never_makes_a_wrong_run_valid(
    lane_harness: LaneHarness, stage: str
) -> None:
    lane_harness.initial_state = lane_harness.read_phone_state()
    job = a_job(lane_harness.phone.facts.serial, **QUICK)
    killer = threading.Thread(target=_kill_adb_at, args=(lane_harness, stage), daemon=True)
    killer.start()
    report = run_attempt(job, lane_harness.phone, lane_harness.context).report
    killer.join()
    if report.fault is not None:
        assert report.fault.blame in {Blame.FARM, Blame.PHONE}, report.fault
    else:
        assert report.verdict is not None
        assert report.verdict.validity is not Validity.VOID, report.verdict
    lane_harness.verify_recovery()


@pytest.mark.slow
@pytest.mark.parametrize("away_s", [2, 300])
@pytest.mark.parametrize("trigger", ["command:settings put *#2", "command:taskset *", "run@30%"])
def test_a_phone_without_a_cable(lane_harness: LaneHarness, trigger: str, away_s: int) -> None:
    lane_harness.inject("unplug", at=trigger, for_host=away_s)
    report = lane_harness.run_attempt(**LONG_AND_COOL)
    back = Deadline.after(away_s + 30)
    while not lane_harness.answers():
        assert not back.expired
        time.sleep(0.5)
    if away_s == 2 and trigger.startswith("run"):
        assert_valid(report)
    elif report.fault is not None:
        assert report.fault.blame is Blame.PHONE, report.fault
    if away_s > 60:  # the timeout of the watchdog
        assert lane_harness.events("watchdog_restore")
    lane_harness.verify_recovery()


@pytest.mark.usefixtures("short_timeouts")
def test_a_phone_that_moves_to_another_host_belongs_to_it(
    lane_harness: LaneHarness, tmp_path: Path
) -> None:
    lane_harness.initial_state = lane_harness.read_phone_state()
    taken = threading.Event()
    reports = []
    with AdbServer(tmp_path / "adb-b") as other:
        elsewhere = open_phone(other, lane_harness.phone.address)

        def take() -> None:
            _wait_for(lambda: lane_harness.events("run_start"))
            context = replace(lane_harness.context, host="host-b", state_dir=tmp_path / "host-b")
            context = replace(context, status=type(context.status)())
            job = a_job(elsewhere.facts.serial, 2, **QUICK)
            reports.append(run_attempt(job, elsewhere, context).report)
            taken.set()

        threading.Thread(target=take, daemon=True).start()
        first = lane_harness.run_attempt(fence=1, **LONG_AND_COOL)
        assert taken.wait(300)
        elsewhere.close()
    assert first.fault is not None
    assert first.fault.kind == FaultKind.LEASE_LOST, first.fault
    assert_valid(reports[0])
    lane_harness.verify_recovery()


def _wait_until_stopped(pid: int) -> None:
    _wait_for(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")


def _wait_for(condition: Callable[[], object]) -> None:
    deadline = Deadline.after(120)
    while not condition():
        assert not deadline.expired
        time.sleep(0.005)


def _kill_adb_at(lane_harness: LaneHarness, stage: str) -> None:
    _wait_for(lambda: lane_harness.context.status.stage == stage or lane_harness.events("run_stop"))
    lane_harness.adb.kill()
