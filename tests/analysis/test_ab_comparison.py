"""One side against another: who is paired with whom, and what may be said of it."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from orchestrator.analysis.figures import figures_of
from orchestrator.analysis.itself import against_itself
from orchestrator.analysis.pairs import pair_up
from orchestrator.analysis.refusals import Mixture
from orchestrator.analysis.selector import read_selector
from orchestrator.analysis.versus import By, Contest, Word, contest
from orchestrator.nouns import MeasuredRun
from tests.analysis.builders import EXTRAPOLATED, FITTED, HOST, MEASURED, a_trial_of
from workloads.fault import Refused
from workloads.measure import Standing
from workloads.phone import ControlLevel

QUICK = {"condition": {"freq": "high"}}
OPENCL = {"backend": "opencl"}
SLOW = {"condition": {"freq": "low"}}


def against(
    base: str, candidate: str, runs: Sequence[MeasuredRun], by: By = By.CELL, **how: Any
) -> Contest:
    """Compare two sides of the same runs."""
    trials = figures_of(runs, how.get("metric", ""))
    sides = read_selector(base), read_selector(candidate)
    return contest(pair_up(trials, trials, sides, how.get("mix", False)), by)


def two_clocks(ratio: float, **changes: Any) -> list[MeasuredRun]:
    """A phone at two clocks, six runs each."""
    return [
        *a_trial_of(10.0, 6, seed=1, **QUICK, **changes),
        *a_trial_of(10.0 * ratio, 6, seed=2, **SLOW, **changes),
    ]


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [(1.5, Word.SLOWER), (0.8, Word.FASTER), (1.0, Word.SAME), (1.015, Word.UNCLEAR)],
)
def test_conditions_are_compared_and_judged(ratio: float, expected: Word) -> None:
    (row,) = against("freq=high", "freq=low", two_clocks(ratio)).rows
    assert expected == row.verdict
    assert row.low is not None
    assert row.high is not None
    assert row.low < ratio < row.high


def test_phones_are_compared_cell_by_cell_with_the_worst_case_beside_the_mean() -> None:
    runs = []
    for batch, ratio in ((8, 1.1), (32, 1.4)):
        case = {"parameters": {"batch_size": batch}}
        runs += a_trial_of(10.0, 5, serial="A", seed=batch, **case)
        runs += a_trial_of(10.0 * ratio, 5, serial="B", seed=batch + 1, **case)
    found = against("phone=A", "phone=B", runs)
    assert [Word.SLOWER] * 2 == [row.verdict for row in found.rows]
    (whole,) = found.overall
    assert pytest.approx(np.sqrt(1.1 * 1.4), rel=0.02) == whole.ratio
    assert "batch_size=32" in whole.worst[0]
    assert pytest.approx(1.4, rel=0.02) == whole.worst[1]


def test_backends_are_compared_like_conditions() -> None:
    runs = a_trial_of(30.0, 5)
    runs += [
        replace(run, trial="tr-00000000000000ff", case=run.case.model_copy(update=OPENCL))
        for run in a_trial_of(10.0, 5, seed=3)
    ]
    (row,) = against("backend=cpu", "backend=opencl", runs).rows
    assert (Word.FASTER, "mlp-4 batch_size=32, cold big4 high") == (row.verdict, row.label)


def test_more_samples_a_second_are_faster() -> None:
    runs = [
        *a_trial_of(None, 6, **QUICK, samples_per_s=100.0),
        *a_trial_of(None, 6, **SLOW, samples_per_s=150.0),
    ]
    (row,) = against("freq=high", "freq=low", runs, metric="samples_per_s").rows
    assert Word.FASTER == row.verdict


def test_a_simulated_difference_must_exceed_the_models_error() -> None:
    near = against("freq=high", "freq=low", two_clocks(1.2, provenance=FITTED))
    far = against("freq=high", "freq=low", two_clocks(2.5, provenance=FITTED))
    assert [Word.UNCLEAR, Word.SLOWER] == [near.rows[0].verdict, far.rows[0].verdict]


def test_noise_that_was_injected_never_earns_a_faster() -> None:
    (row,) = against("freq=low", "freq=high", two_clocks(9.0, provenance=EXTRAPOLATED)).rows
    assert (Word.UNCLEAR, "simulated by a model of unknown error") == (row.verdict, row.why)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"provenance": HOST}, "sources differ (host, phone)"),
        ({"control": ControlLevel.OBSERVED}, "control levels differ (controlled, observed)"),
    ],
)
def test_unlike_making_is_refused_unless_it_is_meant(changes: Any, what: str) -> None:
    runs = [*a_trial_of(10.0, 5, **QUICK), *a_trial_of(20.0, 5, **SLOW, **changes)]
    with pytest.raises(Mixture) as refused:
        against("freq=high", "freq=low", runs)
    assert what in str(refused.value)
    assert 1 == len(against("freq=high", "freq=low", runs, mix=True).rows)


def test_energies_of_unlike_grade_are_refused() -> None:
    runs = [
        *a_trial_of(None, 5, **QUICK, energy_j=10.0, grade="gauge"),
        *a_trial_of(None, 5, **SLOW, energy_j=20.0, grade="meter"),
    ]
    with pytest.raises(Mixture, match="energy grades differ"):
        against("freq=high", "freq=low", runs, metric="energy_j")


def test_what_is_left_out_is_counted_with_its_reason() -> None:
    runs = [
        *two_clocks(1.5),
        *a_trial_of(10.0, 1, first=6, standing=Standing.VOID, **QUICK),
        *a_trial_of(0.0, 1, first=7, **SLOW),
        *a_trial_of(10.0, 2, serial="alone", **QUICK),
    ]
    found = dict(against("freq=high", "freq=low", runs).left_out)
    assert {
        "void runs": 1,
        "runs whose step_ms is not above zero": 1,
        "trials that only one side has": 1,
    } == found


def test_protocols_are_never_pooled() -> None:
    runs = []
    for protocol in ("cold", "endurance"):
        for freq, ms in (("high", 10.0), ("low", 15.0)):
            condition = {"protocol": protocol, "freq": freq}
            figures = {"last_minute_step_ms": ms} if protocol == "endurance" else {}
            runs += a_trial_of(ms, 5, condition=condition, **figures)
    found = against("freq=high", "freq=low", runs, By.PHONE)
    assert ["step_ms", "last_minute_step_ms"] == [row.metric for row in found.rows]


@pytest.mark.parametrize(
    ("side", "sentence"),
    [
        ("freq=nothing", "no trial with figures has freq=nothing; there is high, low"),
        ("speed=high", "'speed' is no key; the keys are phone, workload, backend"),
        ("workload=mlp-3,freq=low", "is all of 'workload=mlp-3,freq=low' at once"),
        ("phone=a,phone=b", "says phone twice"),
        ("sweep:freq", "'freq' in 'sweep:freq' is not KEY=VALUE"),
        ("", "a side of a comparison is empty"),
        ("workload=mlp-4", "leaves several trials for one place"),
    ],
)
def test_a_side_that_means_nothing_is_refused(side: str, sentence: str) -> None:
    runs = [*two_clocks(1.5), *a_trial_of(10.0, 2, workload="mlp-3", **QUICK)]
    with pytest.raises(Refused, match=re.escape(sentence)):
        against(side, "workload=mlp-3,freq=high", runs)


def test_a_phone_is_held_against_itself() -> None:
    steady = [run for seed in range(4) for run in _cell("S", seed, drift=0.0)]
    moved = [run for seed in range(4) for run in _cell("M", seed, drift=0.3)]
    found = against_itself(figures_of([*steady, *moved]))
    verdicts = {row.label.split()[1]: row.verdict for row in found.rows}
    assert {"S": Word.SAME, "M": Word.SLOWER} == verdicts


def test_a_simulated_phone_is_called_so_against_itself_too() -> None:
    found = against_itself(figures_of(a_trial_of(10.0, 8, provenance=EXTRAPOLATED)))
    (row,) = found.rows
    assert Word.SAME == row.verdict, "both halves share the error of the model"
    assert {EXTRAPOLATED} == {each.provenance for each in (*found.rows, *found.overall)}


def _cell(serial: str, seed: int, drift: float) -> list[MeasuredRun]:
    """Four runs of a cell; every second one is slower by a drift."""
    case = {"serial": serial, "parameters": {"batch_size": 8 * (seed + 1)}}
    return [
        run
        for at in range(4)
        for run in a_trial_of(
            10.0 * (1 + drift * (at % 2)), 1, first=at, seed=seed * 9 + at, scatter=0.002, **case
        )
    ]


def test_a_single_run_shows_no_spread() -> None:
    runs = [*a_trial_of(10.0, 1, **QUICK), *a_trial_of(20.0, 1, **SLOW)]
    (row,) = against("freq=high", "freq=low", runs).rows
    assert (Word.UNCLEAR, None) == (row.verdict, row.low)
    assert MEASURED == row.provenance
