"""What unrooted phones say of heat and of other work, and how little it counts."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.collect.shell_view import ShellView, ViewsAroundRun, parse_screen, parse_view
from agent.judge.verdict_rules import judge
from agent.lane import run_attempt
from agent.lane_context import LaneContext
from agent.phone.adb import AdbServer
from agent.phone.canary_reference import CanaryReference, CanaryTimes
from tests.agent.jobs import a_job
from tests.agent.lane_harness import assert_reason, open_lane_harness
from tests.agent.observations import UNPINNED, an_observation
from workloads.protocol.messages import Report
from workloads.protocol.phone_facts import CanaryKind
from workloads.protocol.verdict import ReasonCode, Validity

FREE = {"cores": "prime", "freq": "free", "start_temp_max_c": 60}


def thermal(skin_c: str, severe: str, status: int = 0) -> str:
    """Build a dump with one skin sensor, as the framework prints it."""
    row = f"\tTemperature{{mValue={skin_c}, mType=3, mName=SKIN, mStatus=0}}\n"
    return (
        f"Thermal Status: {status}\nCached temperatures:\n{row.replace(skin_c, '99.0')}"
        f"Current temperatures from HAL:\n{row}Temperature static thresholds from HAL:\n"
        f"\tTemperatureThreshold{{mType=3, mName=SKIN, mHotThrottlingThresholds=[NaN, 38.0, 40.0, "
        f"{severe}, 45.0, 47.0, 60.0], mColdThrottlingThresholds=[NaN, NaN]}}\n"
    )


@pytest.mark.parametrize(
    ("skin_c", "severe", "headroom"),
    [
        ("27.0", "42.0", 0.5),  # Android's own scale
        ("42.0", "42.0", 1.0),
        ("-3.0", "42.0", 0.0),
        ("40.0", "NaN", None),  # a vendor without thresholds
        ("40.0", "1e30", None),
        ("40.0", "4.2", None),
    ],
)
def test_headroom_is_that_of_the_present_skin(
    skin_c: str, severe: str, headroom: float | None
) -> None:
    view = parse_view(thermal(skin_c, severe), "-3\n", "", "", 1.0)
    assert view.headroom == (None if headroom is None else pytest.approx(headroom))
    assert (view.status, view.siop_level) == (0, -3)


@pytest.mark.parametrize("text", ["", "Thermal Status: x", "Can't find service: thermalservice\n"])
def test_a_phone_that_says_nothing(text: str) -> None:
    assert parse_view(text, "\n", text, text, None) == ShellView()


POWER = (
    "  mLastWakeTime=334405 (158697 ms ago)\n  mLastSleepTime=931628 (1474 ms ago)\n"
    "  mLastUserActivityTime(excludingAttention)=331628 (161474 ms ago)\n"
)


@given(st.data())
def test_damaged_texts_never_raise_and_give_nothing_absurd(data: st.DataObject) -> None:
    processes = "UID TIME+\n 0 1:02.50\n 10123 61:00.00\n"
    printed = (thermal("40.0", "42.0", 3), "2\n", processes, POWER)
    damaged = []
    for text in printed:
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, len(text)))
        patch = data.draw(st.sampled_from(["", "9" * 5000, "NaN", "-", "\u0663", "\n", text]))
        damaged.append(text[:start] + patch + text[end:])
    view = parse_view(*damaged, t_s=1.0)
    assert view.status is None or 0 <= view.status <= 9
    assert view.headroom is None or 0 <= view.headroom < 50
    assert view.siop_level is None or abs(view.siop_level) < 1000
    assert all(cpu_s >= 0 for cpu_s in view.cpu_s.values())
    assert view.used_ms is None or 0 <= view.used_ms < 10**15


def test_the_screen_of_android_7_to_16() -> None:
    window = "    KeyguardServiceDelegate\n      showing={}\n      showingAndNotOccluded=true\n"
    awake = parse_screen(f"  mWakefulness=Awake\n{POWER}", window.format("false"))
    asleep = parse_screen("  mWakefulness=Dozing\n", window.format("true"))
    assert (awake.wakefulness, awake.slept_ms, awake.locked) == ("Awake", 931628, False)
    assert (asleep.wakefulness, asleep.locked) == ("Dozing", True)
    assert parse_screen("", "") == ShellView()
    charged, not_charged = (parse_screen("", "", f"  status: {at}\n") for at in (2, 3))
    assert ViewsAroundRun(not_charged, not_charged, charged).charging_share == pytest.approx(1 / 3)
    assert ViewsAroundRun(awake, awake).charging_share == 0
    pressed = replace(awake, slept_ms=940000)  # off and on again
    for before, after, is_asleep, fell_asleep in (
        (awake, awake, False, False),
        (asleep, asleep, True, False),
        (awake, asleep, False, True),
        (awake, pressed, False, True),
        (asleep, awake, False, False),
        (ShellView(), asleep, False, False),
    ):
        around = ViewsAroundRun(before, after)
        assert (around.is_asleep, around.fell_asleep) == (is_asleep, fell_asleep)


def test_a_phone_that_is_touched_says_when() -> None:
    later = POWER.replace("331628 (161474 ms ago)", "490000 (3100 ms ago)")
    before, after = (
        parse_view("", "", "", text, t_s) for text, t_s in ((POWER, 500), (later, 510))
    )
    assert (before.used_ms, after.used_ms) == (334405, 490000)
    assert ViewsAroundRun(before, after).used_at_s == pytest.approx(506.9)
    assert ViewsAroundRun(before, before).used_at_s is None
    assert ViewsAroundRun(ShellView(), after).used_at_s is None


def test_the_cpu_time_of_users_is_added_up() -> None:
    processes = "UID TIME+\n    0   1:02.50\n10123  61:00.00\n 10123 1-02:00:01\n 2000 9:00.00\n"
    view = parse_view("", "", processes, "", 100.0)
    assert view.cpu_s == {0: 62.5, 10123: 3660 + 93601, 2000: 540}
    later = replace(view, t_s=110.0, cpu_s={**view.cpu_s, 0: 63.5, 2000: 999, 10200: 5.0})
    assert ViewsAroundRun(view, later).other_cores == pytest.approx({0: 0.1, 10200: 0.5})
    assert ViewsAroundRun(ShellView(t_s=1.0), later).other_cores == {}


def reasons(**changes: object) -> Mapping[ReasonCode, Validity]:
    facts = UNPINNED.facts.model_copy(update={"clocks_writable": False})
    observation = an_observation(probe=replace(UNPINNED, facts=facts), **changes)
    return {reason.code: reason.validity for reason in judge(observation).reasons}


def test_the_work_rate_counts_and_the_status_does_not() -> None:
    hot = ViewsAroundRun(ShellView(status=3, headroom=1.2, siop_level=2), ShellView())
    usual = CanaryReference(ms=1.0, spread=0.005, count=4)
    only_told = reasons(views=hot, canaries={CanaryKind.MEMORY: CanaryTimes(1.0, 1.01, usual)})
    assert {*only_told.values()} == {Validity.VALID}
    codes = {ReasonCode.THERMAL_STATUS_RAISED, ReasonCode.SIOP_LEVEL_RAISED}
    assert codes | {ReasonCode.HEADROOM_USED_UP} <= only_told.keys()
    denied = ViewsAroundRun(ShellView(status=0), ShellView(status=0))
    for times, code in (
        (CanaryTimes(1.3, 1.3, usual, is_held=False), ReasonCode.WORK_RATE_LOW),
        (CanaryTimes(1.0, 1.3, None, is_held=False), ReasonCode.CANARY_CHANGED),
    ):
        found = reasons(views=denied, canaries={CanaryKind.ARITHMETIC: times})
        assert found[code] is Validity.SUSPECT


def test_a_limit_is_compared_with_the_highest_of_this_phone() -> None:
    lowered = reasons(limits_khz={7: (1824000, 3207000)}, usual_limits_khz={7: 3207000})
    assert lowered[ReasonCode.CLOCK_LIMIT_LOWERED] is Validity.SUSPECT
    always = reasons(limits_khz={7: (1824000, 1824000)}, usual_limits_khz={7: 1824000})
    assert ReasonCode.CLOCK_LIMIT_LOWERED not in always
    first = reasons(limits_khz={7: (1824000, 1824000)})
    assert ReasonCode.CLOCK_LIMIT_LOWERED not in first


def test_a_samsung_that_denies_its_throttling_is_found_out(
    adb: AdbServer, context: LaneContext, tmp_path: Path
) -> None:
    context.canary = True
    with open_lane_harness(adb, context, tmp_path, "samsung-s23-ultra:stock") as harness:
        serial = harness.phone.facts.serial
        free = run_attempt(a_job(serial, 1, **FREE), harness.phone, context).report
        assert not codes_of(free) & SLOWED
        harness.inject("throttle", cluster="prime", steps=6)
        capped = run_attempt(a_job(serial, 2, **FREE), harness.phone, context).report
        assert_reason(capped, Validity.SUSPECT, ReasonCode.WORK_RATE_LOW)
        assert_reason(capped, Validity.SUSPECT, ReasonCode.CLOCK_LIMIT_LOWERED)
        assert ReasonCode.SIOP_LEVEL_RAISED in codes_of(capped)
        assert ReasonCode.THERMAL_STATUS_RAISED not in codes_of(capped)
        assert "Thermal Status: 0" in harness.phone.shell(["dumpsys", "thermalservice"]).text


SLOWED = {ReasonCode.WORK_RATE_LOW, ReasonCode.CLOCK_LIMIT_LOWERED, ReasonCode.SIOP_LEVEL_RAISED}


def codes_of(report: Report) -> set[ReasonCode]:
    assert report.verdict is not None, report.fault
    return {reason.code for reason in report.verdict.reasons}
