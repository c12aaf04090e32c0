"""Disturbances of a run are detected: one injected fault per reason."""

from dataclasses import replace
from typing import Any

import pytest

from agent.launch.canary import reference_key
from agent.phone.canary_reference import RUNS_LEARNED, CanaryTimes, learn_reference
from tests.agent.lane_harness import LaneHarness, assert_reason, assert_valid
from workloads.protocol.messages import Report
from workloads.protocol.phone_facts import CanaryKind
from workloads.protocol.stage import Stage
from workloads.protocol.verdict import ReasonCode, Validity

STEADY: dict[str, Any] = {"cores": "big2", "freq": "low", "time_min_s": 60}
SHORT: dict[str, Any] = {"cores": "big2", "freq": "low", "start_temp_max_c": None}


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
    possible = lane_harness.phone.memory.core_flops
    lane_harness.inject("hidden_limit", share=0.8)
    report = lane_harness.run_attempt(fence=3, **STEADY)
    assert_reason(report, Validity.SUSPECT, ReasonCode.CANARY_DRIFTED)
    assert possible is not None
    assert lane_harness.phone.memory.core_flops == possible  # slow canaries are no evidence
    assert {Stage.CANARY_BEFORE, Stage.CANARY_AFTER} <= report.stage_seconds.keys()
    lane_harness.clear_faults()
    lane_harness.context = context
    lane_harness.verify_recovery()


def test_a_phone_that_becomes_slower_with_every_run(lane_harness: LaneHarness) -> None:
    """Once it is known, 1.5 % more with every run is found within five; the reference stays."""
    lane_harness.context = replace(lane_harness.context, canary=True)
    for number in range(RUNS_LEARNED):
        first = lane_harness.run_attempt(fence=number + 1, **SHORT)
        assert_valid(first)
        assert (ReasonCode.NEW_REFERENCE in codes_of(first)) == (number == 0)
    learned = {key: item.ms for key, item in lane_harness.phone.memory.canaries.items()}
    for number in range(1, 6):
        lane_harness.clear_faults()
        lane_harness.inject("hidden_limit", share=1.015**-number)
        report = lane_harness.run_attempt(fence=RUNS_LEARNED + number, **SHORT)
        assert ReasonCode.NEW_REFERENCE not in codes_of(report)
        if ReasonCode.CANARY_DRIFTED in codes_of(report):
            break
    else:
        pytest.fail("the drift was not found")
    assert_reason(report, Validity.SUSPECT, ReasonCode.CANARY_DRIFTED)
    assert {key: item.ms for key, item in lane_harness.phone.memory.canaries.items()} == learned


def test_half_of_the_memory_bandwidth(lane_harness: LaneHarness) -> None:
    lane_harness.context = replace(lane_harness.context, canary=True)
    lane_harness.run_attempt(**SHORT)
    lane_harness.inject("memory_contention", share=0.5)
    report = lane_harness.run_attempt(fence=2, **SHORT)
    assert_reason(report, Validity.SUSPECT, ReasonCode.CANARY_DRIFTED)
    assert report.verdict is not None
    drifted = [item for item in report.verdict.reasons if item.code is ReasonCode.CANARY_DRIFTED]
    assert [item.values["canary"] for item in drifted] == ["memory"]
    lane_harness.clear_faults()
    lane_harness.inject("memory_contention", at="run@50%")
    report = lane_harness.run_attempt(fence=3, **SHORT)
    assert_reason(report, Validity.VOID, ReasonCode.CANARY_CHANGED)


def codes_of(report: Report) -> set[ReasonCode]:
    assert report.verdict is not None, report.fault
    return {reason.code for reason in report.verdict.reasons}


def test_a_reference_learns_from_six_runs_how_much_a_phone_varies() -> None:
    """Canaries in a row are alike; runs differ. What one moment taught judges only loosely."""
    reference = learn_reference([1.0, 1.001, 0.999, 1.0])
    assert reference is not None
    noisy = CanaryTimes(before_ms=1.05, after_ms=1.04, reference=reference)
    assert not noisy.has_drifted  # one moment is no reference yet
    for ms in (1.05, 0.98, 1.02, 0.97, 1.01, 1.03):
        reference = reference.learned_from([ms, ms + 0.004])
    assert 0.06 < replace(noisy, reference=reference).drift_max <= 0.1
    assert reference.learned_from([2.0, 2.0]) == reference  # known from now on
    assert not replace(noisy, reference=reference).has_drifted
    assert replace(noisy, before_ms=1.15, reference=reference).has_drifted


def test_a_steady_phone_has_narrow_limits() -> None:
    reference = learn_reference([1.0] * 4)
    for _ in range(RUNS_LEARNED):
        assert reference is not None
        reference = reference.learned_from([1.002, 0.998])
    assert CanaryTimes(before_ms=1.04, reference=reference).has_drifted
    assert not CanaryTimes(before_ms=1.02, reference=reference).has_drifted


def test_a_reference_belongs_to_runner_cores_and_clocks() -> None:
    key = reference_key(CanaryKind.MEMORY, "0123456789", 0xF0, {7: 2, 4: 1})
    assert key == "memory 01234567 f0@4:1,7:2"
