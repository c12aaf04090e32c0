"""Every rule of the verdict, demonstrated on a virtual phone; a rule that is off makes one fail."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from agent.desk import Desk
from agent.lane import attempt
from agent.phone.adb import AdbServer
from agent.run import scene
from agent.run.verdict import RULES, Evidence, judge
from tests.agent.jobs import a_job
from tests.agent.trial import RUN, on_trial
from workloads.measure import Standing, Verdict

STEADY = {"cores": "big2", "freq": "low", "start_temp_max_c": None}


HIGH = {**STEADY, "freq": "high"}
COLD = {**STEADY, "start_temp_max_c": 32.0}
GONE = {"kind": "sensor", "value": "missing", "at": "write:*/scaling_min_freq"}


@dataclass(frozen=True)
class Demo:
    """Trouble that a rule has to find, and what it says then."""

    says: str
    standing: Standing
    trouble: dict[str, Any] = field(default_factory=dict)
    condition: dict[str, Any] = field(default_factory=lambda: STEADY)
    workload: tuple[str, dict[str, int]] = ("mlp-4", {})
    profile: str = "meizu-16t"
    speed: float = 100.0
    canary: bool = False


DEMOS = {
    "_right_work": Demo(
        "too few steps to see whether the loss falls",
        Standing.SUSPECT,
        condition={**STEADY, "freq": "free", "cores": "all1", "time_min_s": 0, "steps_min": 2},
        profile="meizu-16t:native",
        speed=1.0,
    ),
    "_right_cores": Demo(
        "could run on cores ff, asked 30",
        Standing.VOID,
        {"kind": "migrate", "at": "run_start"},
        {**STEADY, "time_min_s": 60},
    ),
    "_cool_start": Demo(
        "it started at 45.0 °C",
        Standing.VOID,
        {"kind": "sensor", "value": "45", "at": "write:*/scaling_min_freq"},
        COLD,
    ),
    "_live_sensors": Demo(
        "stood still at", Standing.SUSPECT, {"kind": "sensor", "value": "frozen", "at": RUN}
    ),
    "_long_enough": Demo(
        "steps were measured, asked were 20",
        Standing.SUSPECT,
        condition={**STEADY, "cores": "little1"},
        workload=("sgemm-square", {"n": 2048}),
    ),
    "_settled": Demo(
        "did not settle within the run",
        Standing.SUSPECT,
        {},
        {**STEADY, "cores": "all8", "freq": "high", "protocol": "soaked", "time_min_s": 60},
    ),
    "_undisturbed": Demo(
        "of its own cores",
        Standing.SUSPECT,
        {"kind": "other_work", "at": "run_start", "mask": "30", "threads": 1},
    ),
    "_no_drift": Demo(
        "a canary after the run took +",
        Standing.VOID,
        {"kind": "hidden_limit", "at": "run@10%", "share": 0.8},
        canary=True,
    ),
    "_energy": Demo("energy coarse", Standing.VALID, {}),
    "_held_clocks": Demo(
        "the clocks held for",
        Standing.VOID,
        {"kind": "throttle", "at": "run@50%"},
        HIGH,
    ),
    "_held_gpu": Demo(
        "the GPU's clock held for",
        Standing.VOID,
        {"kind": "throttle", "at": "run@50%", "cluster": "gpu", "steps": 2},
        {**STEADY, "gpu_freq": "high"},
    ),
    "_in_memory": Demo(
        "MB went to swap", Standing.SUSPECT, {}, workload=("emdl-mobilenetv2", {"batch_size": 30})
    ),
}
# Rules that have more to say than one thing: the rest of it, by rule.
MORE = (
    (
        "_undisturbed",
        Demo("slept for", Standing.VOID, {"kind": "sleep", "at": "run@50%", "for": 5}),
    ),
    (
        "_live_sensors",
        Demo("nothing was read for", Standing.VOID, {"kind": "sleep", "at": "run@50%", "for": 5}),
    ),
    (
        "_undisturbed",
        Demo(
            "it charged for",
            Standing.SUSPECT,
            {"kind": "charger_returns", "at": "run@20%"},
            profile="xiaomi-mi-9",  # whose battery is not full
        ),
    ),
    (
        "_undisturbed",
        Demo(
            "kept the other cores",
            Standing.SUSPECT,
            {"kind": "other_work", "at": "run_start", "mask": "cf", "threads": 6},
        ),
    ),
    (
        "_undisturbed",
        Demo(
            "its body warmed by",
            Standing.SUSPECT,
            {},
            {**STEADY, "cores": "all8", "freq": "free", "time_min_s": 240},
        ),
    ),
    (
        "_held_clocks",
        Demo("was capped to", Standing.VOID, {"kind": "throttle", "at": "run@50%"}, HIGH),
    ),
    (
        "_held_clocks",
        Demo("the cooling device", Standing.VOID, {"kind": "throttle", "at": "run@50%"}, HIGH),
    ),
    ("_cool_start", Demo("start temperature is not known", Standing.VOID, GONE, COLD)),
    ("_cool_start", Demo("no temperature was read", Standing.VOID, GONE, COLD)),
)
# A phone that restarts in its run ends it with a fault, before there is anything to judge.
BY_FAULT = {"_same_boot"}


def test_no_rule_is_left_out() -> None:
    assert {rule.__name__ for rule in RULES} == {*DEMOS, *BY_FAULT}


def _each() -> list[Any]:
    more = [
        pytest.param(rule, demo, marks=pytest.mark.slow, id=f"{rule}: {demo.says}")
        for rule, demo in MORE
    ]
    return [pytest.param(rule, demo, id=rule) for rule, demo in DEMOS.items()] + more


@pytest.mark.parametrize(("rule", "demo"), _each())
def test_a_rule_finds_its_trouble_and_nobody_else_does(
    adb: AdbServer,
    desk: Desk,
    tmp_path: Path,
    rule: str,
    demo: Demo,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Evidence] = []

    def overheard(evidence: Evidence) -> Verdict:
        seen.append(evidence)
        return judge(evidence)

    monkeypatch.setattr(scene, "judge", overheard)
    with on_trial(adb, replace(desk, canary=demo.canary), tmp_path, demo.profile, demo.speed) as on:
        if demo.trouble:
            on.trouble(**demo.trouble)
        job = a_job(on.phone.known.serial, 1, *demo.workload, **demo.condition)
        report = attempt(job, on.phone, on.desk).report
    assert report.fault is None, report.fault
    assert report.verdict is not None
    assert demo.standing is report.verdict.standing, report.verdict
    assert any(demo.says in reason for reason in report.verdict.reasons), report.verdict
    said = {each.__name__ for each in RULES for _, why in each(seen[0]) if demo.says in why}
    assert said == {rule}, "switched off, nothing else would have told"
