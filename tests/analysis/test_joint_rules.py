"""Runs of the same work are judged together: odd ones are left out, good ones never."""

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

import pytest

from orchestrator.analysis.joint_rules import JointJudgement, RunNumbers, judge_together
from workloads.protocol.verdict import Reason, ReasonCode, Validity, Verdict

VALID = Verdict(validity=Validity.VALID)
RECORDED = Path("agent/virtual/physics/recorded_step_times.json")


def numbers(step_ms: float, sent: Verdict = VALID, **values: float) -> RunNumbers:
    """The numbers of a run whose steps took so long."""
    energy = {"energy_grade": "battery"} if "energy_per_step_mj" in values else {}
    return RunNumbers(sent, {"step_ms": step_ms} | values, **energy)


def suspect(code: ReasonCode) -> Verdict:
    """A verdict with one reason, as an agent sends it."""
    return Verdict(validity=Validity.SUSPECT, reasons=(Reason.suspect(code),))


def judge(steps: Sequence[float], **canaries: Sequence[float]) -> list[JointJudgement]:
    """Judge runs by their step times, and canaries if given."""
    values: list[Mapping[str, float]] = [
        {f"canary_{name}_ms": series[index] for name, series in canaries.items()}
        for index in range(len(steps))
    ]
    return judge_together([numbers(step, **own) for step, own in zip(steps, values, strict=True)])


def states(judgements: Sequence[JointJudgement]) -> str:
    """One letter per run: v for valid, s for suspect."""
    return "".join(item.validity.value[0] for item in judgements)


@pytest.mark.parametrize("factor", [1.08, 1.65, 0.85])
def test_a_run_that_differs_from_its_four_siblings_is_suspect(factor: float) -> None:
    judgements = judge([10.0, 10.1, 9.95, 10.02, 10.0 * factor])
    assert states(judgements) == "vvvvs"
    (reason,) = judgements[4].reasons
    assert reason.code is ReasonCode.WORK_RATE_CHANGED
    assert reason.values["change"] == pytest.approx(factor - 1, abs=0.01)
    assert judgements[4].runs == 5


def test_the_first_run_is_judged_like_the_last_one() -> None:
    assert states(judge([16.5, 10.0, 10.1, 9.95, 10.02])) == "svvvv"


def test_of_two_runs_none_is_odd_and_of_three_only_a_distant_one() -> None:
    assert states(judge([10.0, 16.0])) == "vv"
    assert states(judge([10.0, 10.6, 10.1])) == "vvv"
    assert states(judge([10.0, 16.0, 10.1])) == "vsv"


def test_two_times_of_several_runs_each_are_modes_of_the_phone() -> None:
    assert states(judge([10.0, 12.0, 10.1, 12.1, 9.9, 12.05, 10.0])) == "vvvvvvv"


def test_a_small_change_counts_if_a_canary_changed_too() -> None:
    steps = [10.0, 10.05, 9.95, 10.02, 10.35]
    assert states(judge(steps)) == "vvvvv"
    assert states(judge(steps, memory=[8.0, 8.05, 7.95, 8.0, 9.2])) == "vvvvs"
    assert states(judge(steps, memory=[8.0, 8.05, 7.95, 8.0, 6.9])) == "vvvvv"


def test_a_canary_that_changed_alone_leaves_a_run_valid() -> None:
    assert states(judge([10.0, 10.05, 9.95, 10.02, 10.0], memory=[8, 8, 8, 8, 12])) == "vvvvv"


def test_more_energy_at_the_same_speed_is_suspect() -> None:
    runs = [numbers(10.0, energy_per_step_mj=mj) for mj in (30.0, 30.4, 29.8, 30.1, 42.0)]
    judgements = judge_together(runs)
    assert states(judgements) == "vvvvs"
    assert judgements[4].reasons[0].code is ReasonCode.STEP_ENERGY_CHANGED


def test_a_disturbance_that_changed_nothing_is_excused() -> None:
    disturbed = numbers(10.03, suspect(ReasonCode.CANARY_DRIFTED))
    judgements = judge_together([numbers(each) for each in (10.0, 10.1, 9.95)] + [disturbed])
    assert states(judgements) == "vvvv"
    verdict = judgements[3].applied_to(disturbed.verdict)
    assert verdict.validity is Validity.VALID
    assert [(item.code, item.validity) for item in verdict.reasons] == [
        (ReasonCode.AGREES_WITH_RUNS, Validity.VALID),
        (ReasonCode.CANARY_DRIFTED, Validity.VALID),
    ]


@pytest.mark.parametrize(
    ("step_ms", "code", "energy"),
    [
        (10.4, ReasonCode.CANARY_DRIFTED, 30.0),  # another time
        (10.0, ReasonCode.CLOCKS_ONLY_SAMPLED, 30.0),  # not a sign of a disturbance
        (10.0, ReasonCode.CANARY_DRIFTED, 36.0),  # another energy
    ],
)
def test_other_suspect_runs_stay_suspect(step_ms: float, code: ReasonCode, energy: float) -> None:
    good = [numbers(each, energy_per_step_mj=30.0) for each in (10.0, 10.1, 9.95)]
    disturbed = numbers(step_ms, suspect(code), energy_per_step_mj=energy)
    assert states(judge_together([*good, disturbed])) == "vvvs"


def test_suspect_runs_do_not_excuse_each_other() -> None:
    runs = [numbers(each, suspect(ReasonCode.CANARY_DRIFTED)) for each in (10.0, 10.1, 9.95, 10.0)]
    assert states(judge_together(runs)) == "ssss"


def test_a_judgement_without_a_finding_leaves_the_verdict_as_sent() -> None:
    sent = suspect(ReasonCode.SCREEN_LIT)
    assert judge_together([numbers(10.0, sent)])[0].applied_to(sent) == sent


@pytest.mark.parametrize(("cv", "rejected_max"), [(0.01, 0.002), (0.02, 0.01), (0.025, 0.02)])
def test_good_runs_that_scatter_as_on_phones_stay_valid(cv: float, rejected_max: float) -> None:
    rng = random.Random(7)
    trials = [judge([10 * rng.gauss(1, cv) for _ in range(5)]) for _ in range(300)]
    rejected = fmean(states(trial).count("s") / 5 for trial in trials)
    assert rejected <= rejected_max


@pytest.mark.parametrize("clocks", ["pinned", "free"])
def test_good_runs_as_recorded_on_a_real_phone_stay_valid(clocks: str) -> None:
    """A run is the median of consecutive blocks of steps of one recording."""
    for series in json.loads(RECORDED.read_text())[clocks].values():
        blocks = series[1:]
        length = len(blocks) // 5
        runs = [sorted(blocks[i * length : (i + 1) * length])[length // 2] for i in range(5)]
        assert states(judge(runs)) == "vvvvv"
