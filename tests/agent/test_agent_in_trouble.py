"""The agent in trouble: killed, frozen, without adb or cable, its phone taken to another host.

Whatever happens: never two runs at once on a phone, no run that counts twice, and the phone as it
was found once somebody has it again. Each once by default, at its worst stage; the product is slow.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.deadline import Deadline
from agent.lane import attempt
from agent.phone.adb import AdbServer
from tests.agent.jobs import a_job
from tests.agent.trial import LONG_AND_COOL, SOON, Trial, a_trial, an_impatient_agent, valid
from tests.agent.virtual_phones import open_phone
from workloads.fault import Blame
from workloads.measure import Standing

__all__ = ("a_trial", "an_impatient_agent")  # fixtures

STAGES = ("fence", "install", "guard", "charge", "quiet", "prepare", "cool", "pin")
STAGES += ("canary", "run", "canary_after", "harvest", "restore", "over")
# By default the worst stage alone.
BUT_ONE = [
    stage if stage == "run" else pytest.param(stage, marks=pytest.mark.slow) for stage in STAGES
]
# A lane that sends itself a signal as soon as it enters a stage, and prints what became of it.
LANE = """
import os, sys
from pathlib import Path
from agent.desk import Desk
from agent.lane import attempt
from agent.lane_view import LaneView
from agent.phone.adb import AdbServer
from tests.agent.jobs import a_job
from tests.agent.trial import SOON
from tests.agent.virtual_phones import open_phone

address, port, state, stage, signal = sys.argv[1:]

class View(LaneView):
    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if name == "stage" and value == ("" if stage == "over" else stage):
            if getattr(self, "armed", False):
                os.kill(os.getpid(), int(signal))

phone = open_phone(AdbServer(Path(state) / "adb", private=False, port=int(port)), address)
view = View()
object.__setattr__(view, "armed", True)
desk = Desk(host="host-a", state_dir=Path(state), view=view, canary=False)
print(attempt(a_job(phone.known.serial, fence=1, **SOON), phone, desk).report.model_dump_json())
"""


@contextmanager
def a_lane(trial: Trial, stage: str, number: int) -> Iterator["subprocess.Popen[str]"]:
    """An agent in a process of its own, which gets its signal at a stage."""
    trial.found = trial.looks()
    words = [trial.phone.address, str(trial.adb.port), str(trial.desk.state_dir), stage]
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
def test_an_agent_that_is_killed_leaves_nothing_behind(trial: Trial, stage: str) -> None:
    with a_lane(trial, stage, signal.SIGKILL) as lane:
        assert -signal.SIGKILL == lane.wait(30)
    trial.settle()


@pytest.mark.parametrize("stage", BUT_ONE)
def test_an_agent_that_was_frozen_finds_itself_overtaken(
    trial: Trial, stage: str, tmp_path: Path
) -> None:
    """Another host has the phone meanwhile; what the first wakes up to do is refused."""
    with a_lane(trial, stage, signal.SIGSTOP) as lane:
        _wait_until_stopped(lane.pid)
        own = trial.desk
        trial.desk = replace(own, host="host-b", state_dir=tmp_path / "host-b")
        valid(trial.attempt(fence=2, **SOON))
        os.kill(lane.pid, signal.SIGCONT)
        report = json.loads(lane.communicate(timeout=60)[0])
        trial.desk = own
    finished = stage in {"restore", "over"}  # its run was over and brought in
    assert (report["fault"] is None) == finished, report["fault"]
    if not finished:
        assert report["fault"]["blame"] in {Blame.FARM, Blame.PHONE}, report["fault"]
    trial.settle()


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES[:-1])
def test_a_killed_adb_server_never_spoils_a_run(trial: Trial, stage: str) -> None:
    """It is started again, and the lane goes on or says why not."""
    trial.found = trial.looks()
    job = a_job(trial.phone.known.serial, **SOON)
    killer = threading.Thread(target=_kill_adb_at, args=(trial, stage), daemon=True)
    killer.start()
    report = attempt(job, trial.phone, trial.desk).report
    killer.join()
    if report.fault is not None:
        assert report.fault.blame in {Blame.FARM, Blame.PHONE}, report.fault
    else:
        assert report.verdict is not None
        assert report.verdict.standing is not Standing.VOID, report.verdict
    trial.settle()


@pytest.mark.slow
@pytest.mark.parametrize("away_s", [2, 300])
@pytest.mark.parametrize("at", ["command:settings put *#2", "command:taskset *", "run@30%"])
def test_a_phone_without_a_cable_for_so_long(trial: Trial, at: str, away_s: int) -> None:
    """After two seconds it goes on; after five minutes the phone has put itself back."""
    trial.trouble("unplug", at=at, for_host=away_s)
    report = trial.attempt(**LONG_AND_COOL)
    back = Deadline.after(away_s + 30)
    while not trial.answers():
        assert not back.expired
        time.sleep(0.5)
    if away_s == 2 and at.startswith("run"):
        valid(report)
    elif report.fault is not None:
        assert report.fault.blame is Blame.PHONE, report.fault
    if away_s > 60:  # the dead-man's patience
        assert trial.events("guard_restores")
    trial.settle()


@pytest.mark.usefixtures("impatient")
def test_a_phone_that_is_taken_to_another_host_belongs_to_it(trial: Trial, tmp_path: Path) -> None:
    """The first lane comes back to a phone with a newer lease, and leaves it alone."""
    trial.found = trial.looks()
    taken = threading.Event()
    reports = []
    with AdbServer(tmp_path / "adb-b") as other:
        there = open_phone(other, trial.phone.address)

        def take() -> None:
            _wait_for(lambda: trial.events("run_start"))
            desk = replace(trial.desk, host="host-b", state_dir=tmp_path / "host-b")
            desk = replace(desk, view=type(desk.view)())
            reports.append(attempt(a_job(there.known.serial, 2, **SOON), there, desk).report)
            taken.set()

        threading.Thread(target=take, daemon=True).start()
        first = trial.attempt(fence=1, **LONG_AND_COOL)
        assert taken.wait(30)
        there.close()
    assert first.fault is not None
    assert first.fault.kind == "LeaseLost", first.fault
    valid(reports[0])
    trial.settle()


def _wait_until_stopped(pid: int) -> None:
    _wait_for(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")


def _wait_for(come: Any) -> None:
    deadline = Deadline.after(30)
    while not come():
        assert not deadline.expired
        time.sleep(0.005)


def _kill_adb_at(trial: Trial, stage: str) -> None:
    _wait_for(lambda: trial.desk.view.stage == stage or trial.events("run_stop"))
    assert trial.adb._child is not None
    trial.adb._child.kill()
