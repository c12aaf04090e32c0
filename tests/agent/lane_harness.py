"""A lane on trial: a phone, trouble behind the agent's back, and what must hold afterwards."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agent.control.clocks import PolicyState, read_policies
from agent.control.journal import journal_file, restore_leftovers
from agent.control.quiet import settings_for
from agent.deadline import Deadline
from agent.desk import Desk
from agent.lane import attempt
from agent.phone.adb import AdbServer
from agent.phone.phone import Phone
from agent.virtual.mischief.control import ask_control
from agent.virtual.shelf import ShelfPlan, shelf_in_thread
from tests.agent.jobs import a_job
from tests.agent.virtual_phones import open_phone, reaching
from workloads.fault import Blame, FarmError
from workloads.measure import Standing
from workloads.messages import Report

RUN = "command:taskset *"  # the launch
POLICIES = (0, 4, 7)
# A run that asks for a clock and needs no cold phone: what shows that the next one comes to pass.
SOON = {"cores": "little2", "freq": "low", "start_temp_max_c": None}
LONG_AND_COOL = {**SOON, "protocol": "endurance", "time_min_s": 200}


@dataclass
class Trial:
    """A phone, the agent's view of it, and the way to make trouble behind the agent's back."""

    adb: AdbServer
    phone: Phone
    desk: Desk
    control: Path
    witness: Path
    found: object = None

    def trouble(self, kind: str, **words: object) -> None:
        words = {name.rstrip("_"): value for name, value in words.items()}
        ask_control(self.control, {"do": "add", "kind": kind, **words})

    def peace(self) -> None:
        """All trouble ends, and the agent has the phone again."""
        ask_control(self.control, {"do": "clear"})
        deadline = Deadline.after(20)
        while not self.answers():
            assert not deadline.expired
            time.sleep(0.05)

    def answers(self) -> bool:
        try:
            self.adb.connect(self.phone.address, Deadline.after(5))
            return self.phone.shell(["true"], Deadline.after(2)).status == 0
        except FarmError:
            return False

    def attempt(self, fence: int = 1, **condition: Any) -> Report:
        """One job, from what the phone is like now."""
        if self.found is None:
            self.found = self.looks()
        job = a_job(self.phone.known.serial, fence, **condition)
        return attempt(job, self.phone, self.desk).report

    def looks(self) -> tuple[dict[int, PolicyState], list[str]]:
        settings = settings_for(self.phone.address)
        answers = self.phone.batch([setting.get() for setting in settings])
        return read_policies(self.phone, POLICIES), [answer.text for answer in answers]

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        lines = map(json.loads, self.witness.read_text().splitlines())
        return [event for event in lines if event["event"] in kinds]

    def settle(self) -> None:
        """Peace, leftovers put back, and everything that must hold after any trouble."""
        self.peace()
        restore_leftovers(self.phone, self.desk.state_dir)
        cool = Deadline.after(15)  # a cap of heat goes by itself
        while self.looks() != self.found and not cool.expired:
            time.sleep(0.1)
        assert self.looks() == self.found
        assert not journal_file(self.desk.state_dir, self.phone.known.serial).exists()
        at_once = 0
        for event in self.events("run_start", "run_stop"):
            at_once += 1 if event["event"] == "run_start" else -1
            assert 0 <= at_once <= 1
        assert at_once == 0
        again = self.attempt(fence=99, **SOON)
        assert again.fault is None, again.fault
        assert again.verdict is not None
        assert again.verdict.standing is Standing.VALID, again.verdict.reasons


@pytest.fixture(name="trial")
def a_trial(adb: AdbServer, desk: Desk, tmp_path: Path) -> Iterator[Trial]:
    with on_trial(adb, desk, tmp_path) as trial:
        yield trial


@contextmanager
def on_trial(
    adb: AdbServer, desk: Desk, folder: Path, profile: str = "meizu-16t", speed: float = 100.0
) -> Iterator[Trial]:
    """A phone of a kind, in a thread: it is there at once and hears of trouble at once."""
    control = folder / "control"
    plan = ShelfPlan((profile,), speed=speed, journal=folder / "witness", control=control)
    with shelf_in_thread(plan) as (_, (address,)):
        phone = open_phone(adb, address.address)
        witness = folder / "witness" / f"{address.serial}.jsonl"
        with reaching(adb, address.address):
            yield Trial(adb, phone, desk, control, witness)
        phone.close()
        adb.disconnect(address.address)


@pytest.fixture(name="impatient")
def an_impatient_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that gives up soon."""
    monkeypatch.setattr("agent.run.runner.PATIENCE_S", 0.5)
    monkeypatch.setattr("agent.run.runner.CALL_S", 1.0)
    monkeypatch.setattr("agent.phone.phone.CALL_S", 1.0)
    monkeypatch.setattr("agent.control.cooldown.CALL_S", 1.0)
    monkeypatch.setattr("agent.control.custody.RESTORE_PATIENCE_S", 0.5)


def blamed(report: Report, blame: Blame, kind: str) -> None:
    assert report.fault is not None, report.verdict
    assert (report.fault.blame, report.fault.kind) == (blame, kind), report.fault
    assert report.verdict is None
    assert not report.metrics


def valid(report: Report) -> None:
    assert report.fault is None, report.fault
    assert report.verdict is not None
    assert report.verdict.standing is Standing.VALID, report.verdict.reasons


def spoiled(report: Report, standing: Standing, words: str) -> None:
    assert report.fault is None, report.fault
    assert report.verdict is not None
    assert report.verdict.standing is standing, report.verdict
    assert any(words in reason for reason in report.verdict.reasons), report.verdict.reasons
