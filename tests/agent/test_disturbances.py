"""Disturbances of a run are detected: one injected fault per reason."""

from dataclasses import replace
from typing import Any

import pytest

from agent.launch.canary import CanaryTimes, canary_record_key, updated_record
from tests.agent.lane_harness import LaneHarness, assert_reason, assert_valid
from workloads.protocol.phone_facts import CoreSet
from workloads.protocol.stage import Stage
from workloads.protocol.verdict import ReasonCode, Validity

STEADY: dict[str, Any] = {"cores": "big2", "freq": "low", "time_min_s": 60}


def test_a_phone_that_suspends_during_its_run(lane_harness: LaneHarness) -> None:
    lane_harness.inject("sleep", at="run@40%", for_=10)
    assert_reason(lane_harness.run_attempt(**STEADY), Validity.VOID, ReasonCode.PHONE_SLEPT)
    lane_harness.verify_recovery()


def test_other_work_on_other_cores(lane_harness: LaneHarness) -> None:
    lane_harness.inject("other_work", at="run_start", mask="0f")
    assert_reason(lane_harness.run_attempt(**STEADY), Validity.SUSPECT, ReasonCode.OTHER_CORES_BUSY)
    lane_harness.verify_recovery()


def test_a_charger_that_reconnects_during_the_run(lane_harness: LaneHarness) -> None:
    lane_harness.inject("battery_drains", percent=60, per_min=0)
    lane_harness.clear_faults()
    lane_harness.inject("charger_returns", at="run@30%")
    report = lane_harness.run_attempt(cores="little2", freq="low", time_min_s=60)
    assert_reason(report, Validity.SUSPECT, ReasonCode.CHARGED)
    lane_harness.verify_recovery()


def test_a_phone_that_became_slower_without_any_visible_cause(lane_harness: LaneHarness) -> None:
    context = lane_harness.context
    lane_harness.context = replace(context, canary=True)
    assert_valid(lane_harness.run_attempt(**STEADY))
    lane_harness.inject("hidden_limit", at="run@10%", share=0.8)
    assert_reason(
        lane_harness.run_attempt(fence=2, **STEADY), Validity.VOID, ReasonCode.CANARY_CHANGED
    )
    lane_harness.clear_faults()
    lane_harness.inject("hidden_limit", share=0.8)
    report = lane_harness.run_attempt(fence=3, **STEADY)
    assert_reason(report, Validity.SUSPECT, ReasonCode.CANARY_DRIFTED)
    assert {Stage.CANARY_BEFORE, Stage.CANARY_AFTER} <= report.stage_seconds.keys()
    lane_harness.clear_faults()
    lane_harness.context = context
    lane_harness.verify_recovery()


def test_a_canary_is_compared_with_the_record_of_the_same_clocks() -> None:
    cores = CoreSet(name="big4", cpus=(4, 5, 6, 7))
    assert canary_record_key(cores, {7: 2, 4: 1}) == "f0@4:1,7:2"
    assert CanaryTimes(2.0, 2.1, 1.9).change == pytest.approx(0.05)
    assert CanaryTimes(2.0, 2.1, 1.9).drift == pytest.approx(0.0526, abs=1e-3)
    assert CanaryTimes(2.0, None, None).change is None
    assert updated_record(None, 2.0) == 2.0
    assert updated_record(1.0, 2.0) == pytest.approx(1.2)
