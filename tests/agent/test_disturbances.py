"""Whatever goes on around a run is seen, named and weighed: one mischief for each reason."""

from dataclasses import replace

import pytest

from agent.run.canary import Canary, canary_key, updated_record
from tests.agent.trial import Trial, a_trial, spoiled, valid
from workloads.measure import Standing
from workloads.phone import CoreSet

__all__ = ("a_trial",)  # fixture

STEADY = {"cores": "big2", "freq": "low", "time_min_s": 60}


def test_a_phone_that_sleeps_in_its_run(trial: Trial) -> None:
    trial.trouble("sleep", at="run@40%", for_=10)
    spoiled(trial.attempt(**STEADY), Standing.VOID, "the phone slept for")
    trial.settle()


def test_other_work_on_other_cores(trial: Trial) -> None:
    trial.trouble("other_work", at="run_start", mask="0f")
    spoiled(trial.attempt(**STEADY), Standing.SUSPECT, "other work kept the other cores")
    trial.settle()


def test_a_charger_that_comes_back_in_the_run(trial: Trial) -> None:
    """The node was ours; somebody else wrote it."""
    trial.trouble("battery_drains", percent=60, per_min=0)
    trial.peace()
    trial.trouble("charger_returns", at="run@30%")
    report = trial.attempt(cores="little2", freq="low", time_min_s=60)
    spoiled(report, Standing.SUSPECT, "it charged for")
    trial.settle()


def test_a_phone_that_became_slower_behind_every_node(trial: Trial) -> None:
    """The canary after the run sees what no sensor shows."""
    desk = trial.desk
    trial.desk = replace(desk, canary=True)
    valid(trial.attempt(**STEADY))
    trial.trouble("hidden_limit", at="run@10%", share=0.8)
    spoiled(trial.attempt(fence=2, **STEADY), Standing.VOID, "a canary after the run took +")
    trial.peace()
    trial.trouble("hidden_limit", share=0.8)
    report = trial.attempt(fence=3, **STEADY)
    spoiled(report, Standing.SUSPECT, "against its own record")
    assert {"canary", "canary_after"} <= report.stage_s.keys()
    trial.peace()
    trial.desk = desk
    trial.settle()


def test_a_canary_is_compared_with_its_like() -> None:
    cores = CoreSet(name="big4", cpus=(4, 5, 6, 7))
    assert canary_key(cores, {7: 2, 4: 1}) == "f0@4:1,7:2"
    assert Canary(2.0, 2.1, 1.9).change == pytest.approx(0.05)
    assert Canary(2.0, 2.1, 1.9).aged == pytest.approx(0.0526, abs=1e-3)
    assert Canary(2.0, None, None).change is None
    assert updated_record(None, 2.0) == 2.0
    assert updated_record(1.0, 2.0) == pytest.approx(1.2)
