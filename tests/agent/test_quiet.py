"""The quiet phone: everything that stirs is held still, noted first, and put back."""

import pytest

from agent.control.charge import Level, is_charged
from agent.control.quiet import QUIET
from agent.desk import Desk
from agent.lane import attempt
from agent.phone.adb import AdbServer
from tests.agent.conftest import StartPhone
from tests.agent.jobs import a_job
from tests.agent.trial import Trial, a_trial, blamed, valid
from tests.agent.virtual_phones import VirtualPhone, open_phone
from workloads.condition import Condition
from workloads.fault import BatteryLow, Blame

__all__ = ("a_trial",)  # fixture

CONDITION = Condition(battery_min_pct=30, cool_wait_max_s=3600)


def states(there: VirtualPhone, kind: str) -> dict[str, list[object]]:
    found: dict[str, list[object]] = {}
    for event in there.events(kind):
        found.setdefault(event["name"], []).append(event["on" if kind == "mode" else "new"])
    return found


def test_doze_optimisers_and_settings_are_held_and_let_go(
    adb: AdbServer, start_phone: StartPhone, desk: Desk
) -> None:
    """On Android 14 the optimiser has a command; by network the data saver stands in for radios."""
    there = start_phone("google-pixel-8")
    phone = open_phone(adb, there.address)
    report = attempt(a_job(phone.known.serial), phone, desk).report
    assert report.fault is None, report.fault
    assert states(there, "mode") == {
        "doze": [False, True],
        "data_saver": [True, False],
        "dexopt": [False, True],
    }
    settings = states(there, "setting")
    assert settings["heads_up_notifications_enabled"] == ["0", None]  # it was never set before
    assert settings["wifi_scan_always_enabled"] == ["0", "1"]
    assert settings.keys() == {
        each.name for each in QUIET if each.name not in {"low_power", "airplane_mode_on"}
    }


def test_the_charger_is_cut_off_for_the_run_and_the_optimiser_by_property(trial: Trial) -> None:
    valid(trial.attempt())
    switched = [e["new"].strip() for e in trial.events("sysfs") if "input_suspend" in e["path"]]
    assert switched == ["1", "0"]
    properties = [event["new"] for event in trial.events("property")]
    assert properties == ["true", ""]
    started = trial.events("run_start")[0]["model_s"]
    cut = next(e for e in trial.events("sysfs") if "input_suspend" in e["path"])["model_s"]
    assert cut < started
    trial.settle()


def test_a_low_battery_is_charged_and_waited_for(trial: Trial) -> None:
    trial.trouble("battery_drains", percent=19.9, per_min=0)
    trial.peace()
    report = trial.attempt(battery_min_pct=20, cool_wait_max_s=7200)
    valid(report)
    assert report.stage_s["charge"] > 1.0
    assert trial.phone.known.charging is not None


def test_a_phone_that_is_still_charging_at_the_end_of_its_wait_is_put_back_in_the_line(
    trial: Trial,
) -> None:
    trial.trouble("battery_drains", percent=40, per_min=0)
    blamed(trial.attempt(battery_min_pct=60, cool_wait_max_s=60), Blame.CONDITION, "BatteryLow")
    assert not trial.events("run_start")


@pytest.mark.parametrize(
    ("first", "now", "words"),
    [
        (Level(0, 25), Level(60, 24), "it falls"),
        (Level(0, 25), Level(1300, 25), "does not charge"),
        (Level(0, 25), Level(3700, 29), "after 3600 s of charging"),
    ],
)
def test_waiting_for_nothing_ends(first: Level, now: Level, words: str) -> None:
    with pytest.raises(BatteryLow, match=words):
        is_charged(first, now, CONDITION)


def test_a_charged_phone_is_not_held_up() -> None:
    full, low = Level(0, 30), Level(0, 25)
    assert is_charged(full, full, CONDITION)
    assert not is_charged(low, low, CONDITION)
    assert not is_charged(low, Level(900, 30), CONDITION)
    assert is_charged(low, Level(900, 31), CONDITION)
