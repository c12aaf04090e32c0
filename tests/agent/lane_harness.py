"""LaneHarness: a phone, a lane on it, injected faults, and what must hold after any fault."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent.deadline import Deadline
from agent.lane import run_attempt
from agent.lane_context import LaneContext
from agent.phone.adb import AdbServer
from agent.phone.phone_driver import Phone
from agent.phone.shell_command import ShellCommand
from agent.prepare.clock_pinning import ClockNodes, ClockState, read_clock_states
from agent.prepare.cpu_pinning import policy_nodes
from agent.prepare.quiesce import quiet_settings
from agent.restore.restore_journal import journal_file
from agent.restore.restore_leftovers import restore_leftovers
from agent.timeouts import DEFAULT_TIMEOUTS
from agent.virtual.fleet_server import FleetConfig
from agent.virtual.mischief.control_socket import send_entry
from tests.agent.jobs import a_job
from tests.agent.virtual_phones import keep_connected, open_phone
from tests.virtual.running_fleet import serve_fleet_in_thread
from workloads.cli_options import EVENT_TIME
from workloads.protocol.faults import Blame, FarmError, FaultKind
from workloads.protocol.messages import Report
from workloads.protocol.verdict import ReasonCode, Validity

LAUNCH = "command:taskset *"
POLICIES = (0, 4, 7)
# A run with pinned clocks that needs no cold phone: it shows that the next run succeeds.
QUICK: dict[str, Any] = {"cores": "little2", "freq": "low", "start_temp_max_c": None}
LONG_AND_COOL: dict[str, Any] = {**QUICK, "protocol": "endurance", "time_min_s": 200}
# A clock that is 100 times as fast counts a minute without a heartbeat in 0.6 s of the host.
PATIENT_TIMEOUTS = replace(DEFAULT_TIMEOUTS.with_patience(50), watchdog_timeout_s=3000.0)
SHORT_TIMEOUTS = replace(
    PATIENT_TIMEOUTS,
    command_timeout_s=1.0,
    reconnect_timeout_s=0.5,
    restore_retry_timeout_s=0.5,
)


def read_policy_states(phone: Phone, policies: Sequence[int]) -> dict[ClockNodes, ClockState]:
    """Read governors and limits of cpufreq policies."""
    return read_clock_states(phone, [policy_nodes(phone.facts, each) for each in policies])


@dataclass
class LaneHarness:
    """A virtual phone, the Phone of the agent, and a way to inject faults unknown to the agent."""

    adb: AdbServer
    phone: Phone
    context: LaneContext
    control: Path
    journal: Path
    initial_state: object = None

    def inject(self, kind: str, **words: object) -> None:
        words = {name.rstrip("_"): value for name, value in words.items()}
        send_entry(self.control, {"kind": kind, **words})

    def clear_faults(self) -> None:
        """End all faults, and wait until the agent reaches the phone again."""
        send_entry(self.control, {})
        deadline = Deadline.after(120)
        while not self.answers():
            assert not deadline.expired
            time.sleep(0.05)

    def answers(self) -> bool:
        try:
            self.adb.connect(self.phone.address, Deadline.after(5))
            return self.phone.shell(["true"], Deadline.after(2)).status == 0
        except FarmError:
            return False

    def run_attempt(self, fence: int = 1, **condition: Any) -> Report:
        if self.initial_state is None:
            self.initial_state = self.read_phone_state()
        job = a_job(self.phone.facts.serial, fence, **condition)
        return run_attempt(job, self.phone, self.context).report

    def read_phone_state(self) -> tuple[dict[ClockNodes, ClockState], list[str]]:
        settings = quiet_settings(self.phone.address)
        queries = [
            ShellCommand(["settings", "get", setting.namespace, setting.name])
            for setting in settings
        ]
        results = self.phone.shell_batch(queries)
        return read_policy_states(self.phone, POLICIES), [result.text for result in results]

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        """Return the events of the journal that the virtual phone writes."""
        lines = map(json.loads, self.journal.read_text().splitlines())
        return [event for event in lines if event["event"] in kinds]

    def verify_recovery(self) -> None:
        """End all faults, restore leftovers, and check what must hold after any fault."""
        self.clear_faults()
        restore_leftovers(self.phone, self.context.state_dir)
        for _ in range(40):  # a thermal cap ends by itself
            if self.read_phone_state() == self.initial_state:
                break
            self.phone.shell(["sleep", "15"])
        assert self.read_phone_state() == self.initial_state
        assert not journal_file(self.context.state_dir, self.phone.facts.serial).exists()
        running = 0
        for event in self.events("run_start", "run_stop"):
            running += 1 if event["event"] == "run_start" else -1
            assert 0 <= running <= 1
        assert running == 0
        assert_valid(self.run_attempt(fence=99, **QUICK))


@contextmanager
def open_lane_harness(
    adb: AdbServer,
    context: LaneContext,
    folder: Path,
    profile: str = "meizu-16t",
    speed: float = EVENT_TIME,
) -> Iterator[LaneHarness]:
    """Start a phone of a profile in a thread; injected faults take effect at once."""
    control = folder / "control"
    plan = FleetConfig((profile,), speed=speed, journal=folder / "journals", control=control)
    with serve_fleet_in_thread(plan) as (_, (address,)):
        phone = open_phone(adb, address.address)
        journal = folder / "journals" / f"{address.serial}.jsonl"
        with keep_connected(adb, address.address):
            yield LaneHarness(adb, phone, context, control, journal)
        phone.close()
        adb.disconnect(address.address)


def assert_fault(report: Report, blame: Blame, kind: FaultKind) -> None:
    assert report.fault is not None, report.verdict
    assert (report.fault.blame, report.fault.kind) == (blame, kind), report.fault
    assert report.verdict is None
    assert not report.metrics


def assert_valid(report: Report) -> None:
    assert report.fault is None, report.fault
    assert report.verdict is not None
    assert report.verdict.validity is Validity.VALID, report.verdict.reasons


def assert_reason(report: Report, validity: Validity, code: ReasonCode) -> None:
    assert report.fault is None, report.fault
    assert report.verdict is not None
    assert report.verdict.validity is validity, report.verdict
    assert code in {reason.code for reason in report.verdict.reasons}, report.verdict.reasons
