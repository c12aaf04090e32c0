"""The lane in trouble: each mischief once, at its worst stage, judged by the phone's own journal.

Whatever happens: never two runs at once, never a valid verdict from a spoiled run, and the phone
as it was found once the trouble is over.
"""

from typing import Any

import pytest

from tests.agent.trial import (
    LONG_AND_COOL,
    RUN,
    SOON,
    Trial,
    a_trial,
    an_impatient_agent,
    blamed,
    spoiled,
    valid,
)
from workloads.fault import Blame
from workloads.measure import Standing

__all__ = ("a_trial", "an_impatient_agent")  # fixtures


def slow(*values: str) -> Any:
    """A stage that is not the worst one."""
    return pytest.param(*values, marks=pytest.mark.slow)


def test_a_cable_out_for_two_seconds_costs_nothing(trial: Trial) -> None:
    trial.trouble("unplug", at="run@30%", for_host=2)
    valid(trial.attempt(**LONG_AND_COOL))
    assert len(trial.events("run_start")) == 1
    trial.settle()


@pytest.mark.usefixtures("impatient")
def test_a_cable_that_stays_out_is_the_phones_fault(trial: Trial) -> None:
    trial.trouble("unplug", at="run@30%")
    report = trial.attempt(**LONG_AND_COOL)
    assert report.fault is not None
    assert (report.fault.blame, report.fault.stage) == (Blame.PHONE, "run")
    trial.settle()


@pytest.mark.parametrize("at", ["run_stop", slow("write:*/policy*/scaling_min_freq#2")])
def test_unplugged_around_the_restore_it_is_restored_all_the_same(trial: Trial, at: str) -> None:
    trial.trouble("unplug", at=at, for_host=1)
    trial.attempt()
    trial.settle()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("at", [slow("push:*.part#2"), slow("command:settings put *"), RUN])
def test_a_phone_that_hangs_is_found_by_our_own_deadline(trial: Trial, at: str) -> None:
    trial.phone.must(["true"])
    trial.trouble("hang", at=at, for_host=4 if at.startswith("push") else 3)
    report = trial.attempt(**LONG_AND_COOL)
    if report.fault is not None:
        assert report.fault.blame is Blame.PHONE, report.fault
    trial.settle()


@pytest.mark.usefixtures("impatient")
def test_unauthorized_in_mid_run(trial: Trial) -> None:
    trial.trouble("unauthorized", at="run@30%")
    blamed(trial.attempt(**LONG_AND_COOL), Blame.PHONE, "Unreachable")
    trial.settle()


@pytest.mark.parametrize("at", [slow(RUN), "run_start", slow("run@50%"), slow("run_stop")])
def test_a_reboot_is_the_phones_fault_however_early(trial: Trial, at: str) -> None:
    """Its folder for tmp is empty afterwards: neither fence nor list of changes is left."""
    trial.trouble("reboot", at=at)
    report = trial.attempt()
    blamed(report, Blame.PHONE, report.fault.kind if report.fault else "")
    trial.settle()


def test_a_clock_that_ignores_us(trial: Trial) -> None:
    trial.trouble("clock_ignored")
    blamed(trial.attempt(freq="low"), Blame.CONDITION, "ClockSlipped")
    trial.settle()


def test_a_clock_that_only_pretends(trial: Trial) -> None:
    trial.trouble("clock_ignored", shown=True)
    spoiled(trial.attempt(freq="low"), Standing.VOID, "the clocks held for")
    trial.settle()


@pytest.mark.usefixtures("impatient")
def test_what_does_not_go_back_is_told(trial: Trial) -> None:
    """A node that takes the old value and keeps the new one: only reading it again shows that."""
    trial.trouble("clock_ignored", at="run_stop")
    report = trial.attempt(**SOON)
    assert report.verdict is not None
    assert any("not put back" in reason for reason in report.verdict.reasons), report.verdict
    trial.settle()


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
def test_what_does_not_go_back_is_told_of_a_run_that_failed_too(trial: Trial) -> None:
    trial.trouble("low_memory", at="run@50%")
    trial.trouble("clock_ignored", at="run@40%")
    report = trial.attempt(**LONG_AND_COOL)
    assert report.fault is not None
    assert (Blame.RUNNER, True) == (report.fault.blame, "(not put back: " in report.fault.text)
    trial.settle()


def test_a_daemon_that_resets_the_clock(trial: Trial) -> None:
    """Seven seconds after the last write, when the run has long begun."""
    trial.trouble("clock_reset", after_s=7, leaf="scaling_m*_freq")
    report = trial.attempt(freq="low")
    if report.fault is not None:  # a host so busy that the daemon was faster
        blamed(report, Blame.CONDITION, "ClockSlipped")
    else:
        spoiled(report, Standing.VOID, "the clocks held for")
    trial.settle()


def test_throttled_in_mid_run(trial: Trial) -> None:
    trial.trouble("throttle", at="run@50%")
    spoiled(trial.attempt(), Standing.VOID, "the clocks held for")
    trial.settle()


@pytest.mark.parametrize("value", [slow("-40"), slow("999"), slow("text"), "missing"])
def test_a_sensor_that_lies_while_we_wait(trial: Trial, value: str) -> None:
    trial.trouble("sensor", value=value)
    blamed(trial.attempt(), Blame.CONDITION, "SensorMissing")
    assert not trial.events("run_start")
    trial.settle()


@pytest.mark.parametrize("value", [slow("-40"), slow("missing"), "frozen"])
def test_a_sensor_that_lies_in_the_run(trial: Trial, value: str) -> None:
    trial.trouble("sensor", value=value, at=RUN)
    report = trial.attempt()
    assert report.fault is None, report.fault
    assert report.verdict is not None
    assert report.verdict.standing is not Standing.VALID
    trial.settle()


def test_a_phone_that_never_cools(trial: Trial) -> None:
    trial.trouble("never_cools")
    blamed(trial.attempt(cool_wait_max_s=60), Blame.CONDITION, "TooHot")
    assert not trial.events("run_start")
    trial.settle()


def test_a_battery_that_drains(trial: Trial) -> None:
    trial.trouble("battery_drains", percent=12)
    blamed(trial.attempt(), Blame.CONDITION, "BatteryLow")
    trial.peace()
    trial.trouble("battery_drains", percent=85, per_min=0)
    trial.settle()


@pytest.mark.parametrize("at", [slow("push:*.part"), slow("command:settings put *"), "run@20%"])
def test_a_disk_that_is_full(trial: Trial, at: str) -> None:
    trial.trouble("disk_full", at=at)
    report = trial.attempt(**LONG_AND_COOL)
    assert report.fault is not None
    assert report.fault.blame is Blame.PHONE, report.fault
    trial.settle()


def test_a_runner_that_is_killed_for_its_memory(trial: Trial) -> None:
    trial.trouble("low_memory", at="run@50%")
    blamed(trial.attempt(), Blame.RUNNER, "DiesLater")
    trial.settle()


def test_a_dead_man_that_is_killed(trial: Trial) -> None:
    trial.trouble("low_memory", command="*runner* guard *", at="push:*.part#2")
    blamed(trial.attempt(), Blame.PHONE, "PhoneTrouble")
    assert not trial.events("run_start")
    trial.settle()


def test_readings_that_are_cut_short(trial: Trial) -> None:
    trial.trouble("truncated", command="cat *readings.jsonl", bytes=2000)
    report = trial.attempt()
    assert report.fault is not None or (
        report.verdict is not None and report.verdict.standing is not Standing.VALID
    )
    trial.settle()


def test_readings_without_end(trial: Trial) -> None:
    trial.trouble("endless", command="cat *readings.jsonl")
    blamed(trial.attempt(), Blame.PHONE, "ShellFailed")
    trial.settle()


@pytest.mark.parametrize(
    "command", ["cat *readings.jsonl", slow("tail *out.jsonl"), slow("grep *")]
)
def test_hostile_words_are_never_our_own_fault(trial: Trial, command: str) -> None:
    """FARM means again and again, without a count: no phone may earn that by what it prints."""
    trial.trouble("hostile", command=command)
    report = trial.attempt()
    if report.fault is not None:
        assert report.fault.blame is not Blame.FARM, report.fault
        assert report.fault.text.isprintable()
    trial.settle()


def test_a_slow_link_only_takes_longer(trial: Trial) -> None:
    trial.trouble("slow", bytes_per_s=200_000, latency_s=0.01)
    valid(trial.attempt())
    trial.settle()


def test_an_old_adbd_is_the_phones_fault(trial: Trial) -> None:
    trial.found = trial.looks()
    trial.phone.close()
    trial.trouble("version_clash")
    report = trial.attempt()
    assert report.fault is not None
    assert report.fault.blame is Blame.PHONE
    trial.settle()
