"""Every rule of the verdict, demonstrated on a virtual phone; without its rule a test fails."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent.judge.verdict_rules import RULES
from agent.lane import run_attempt
from agent.lane_context import LaneContext
from agent.phone.adb import AdbServer
from orchestrator.analysis.joint_rules import RunNumbers, judge_together
from tests.agent.jobs import a_job
from tests.agent.lane_harness import LAUNCH, open_lane_harness
from workloads.protocol.condition import Protocol
from workloads.protocol.verdict import ReasonCode, Validity

STEADY: dict[str, Any] = {"cores": "big2", "freq": "low", "start_temp_max_c": None}
HIGH = {**STEADY, "freq": "high"}
FREE = {**STEADY, "freq": "free"}
COLD = {**STEADY, "start_temp_max_c": 32.0}
THROTTLE = {"kind": "throttle", "at": "run@50%"}
GONE = {"kind": "sensor", "value": "missing", "at": "write:*/scaling_min_freq"}


@dataclass(frozen=True)
class Demo:
    """A fault that a rule has to find, and the reason that it gives."""

    code: ReasonCode
    validity: Validity
    fault: dict[str, Any] = field(default_factory=dict)
    condition: dict[str, Any] = field(default_factory=lambda: STEADY)
    workload: tuple[str, dict[str, int]] = ("mlp-4", {})
    profile: str = "meizu-16t"
    speed: float = 100.0
    canary: bool = False


DEMOS = {
    "check_claimed_work": Demo(
        ReasonCode.LOSS_TOO_FEW_STEPS,
        Validity.SUSPECT,
        condition={**STEADY, "freq": "free", "cores": "all1", "time_min_s": 0, "steps_min": 2},
        profile="meizu-16t:native",
        speed=1.0,
    ),
    "check_cores": Demo(
        ReasonCode.THREAD_ON_OTHER_CORES,
        Validity.VOID,
        {"kind": "migrate", "at": "run_start"},
        {**STEADY, "time_min_s": 60},
    ),
    "check_start_temperature": Demo(
        ReasonCode.START_TOO_WARM,
        Validity.VOID,
        {"kind": "sensor", "value": "45", "at": "write:*/scaling_min_freq"},
        COLD,
    ),
    "check_sensors": Demo(
        ReasonCode.SENSOR_FROZEN,
        Validity.SUSPECT,
        {"kind": "sensor", "value": "frozen", "at": LAUNCH},
        condition={**STEADY, "time_min_s": 70},  # it may freeze at a whole degree
    ),
    "check_length": Demo(
        ReasonCode.TOO_FEW_STEPS,
        Validity.SUSPECT,
        condition={**STEADY, "cores": "little1"},
        workload=("sgemm-square", {"n": 2048}),
    ),
    "check_steady_state": Demo(
        ReasonCode.NOT_STEADY,
        Validity.SUSPECT,
        {},
        {**STEADY, "cores": "all8", "freq": "high", "protocol": "soaked", "time_min_s": 60},
    ),
    "check_disturbances": Demo(
        ReasonCode.OWN_CORES_SHARED,
        Validity.SUSPECT,
        {"kind": "other_work", "at": "run_start", "mask": "30", "threads": 1},
    ),
    "check_canary": Demo(
        ReasonCode.CANARY_CHANGED,
        Validity.VOID,
        {"kind": "hidden_limit", "at": "run@10%", "share": 0.8},
        canary=True,
    ),
    "check_energy": Demo(ReasonCode.ENERGY_GAUGE_GUESSED, Validity.VALID, {}),
    "check_cpu_clocks": Demo(
        ReasonCode.CLOCKS_NOT_PINNED,
        Validity.VOID,
        THROTTLE,
        HIGH,
    ),
    "check_gpu_clock": Demo(
        ReasonCode.GPU_CLOCK_NOT_PINNED,
        Validity.VOID,
        {"kind": "throttle", "at": "run@50%", "cluster": "gpu", "steps": 2},
        {**STEADY, "gpu_freq": "high"},
    ),
    "check_step_times": Demo(
        ReasonCode.STEP_TIMES_CHANGED,
        Validity.VOID,
        {"kind": "hidden_limit", "at": "run@50%", "share": 0.9},
    ),
    "check_counted_clock": Demo(
        ReasonCode.CLOCK_NOT_COUNTED,
        Validity.SUSPECT,
        {"kind": "clock_pretends", "at": "run_start", "steps": 2},
    ),
    "check_gpu_work": Demo(
        ReasonCode.GPU_SHARED, Validity.SUSPECT, {"kind": "gpu_contention", "at": "run_start"}
    ),
    "check_foreground": Demo(
        ReasonCode.FOREGROUND_CHANGED, Validity.SUSPECT, {"kind": "foreground", "at": "run@50%"}
    ),
    "check_phone_used": Demo(
        ReasonCode.PHONE_USED,
        Validity.SUSPECT,
        {"kind": "screen", "at": "run@50%"},
        FREE,
        profile="samsung-s23-ultra:stock",
    ),
    "check_wakefulness": Demo(
        ReasonCode.SCREEN_WENT_OFF, Validity.SUSPECT, {"kind": "screen_off", "at": "run@50%"}
    ),
    "check_refused_settings": Demo(
        ReasonCode.SETTING_REFUSED,
        Validity.VALID,
        {"kind": "refuse_settings"},
        FREE,
        profile="xiaomi-mi-9:stock",
    ),
    "check_bus_clocks": Demo(
        ReasonCode.BUS_CLOCK_LOWERED,
        Validity.SUSPECT,
        {"kind": "bus_throttle", "at": "run@60%", "share": 0.8},
    ),
    "check_screen": Demo(
        ReasonCode.SCREEN_LIT, Validity.SUSPECT, {"kind": "screen", "at": "run@50%"}
    ),
    "check_threads": Demo(
        ReasonCode.THREADS_MOVED,
        Validity.VOID,
        {"kind": "migrate", "at": "run@50%", "mask": "10"},
    ),
    "check_online_cores": Demo(
        ReasonCode.CORE_OFFLINE,
        Validity.VOID,
        {"kind": "hotplug", "at": "run@50%", "cpu": 5, "service": "surfaceflinger"},
    ),
    "check_claimed_speed": Demo(
        ReasonCode.TIME_MISMATCH, Validity.VOID, {"kind": "false_times", "at": LAUNCH}
    ),
    "check_time_stamps": Demo(
        ReasonCode.TIME_STAMPS_COARSE,
        Validity.SUSPECT,
        {"kind": "false_times", "at": LAUNCH, "share": 1.0, "tick_ms": 10.0},
        FREE,
    ),
    "check_readings": Demo(
        ReasonCode.READINGS_LOST, Validity.SUSPECT, {"kind": "node_value", "at": LAUNCH}
    ),
    "check_coverage": Demo(
        ReasonCode.READINGS_ENDED,
        Validity.VALID,
        {"kind": "sensor", "value": "missing", "at": "run@50%"},
        FREE,
    ),
    "check_own_time": Demo(
        ReasonCode.CPU_TIME_LOW,
        Validity.SUSPECT,
        {"kind": "sleep", "suspends": False, "at": "run_start", "for": 0.02, "every": 0.1},
        FREE,
    ),
    "check_power": Demo(
        ReasonCode.POWER_CHANGED,
        Validity.SUSPECT,
        {"kind": "power_draw", "at": "run@50%", "watts": 2.0},
    ),
    "check_unheld_speed": Demo(
        ReasonCode.WORK_RATE_LOW,
        Validity.SUSPECT,
        {"kind": "hidden_limit", "at": "run_start#11", "share": 0.7},  # after the reference
        FREE,
        profile="samsung-s23-ultra:stock",
        canary=True,
    ),
    "check_vendor_limits": Demo(
        ReasonCode.SIOP_LEVEL_RAISED,
        Validity.VALID,
        {"kind": "throttle", "at": "run@50%"},
        FREE,
        profile="samsung-s23-ultra:stock",
    ),
    "check_other_apps": Demo(
        ReasonCode.OTHER_APPS_BUSY,
        Validity.SUSPECT,
        {"kind": "other_work", "at": "run_start", "mask": "0f", "threads": 2},
        FREE,
        profile="samsung-s23-ultra:stock",
    ),
    "check_swapping": Demo(
        ReasonCode.SWAPPED, Validity.SUSPECT, {}, workload=("emdl-mobilenetv2", {"batch_size": 30})
    ),
}
# Further reasons of rules that can give several.
MORE = (
    (
        "check_disturbances",
        Demo(ReasonCode.PHONE_SLEPT, Validity.VOID, {"kind": "sleep", "at": "run@50%", "for": 5}),
    ),
    (
        "check_sensors",
        Demo(ReasonCode.SAMPLING_GAP, Validity.VOID, {"kind": "sleep", "at": "run@50%", "for": 5}),
    ),
    (
        "check_disturbances",
        Demo(
            ReasonCode.CHARGED,
            Validity.SUSPECT,
            {"kind": "charger_returns", "at": "run@20%"},
            profile="xiaomi-mi-9",  # its battery is not full
        ),
    ),
    (
        "check_disturbances",
        Demo(
            ReasonCode.OTHER_CORES_BUSY,
            Validity.SUSPECT,
            {"kind": "other_work", "at": "run_start", "mask": "cf", "threads": 6},
        ),
    ),
    (
        "check_disturbances",
        Demo(
            ReasonCode.BODY_WARMED,
            Validity.SUSPECT,
            {},
            {**STEADY, "cores": "all8", "freq": "free", "time_min_s": 240},
        ),
    ),
    (
        "check_claimed_speed",
        Demo(
            ReasonCode.SPEED_IMPOSSIBLE,
            Validity.VOID,
            {"kind": "false_times", "at": LAUNCH, "share": 1e-6},
        ),
    ),
    (
        "check_cpu_clocks",
        Demo(ReasonCode.CLOCK_CAPPED, Validity.VOID, THROTTLE, HIGH),
    ),
    (
        "check_cpu_clocks",
        Demo(
            ReasonCode.COOLING_DEVICE_ACTIVE,
            Validity.VOID,
            {"kind": "throttle", "at": "run@50%"},
            HIGH,
        ),
    ),
    ("check_start_temperature", Demo(ReasonCode.START_TEMP_UNKNOWN, Validity.VOID, GONE, COLD)),
    ("check_start_temperature", Demo(ReasonCode.NO_TEMP_READINGS, Validity.VOID, GONE, COLD)),
)
# A restart during a run ends it with a fault, before there is anything to judge.
BY_FAULT = {"check_same_boot"}
MEMORY_BOUND: tuple[str, dict[str, int]] = ("sgemm", {"m": 1, "n": 4096, "k": 4096})


def test_every_rule_has_a_demonstration() -> None:
    assert {rule.__name__ for rule in RULES} == {*DEMOS, *BY_FAULT}


def _all_demos() -> list[Any]:
    more = [
        pytest.param(rule, demo, marks=pytest.mark.slow, id=f"{rule}: {demo.code}")
        for rule, demo in MORE
    ]
    return [pytest.param(rule, demo, id=rule) for rule, demo in DEMOS.items()] + more


@pytest.mark.parametrize(("rule", "demo"), _all_demos())
def test_a_rule_finds_its_fault_and_no_other_rule_does(
    adb: AdbServer, context: LaneContext, tmp_path: Path, rule: str, demo: Demo
) -> None:
    context.canary = demo.canary
    with open_lane_harness(adb, context, tmp_path, demo.profile, demo.speed) as harness:
        if demo.fault:
            harness.inject(**demo.fault)
        job = a_job(harness.phone.facts.serial, 1, *demo.workload, **demo.condition)
        result = run_attempt(job, harness.phone, context)
    report, observation = result.report, result.observation
    assert report.fault is None, report.fault
    assert report.verdict is not None
    assert report.verdict.validity is demo.validity, report.verdict
    assert demo.code in {reason.code for reason in report.verdict.reasons}, report.verdict
    assert observation is not None
    found_by = {
        other.__name__
        for other in RULES
        for reason in other(observation)
        if reason.code is demo.code
    }
    assert found_by == {rule}, "another rule finds the same fault"


@pytest.mark.slow
def test_a_disturbance_between_the_canaries_only(
    adb: AdbServer, context: LaneContext, tmp_path: Path
) -> None:
    """Neither a node nor a canary shows it, but the other runs of the trial do."""
    reports = []
    with open_lane_harness(adb, context, tmp_path, "samsung-s23-ultra:stock", 100.0) as harness:
        for fence in range(1, 5):
            if fence == 4:
                harness.inject("memory_contention", at="run_start", until="run_stop", share=0.7)
            job = a_job(harness.phone.facts.serial, fence, *MEMORY_BOUND, **FREE)
            report = run_attempt(job, harness.phone, context).report
            assert report.verdict is not None, report.fault
            assert report.verdict.validity is Validity.VALID, report.verdict
            reports.append(RunNumbers.of_report(report.model_dump(mode="json"), Protocol.COLD))
    found = [[reason.code for reason in each.reasons] for each in judge_together(reports)]
    assert found == [[], [], [], [ReasonCode.WORK_RATE_CHANGED]]
