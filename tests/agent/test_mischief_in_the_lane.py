"""Injected faults in the lane: each once, at its worst stage, checked by the phone's journal.

After any fault: never two runs at once, never a valid verdict on a disturbed run, and a restored
phone once the fault is over.
"""

from pathlib import Path
from typing import Any

import pytest

from agent.deadline import Deadline
from agent.lane_context import LaneContext
from agent.phone.adb import AdbServer
from tests.agent.lane_harness import (
    LAUNCH,
    LONG_AND_COOL,
    QUICK,
    LaneHarness,
    assert_fault,
    assert_reason,
    assert_valid,
    open_lane_harness,
)
from workloads.protocol.faults import Blame, FaultKind
from workloads.protocol.stage import Stage
from workloads.protocol.verdict import ReasonCode, Validity


def slow(*values: str) -> Any:
    """Mark a stage that is not the worst one as slow."""
    return pytest.param(*values, marks=pytest.mark.slow)


def test_a_cable_out_for_two_seconds_does_not_fail_the_run(lane_harness: LaneHarness) -> None:
    lane_harness.inject("unplug", at="run@30%", for_host=2)
    assert_valid(lane_harness.run_attempt(**LONG_AND_COOL))
    assert len(lane_harness.events("run_start")) == 1
    lane_harness.verify_recovery()


def test_a_cable_out_for_a_second_does_not_fail_a_cooldown(lane_harness: LaneHarness) -> None:
    lane_harness.inject("unplug", at="command:sleep *", for_host=1)
    report = lane_harness.run_attempt(**{**QUICK, "start_temp_max_c": 40})
    assert_valid(report)
    assert len(lane_harness.events("run_start")) == 1


@pytest.mark.usefixtures("short_timeouts")
def test_a_cable_that_stays_out_is_the_phones_fault(lane_harness: LaneHarness) -> None:
    lane_harness.inject("unplug", at="run@30%")
    report = lane_harness.run_attempt(**LONG_AND_COOL)
    assert report.fault is not None
    assert (report.fault.blame, report.fault.stage) == (Blame.PHONE, Stage.RUN)
    lane_harness.verify_recovery()


@pytest.mark.parametrize("trigger", ["run_stop", slow("write:*/policy*/scaling_min_freq#2")])
def test_a_phone_unplugged_during_the_restore_is_restored_later(
    lane_harness: LaneHarness, trigger: str
) -> None:
    lane_harness.inject("unplug", at=trigger, for_host=1)
    lane_harness.run_attempt()
    lane_harness.verify_recovery()


@pytest.mark.usefixtures("short_timeouts")
@pytest.mark.parametrize("trigger", [slow("push:*.part#2"), slow("command:settings put *"), LAUNCH])
def test_a_phone_that_hangs_is_found_by_our_own_deadline(
    lane_harness: LaneHarness, trigger: str
) -> None:
    lane_harness.phone.shell_checked(["true"])
    lane_harness.inject("hang", at=trigger, for_host=4 if trigger.startswith("push") else 3)
    report = lane_harness.run_attempt(**LONG_AND_COOL)
    if report.fault is not None:
        assert report.fault.blame is Blame.PHONE, report.fault
    lane_harness.verify_recovery()


@pytest.mark.usefixtures("short_timeouts")
def test_unauthorized_during_the_run(lane_harness: LaneHarness) -> None:
    lane_harness.inject("unauthorized", at="run@30%")
    assert_fault(lane_harness.run_attempt(**LONG_AND_COOL), Blame.PHONE, FaultKind.UNREACHABLE)
    lane_harness.verify_recovery()


@pytest.mark.parametrize("trigger", [slow(LAUNCH), "run_start", slow("run@50%"), slow("run_stop")])
def test_a_reboot_at_any_stage_is_a_phone_fault(lane_harness: LaneHarness, trigger: str) -> None:
    """The tmp folder is empty after it: neither fence nor list of changes is left."""
    lane_harness.inject("reboot", at=trigger)
    report = lane_harness.run_attempt()
    assert report.fault is not None
    assert report.fault.blame is Blame.PHONE, report.fault
    lane_harness.verify_recovery()


def test_a_clock_that_ignores_writes(lane_harness: LaneHarness) -> None:
    lane_harness.inject("clock_ignored")
    assert_fault(lane_harness.run_attempt(freq="low"), Blame.CONDITION, FaultKind.CLOCK_SLIPPED)
    lane_harness.verify_recovery()


def test_a_clock_that_shows_a_wrong_value(lane_harness: LaneHarness) -> None:
    lane_harness.inject("clock_ignored", shown=True)
    assert_reason(lane_harness.run_attempt(freq="low"), Validity.VOID, ReasonCode.CLOCKS_NOT_PINNED)
    lane_harness.verify_recovery()


@pytest.mark.usefixtures("short_timeouts")
def test_a_restore_error_is_reported(lane_harness: LaneHarness) -> None:
    """A node that accepts the old value but keeps the new one: only reading it back shows that."""
    lane_harness.inject("clock_ignored", at="run_stop")
    report = lane_harness.run_attempt(**QUICK)
    assert report.verdict is not None
    assert report.restore_error is not None
    lane_harness.verify_recovery()


@pytest.mark.slow
@pytest.mark.usefixtures("short_timeouts")
def test_a_failed_run_reports_its_restore_error_too(lane_harness: LaneHarness) -> None:
    lane_harness.inject("low_memory", at="run@50%")
    lane_harness.inject("clock_ignored", at="run@40%")
    report = lane_harness.run_attempt(**LONG_AND_COOL)
    assert report.fault is not None
    assert report.fault.blame is Blame.RUNNER
    assert report.restore_error is not None
    lane_harness.verify_recovery()


def test_a_daemon_that_resets_the_clock(lane_harness: LaneHarness) -> None:
    lane_harness.inject("clock_reset", after_s=7, leaf="scaling_m*_freq")
    report = lane_harness.run_attempt(freq="low")
    if report.fault is not None:  # on a busy host the daemon may be faster
        assert_fault(report, Blame.CONDITION, FaultKind.CLOCK_SLIPPED)
    else:
        assert_reason(report, Validity.VOID, ReasonCode.CLOCKS_NOT_PINNED)
    lane_harness.verify_recovery()


def test_throttled_during_the_run(lane_harness: LaneHarness) -> None:
    lane_harness.inject("throttle", at="run@50%")
    assert_reason(lane_harness.run_attempt(), Validity.VOID, ReasonCode.CLOCKS_NOT_PINNED)
    lane_harness.verify_recovery()


@pytest.mark.parametrize("value", [slow("-40"), slow("999"), slow("text"), "missing"])
def test_a_wrong_sensor_during_the_cooldown(lane_harness: LaneHarness, value: str) -> None:
    lane_harness.inject("sensor", value=value)
    assert_fault(lane_harness.run_attempt(), Blame.CONDITION, FaultKind.SENSOR_MISSING)
    assert not lane_harness.events("run_start")
    lane_harness.verify_recovery()


@pytest.mark.parametrize("value", [slow("-40"), slow("missing"), "frozen"])
def test_a_wrong_sensor_during_the_run(lane_harness: LaneHarness, value: str) -> None:
    validity = Validity.VALID
    # A sensor that froze at whole degrees looks like a coarse one in a short run; that is rare.
    for fence in range(1, 4):
        if validity is Validity.VALID:
            lane_harness.clear_faults()
            lane_harness.inject("sensor", value=value, at=LAUNCH)
            report = lane_harness.run_attempt(fence)
            assert report.fault is None, report.fault
            assert report.verdict is not None
            validity = report.verdict.validity
    assert validity is not Validity.VALID
    lane_harness.verify_recovery()


def test_a_phone_that_never_cools(lane_harness: LaneHarness) -> None:
    lane_harness.inject("never_cools")
    assert_fault(lane_harness.run_attempt(cool_wait_max_s=60), Blame.CONDITION, FaultKind.TOO_HOT)
    assert not lane_harness.events("run_start")
    lane_harness.verify_recovery()


def test_a_battery_that_drains(lane_harness: LaneHarness) -> None:
    lane_harness.inject("battery_drains", percent=12)
    assert_fault(lane_harness.run_attempt(), Blame.CONDITION, FaultKind.BATTERY_LOW)
    lane_harness.clear_faults()
    lane_harness.inject("battery_drains", percent=85, per_min=0)
    lane_harness.verify_recovery()


@pytest.mark.parametrize(
    "trigger", [slow("push:*.part"), slow("command:settings put *"), "run@20%"]
)
def test_a_disk_that_is_full(lane_harness: LaneHarness, trigger: str) -> None:
    lane_harness.inject("disk_full", at=trigger)
    report = lane_harness.run_attempt(**LONG_AND_COOL)
    assert report.fault is not None
    assert report.fault.blame is Blame.PHONE, report.fault
    lane_harness.verify_recovery()


def test_a_runner_that_is_killed_for_its_memory(lane_harness: LaneHarness) -> None:
    lane_harness.inject("low_memory", at="run@50%")
    assert_fault(lane_harness.run_attempt(), Blame.RUNNER, FaultKind.KILLED)
    lane_harness.verify_recovery()


def test_a_watchdog_that_is_killed(lane_harness: LaneHarness) -> None:
    lane_harness.inject("low_memory", command="*runner* watchdog *", at="push:*.part#2")
    assert_fault(lane_harness.run_attempt(), Blame.PHONE, FaultKind.PHONE_TROUBLE)
    assert not lane_harness.events("run_start")
    lane_harness.verify_recovery()


def test_truncated_readings(lane_harness: LaneHarness) -> None:
    lane_harness.inject("truncated", command="cat *readings.jsonl", bytes=2000)
    report = lane_harness.run_attempt()
    assert report.fault is not None or (
        report.verdict is not None and report.verdict.validity is not Validity.VALID
    )
    lane_harness.verify_recovery()


def test_endless_readings(lane_harness: LaneHarness) -> None:
    lane_harness.inject("endless", command="cat *readings.jsonl")
    assert_fault(lane_harness.run_attempt(), Blame.PHONE, FaultKind.SHELL_FAILED)
    lane_harness.verify_recovery()


@pytest.mark.parametrize(
    "command", ["cat *readings.jsonl", slow("tail *out.jsonl"), slow("grep *")]
)
def test_hostile_output_is_never_a_farm_fault(lane_harness: LaneHarness, command: str) -> None:
    """FARM faults are retried without limit: no output of a phone may cause one."""
    lane_harness.inject("hostile", command=command)
    report = lane_harness.run_attempt()
    if report.fault is not None:
        assert report.fault.blame is not Blame.FARM, report.fault
        assert report.fault.text.isprintable()
    lane_harness.verify_recovery()


def test_a_slow_link_only_takes_longer(lane_harness: LaneHarness) -> None:
    lane_harness.inject("slow", bytes_per_s=200_000, latency_s=0.01)
    assert_valid(lane_harness.run_attempt())
    lane_harness.verify_recovery()


def test_an_adbd_without_the_second_shell_protocol_is_used(lane_harness: LaneHarness) -> None:
    """Android 6."""
    lane_harness.initial_state = lane_harness.read_phone_state()
    lane_harness.phone.close()
    lane_harness.inject("version_clash")
    deadline = Deadline.after(120)
    while not lane_harness.answers():
        assert not deadline.expired
    assert_valid(lane_harness.run_attempt())
    lane_harness.verify_recovery()


@pytest.mark.parametrize(
    ("profile", "rooted"),
    [("meizu-16t", True), ("vivo-x100", True), ("meizu-16t:stock", False)],
)
def test_a_phone_that_kills_the_children_of_adbd(
    adb: AdbServer, context: LaneContext, tmp_path: Path, profile: str, rooted: bool
) -> None:
    """With root the run survives in another cgroup; without, the phone is blamed."""
    with open_lane_harness(adb, context, tmp_path, profile) as harness:
        assert harness.phone.facts.rooted is rooted
        harness.inject("adbd_restarts", at="run@50%", for_host=0.3)
        report = harness.run_attempt(start_temp_max_c=None)
        assert harness.events("mischief_start")
        if rooted:
            assert_valid(report)
        else:
            assert_fault(report, Blame.PHONE, FaultKind.PROCESSES_KILLED)
            assert report.restore_error is None
            assert_valid(harness.run_attempt(fence=2, start_temp_max_c=None))
