"""The quiet phone: background activity is stopped, recorded first, and restored."""

from pathlib import Path

import pytest

from agent.lane import run_attempt
from agent.lane_context import LaneContext
from agent.phone.adb import AdbServer
from agent.phone.shell_command import ShellResult
from agent.prepare.charge import BatteryLevel, is_charged
from agent.prepare.quiesce import (
    COUNTER_PROPERTY,
    QUIET_SETTINGS,
    charging_steps,
    check_framework,
)
from tests.agent.conftest import StartPhone
from tests.agent.jobs import a_job
from tests.agent.lane_harness import (
    LaneHarness,
    assert_fault,
    assert_reason,
    assert_valid,
    open_lane_harness,
)
from tests.agent.virtual_phones import VirtualPhone, open_phone
from workloads.protocol.condition import Condition
from workloads.protocol.faults import BatteryLow, Blame, FaultKind, ShellFailed
from workloads.protocol.phone_facts import ChargingSwitch
from workloads.protocol.stage import Stage
from workloads.protocol.verdict import ReasonCode, Validity

CONDITION = Condition(battery_min_pct=30, cool_wait_max_s=3600)


def states(virtual_phone: VirtualPhone, kind: str) -> dict[str, list[object]]:
    values: dict[str, list[object]] = {}
    for event in virtual_phone.events(kind):
        values.setdefault(event["name"], []).append(
            event["on" if kind == "framework_mode" else "new"]
        )
    return values


def test_doze_optimisers_and_settings_are_changed_and_restored(
    adb: AdbServer, start_phone: StartPhone, context: LaneContext
) -> None:
    """Android 14 has a command for the optimiser; over Wi-Fi the data saver is switched on."""
    virtual_phone = start_phone("google-pixel-8")
    phone = open_phone(adb, virtual_phone.address)
    report = run_attempt(a_job(phone.facts.serial), phone, context).report
    assert report.fault is None, report.fault
    assert states(virtual_phone, "framework_mode") == {
        "doze": [False, True],
        "data_saver": [True, False],
        "dexopt": [False, True],
    }
    settings = states(virtual_phone, "setting_write")
    assert settings["heads_up_notifications_enabled"] == ["0", None]  # it was never set before
    assert settings["wifi_scan_always_enabled"] == ["0", "1"]
    assert settings.keys() == {
        setting.name
        for setting in QUIET_SETTINGS
        if setting.name not in {"low_power", "airplane_mode_on"}
    }


def test_an_unrooted_phone_counts_cycles_during_the_run(
    adb: AdbServer, context: LaneContext, tmp_path: Path
) -> None:
    """They show a limiter that acts in shorter periods than a window, between the canaries."""
    with open_lane_harness(adb, context, tmp_path, "oneplus-6:stock") as harness:
        when = {"at": "run_start", "until": "run_stop", "for": 0.01, "every": 0.03}
        harness.inject("hidden_limit", share=0.7, **when)
        job = a_job(harness.phone.facts.serial, cores="big2", freq="free", start_temp_max_c=None)
        report = run_attempt(job, harness.phone, context).report
    assert_reason(report, Validity.SUSPECT, ReasonCode.CLOCK_NOT_COUNTED)
    writes = [(event["name"], event["new"]) for event in harness.events("property_write")]
    assert writes == [(COUNTER_PROPERTY, "0"), (COUNTER_PROPERTY, "1")]


def test_charging_stops_for_the_run_and_the_optimiser_by_property(
    lane_harness: LaneHarness,
) -> None:
    assert_valid(lane_harness.run_attempt())
    writes = [
        event for event in lane_harness.events("sysfs_write") if "input_suspend" in event["path"]
    ]
    assert [event["new"].strip() for event in writes] == ["1", "0"]
    properties = [event["new"] for event in lane_harness.events("property_write")]
    assert properties == ["true", ""]
    started = lane_harness.events("run_start")[0]["model_s"]
    assert writes[0]["model_s"] < started
    lane_harness.verify_recovery()


@pytest.mark.parametrize(
    ("switch", "present", "restored"),
    [
        (ChargingSwitch(path="/sys/a", off="1", on="0"), "0", ["0"]),
        (ChargingSwitch(path="/sys/a", off="1", on="0"), "1", []),  # stopped by the owner
        (ChargingSwitch(path="/sys/a", off="1", on="0"), "7", []),  # not a switch as we know it
        (ChargingSwitch(path="/sys/a", off="5", on="100"), "100", ["100"]),
        (ChargingSwitch(path="/sys/a", off="5", on="100"), "80", ["80"]),  # the owner's limit
        (ChargingSwitch(path="/sys/a", off="5", on="100"), "", []),
    ],
)
def test_charging_returns_to_what_the_owner_had_set(
    switch: ChargingSwitch, present: str, restored: list[str]
) -> None:
    assert [step.change.old for step in charging_steps(switch, present)] == restored


def test_a_root_shell_that_may_not_call_the_framework_is_named() -> None:
    refused = ShellResult(254, "cmd: Failure calling service settings: Failed transaction\n")
    with pytest.raises(ShellFailed, match="Failed transaction"):
        check_framework([refused])
    check_framework([ShellResult(20, "cmd: Can't find service: settings\n"), ShellResult(0, "")])
    check_framework([ShellResult(127, "sh: settings: not found\n")])


def test_a_run_waits_until_a_low_battery_is_charged(lane_harness: LaneHarness) -> None:
    lane_harness.inject("battery_drains", percent=19.9, per_min=0)
    lane_harness.clear_faults()
    report = lane_harness.run_attempt(battery_min_pct=20, cool_wait_max_s=7200)
    assert_valid(report)
    assert report.stage_seconds[Stage.CHARGE] > 1.0
    assert lane_harness.phone.facts.charging is not None


def test_a_phone_that_still_charges_after_the_wait_is_retried_later(
    lane_harness: LaneHarness,
) -> None:
    lane_harness.inject("battery_drains", percent=40, per_min=0)
    assert_fault(
        lane_harness.run_attempt(battery_min_pct=60, cool_wait_max_s=60),
        Blame.CONDITION,
        FaultKind.BATTERY_LOW,
    )
    assert not lane_harness.events("run_start")


@pytest.mark.parametrize(
    "now",
    [
        BatteryLevel(60, 24),  # the level falls
        BatteryLevel(1300, 25),  # it does not charge
        BatteryLevel(3700, 29),  # it charges too slowly
    ],
)
def test_a_wait_that_cannot_succeed_ends(now: BatteryLevel) -> None:
    with pytest.raises(BatteryLow):
        is_charged(BatteryLevel(0, 25), now, CONDITION)


def test_a_charged_phone_does_not_wait() -> None:
    full, low = BatteryLevel(0, 30), BatteryLevel(0, 25)
    assert is_charged(full, full, CONDITION)
    assert not is_charged(low, low, CONDITION)
    assert not is_charged(low, BatteryLevel(900, 30), CONDITION)
    assert is_charged(low, BatteryLevel(900, 31), CONDITION)


def test_a_sleeping_phone_is_woken_and_root_keeps_it_awake(lane_harness: LaneHarness) -> None:
    report = lane_harness.run_attempt()
    assert_valid(report)
    assert report.applied.screen == ("Awake", "Awake")
    assert (report.applied.locked, report.applied.refused) == (False, ())
    locks = [
        event["new"].split()
        for event in lane_harness.events("sysfs_write")
        if event["path"].startswith("/sys/power/wake_")
    ]
    assert locks == [["farmhand"], []]
    lane_harness.verify_recovery()


def test_a_phone_that_refuses_settings_runs_and_names_its_vendors_switch(
    adb: AdbServer, context: LaneContext, tmp_path: Path
) -> None:
    """Xiaomi's phones neither change settings nor wake up until a switch is set."""
    with open_lane_harness(adb, context, tmp_path, "xiaomi-mi-9:stock") as harness:
        harness.inject("refuse_settings")
        report = run_attempt(
            a_job(harness.phone.facts.serial, freq="free", start_temp_max_c=None),
            harness.phone,
            context,
        ).report
    assert report.restore_error is None
    assert "global stay_on_while_plugged_in" in report.applied.refused
    assert report.applied.screen == ("Asleep", "Asleep")
    assert_reason(report, Validity.VALID, ReasonCode.SCREEN_OFF)
    assert_reason(report, Validity.VALID, ReasonCode.SETTING_REFUSED)
    assert report.verdict is not None
    assert "USB debugging (Security settings)" in report.verdict.text
