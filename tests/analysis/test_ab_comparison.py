"""A/B comparisons: which trials are paired, and which verdicts they get."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from orchestrator.analysis.ab_comparison import (
    ComparisonScope,
    ComparisonTable,
    ComparisonVerdict,
    GroupBy,
    UnclearReason,
    compare_sides,
)
from orchestrator.analysis.log_ratio import UnitLevel
from orchestrator.analysis.measurements import Exclusion, IncompatibleSources, MeasuredRun
from orchestrator.analysis.side_filter import parse_side
from orchestrator.analysis.split_half import split_half_check
from orchestrator.analysis.trial_pairs import pair_trials
from orchestrator.analysis.trial_series import trial_series
from tests.analysis.builders import EXTRAPOLATED, FITTED, HOST, MEASURED, a_trial_of
from workloads.protocol.faults import InvalidRequest
from workloads.protocol.phone_facts import ControlLevel
from workloads.protocol.verdict import Validity

QUICK = {"condition": {"freq": "high"}}
OPENCL = {"backend": "opencl"}
SLOW = {"condition": {"freq": "low"}}


def compare_by_name(
    base: str,
    candidate: str,
    runs: Sequence[MeasuredRun],
    by: GroupBy = GroupBy.CELL,
    **options: Any,
) -> ComparisonTable:
    """Compare two sides of the same runs."""
    trials = trial_series(runs, options.get("metric", ""))
    sides = parse_side(base), parse_side(candidate)
    return compare_sides(pair_trials(trials, trials, sides, options.get("mix", False)), by)


def two_clocks(ratio: float, **changes: Any) -> list[MeasuredRun]:
    """Build runs of a phone at two clocks, six per clock."""
    return [
        *a_trial_of(10.0, 6, seed=1, **QUICK, **changes),
        *a_trial_of(10.0 * ratio, 6, seed=2, **SLOW, **changes),
    ]


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        (1.5, ComparisonVerdict.SLOWER),
        (0.8, ComparisonVerdict.FASTER),
        (1.0, ComparisonVerdict.SAME),
        (1.015, ComparisonVerdict.UNCLEAR),
    ],
)
def test_conditions_are_compared_and_judged(ratio: float, expected: ComparisonVerdict) -> None:
    (row,) = compare_by_name("freq=high", "freq=low", two_clocks(ratio)).rows
    assert row.verdict == expected
    assert row.low is not None
    assert row.high is not None
    assert row.low < ratio < row.high


def test_phones_are_compared_per_cell_with_mean_and_worst_case() -> None:
    runs = []
    for batch, ratio in ((8, 1.1), (32, 1.4)):
        case = {"parameters": {"batch_size": batch}}
        runs += a_trial_of(10.0, 5, serial="A", seed=batch, **case)
        runs += a_trial_of(10.0 * ratio, 5, serial="B", seed=batch + 1, **case)
    found = compare_by_name("phone=A", "phone=B", runs)
    assert [row.verdict for row in found.rows] == [ComparisonVerdict.SLOWER] * 2
    (whole,) = found.overall
    assert whole.ratio == pytest.approx(np.sqrt(1.1 * 1.4), rel=0.02)
    assert "batch_size=32" in whole.worst[0]
    assert whole.worst[1] == pytest.approx(1.4, rel=0.02)


def test_backends_are_compared_like_conditions() -> None:
    runs = a_trial_of(30.0, 5)
    runs += [
        replace(run, trial="tr-00000000000000ff", case=run.case.model_copy(update=OPENCL))
        for run in a_trial_of(10.0, 5, seed=3)
    ]
    (row,) = compare_by_name("backend=cpu", "backend=opencl", runs).rows
    assert row.verdict is ComparisonVerdict.FASTER
    assert row.label == "mlp-4 batch_size=32, cold big4 high"


def test_more_samples_per_second_are_faster() -> None:
    runs = [
        *a_trial_of(None, 6, **QUICK, samples_per_s=100.0),
        *a_trial_of(None, 6, **SLOW, samples_per_s=150.0),
    ]
    (row,) = compare_by_name("freq=high", "freq=low", runs, metric="samples_per_s").rows
    assert row.verdict == ComparisonVerdict.FASTER


def test_a_simulated_difference_must_exceed_the_models_error() -> None:
    near = compare_by_name("freq=high", "freq=low", two_clocks(1.2, provenance=FITTED))
    far = compare_by_name("freq=high", "freq=low", two_clocks(2.5, provenance=FITTED))
    assert near.rows[0].reason is UnclearReason.INTERVAL_CONTAINS_ONE
    assert far.rows[0].verdict is ComparisonVerdict.SLOWER


def test_injected_noise_is_never_called_faster() -> None:
    (row,) = compare_by_name("freq=low", "freq=high", two_clocks(9.0, provenance=EXTRAPOLATED)).rows
    assert row.verdict is ComparisonVerdict.UNCLEAR
    assert row.reason is UnclearReason.MODEL_ERROR_UNKNOWN
    assert row.model_verdict is ComparisonVerdict.FASTER  # shown, and not claimed of phones
    assert "no measurements of these phones" in row.reason.text


def test_a_simulation_with_a_known_error_has_a_verdict_and_says_simulated() -> None:
    (row,) = compare_by_name("freq=high", "freq=low", two_clocks(2.5, provenance=FITTED)).rows
    assert (row.verdict, row.model_verdict) == (ComparisonVerdict.SLOWER,) * 2
    (row,) = compare_by_name("freq=high", "freq=low", two_clocks(2.5)).rows
    assert row.model_verdict is None


def test_engines_with_different_parameters_are_paired_by_what_they_share() -> None:
    runs = [
        *a_trial_of(10.0, 6, workload="lenet", parameters={"batch_size": 8}),
        *a_trial_of(20.0, 6, workload="resnet50", parameters={"batch_size": 8}),  # and image_size
        *a_trial_of(30.0, 6, workload="resnet50", parameters={"batch_size": 16}),
    ]
    table = compare_by_name("workload=lenet", "workload=resnet50", runs)
    (row,) = table.rows
    assert row.ratio == pytest.approx(2.0, rel=0.05)
    assert dict(table.left_out) == {Exclusion.ONE_SIDE_ONLY: 1}


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"provenance": HOST}, "sources differ (host, phone)"),
        ({"control": ControlLevel.OBSERVED}, "control levels differ (controlled, observed)"),
    ],
)
def test_different_sources_are_refused_unless_mixing_is_requested(changes: Any, what: str) -> None:
    runs = [*a_trial_of(10.0, 5, **QUICK), *a_trial_of(20.0, 5, **SLOW, **changes)]
    with pytest.raises(IncompatibleSources) as refused:
        compare_by_name("freq=high", "freq=low", runs)
    assert what in str(refused.value)
    assert len(compare_by_name("freq=high", "freq=low", runs, mix=True).rows) == 1


def test_training_is_not_compared_with_inference() -> None:
    names = ("lenet", "lenet-inference")
    runs = [run for name in names for run in a_trial_of(10.0, 3, seed=1, workload=name)]
    for base, candidate in (names, names[::-1]):
        sides = f"workload={base}", f"workload={candidate}"
        with pytest.raises(IncompatibleSources) as refused:
            compare_by_name(*sides, runs)
        assert str(refused.value) == (
            "lenet measures training steps and lenet-inference inference; "
            "compare two of a kind, or pass --allow-mixed"
        )
        assert len(compare_by_name(*sides, runs, mix=True).rows) == 1


def test_energies_of_different_grades_are_refused() -> None:
    runs = [
        *a_trial_of(None, 5, **QUICK, energy_j=10.0, grade="gauge"),
        *a_trial_of(None, 5, **SLOW, energy_j=20.0, grade="rapl"),
    ]
    with pytest.raises(IncompatibleSources, match="energy grades differ"):
        compare_by_name("freq=high", "freq=low", runs, metric="energy_j")


def test_excluded_pairs_are_counted_per_reason() -> None:
    runs = [
        *two_clocks(1.5),
        *a_trial_of(10.0, 1, first=6, validity=Validity.VOID, **QUICK),
        *a_trial_of(0.0, 1, first=7, **SLOW),
        *a_trial_of(10.0, 2, serial="alone", **QUICK),
    ]
    found = dict(compare_by_name("freq=high", "freq=low", runs).left_out)
    assert found == {
        Exclusion.VOID: 1,
        Exclusion.NOT_POSITIVE: 1,
        Exclusion.ONE_SIDE_ONLY: 1,
    }


def test_protocols_are_never_pooled() -> None:
    runs = []
    for protocol in ("cold", "endurance"):
        for freq, ms in (("high", 10.0), ("low", 15.0)):
            condition = {"protocol": protocol, "freq": freq}
            figures = {"last_minute_step_ms": ms} if protocol == "endurance" else {}
            runs += a_trial_of(ms, 5, condition=condition, **figures)
    found = compare_by_name("freq=high", "freq=low", runs, GroupBy.PHONE)
    assert [row.metric for row in found.rows] == ["step_ms", "last_minute_step_ms"]


@pytest.mark.parametrize(
    ("side", "expected"),
    [
        ("freq=nothing", "no trial with metrics has freq=nothing; freq is one of high, low"),
        ("speed=high", "unknown key 'speed'; use one of phone, workload, backend"),
        ("workload=mlp-3,freq=low", "matches all of 'workload=mlp-3,freq=low'"),
        ("phone=a,phone=b", "names phone twice"),
        ("sweep:freq", "'freq' in 'sweep:freq' is not KEY=VALUE"),
        ("", "a side of the comparison is empty"),
        ("workload=mlp-4", "'workload=mlp-4' is ambiguous: it matches"),
    ],
)
def test_a_side_without_matches_is_refused(side: str, expected: str) -> None:
    runs = [*two_clocks(1.5), *a_trial_of(10.0, 2, workload="mlp-3", **QUICK)]
    with pytest.raises(InvalidRequest, match=re.escape(expected)):
        compare_by_name(side, "workload=mlp-3,freq=high", runs)


def test_a_phone_is_compared_with_itself() -> None:
    steady = [run for seed in range(4) for run in _cell("S", seed, drift=0.0)]
    moved = [run for seed in range(4) for run in _cell("M", seed, drift=0.3)]
    found = split_half_check(trial_series([*steady, *moved]))
    verdicts = {row.label.split()[1]: row.verdict for row in found.rows}
    assert verdicts == {"S": ComparisonVerdict.SAME, "M": ComparisonVerdict.SLOWER}


def test_a_simulated_phone_compared_with_itself_is_marked_simulated() -> None:
    found = split_half_check(trial_series(a_trial_of(10.0, 8, provenance=EXTRAPOLATED)))
    (row,) = found.rows
    assert row.verdict == ComparisonVerdict.SAME, "both halves share the error of the model"
    assert {each.provenance for each in (*found.rows, *found.overall)} == {EXTRAPOLATED}


def _cell(serial: str, seed: int, drift: float) -> list[MeasuredRun]:
    """Build four runs of a cell; every second one is slower by a drift."""
    case = {"serial": serial, "parameters": {"batch_size": 8 * (seed + 1)}}
    return [
        run
        for at in range(4)
        for run in a_trial_of(
            10.0 * (1 + drift * (at % 2)), 1, first=at, seed=seed * 9 + at, scatter=0.002, **case
        )
    ]


def test_a_drift_of_one_side_is_the_reason_if_it_is_as_large_as_the_difference() -> None:
    drift = [10.0, 10.2, 10.4, 10.6, 10.8, 11.0, 11.2, 11.4]
    for ratio, reason in ((1.03, UnclearReason.DRIFT), (2.0, None)):
        runs = [
            run
            for serial, values in (("A", drift), ("B", [10.6 * ratio] * 4 + [10.5 * ratio] * 4))
            for at, value in enumerate(values)
            for run in a_trial_of(value, 1, first=at, scatter=0.0, serial=serial)
        ]
        (row,) = compare_by_name("phone=A", "phone=B", runs).rows
        assert row.reason is reason
        assert row.scope is ComparisonScope.THESE_PHONES


def test_blocks_are_paired_within_a_phone_and_sweep() -> None:
    runs = []
    for at, disturbed in enumerate((1.0, 1.2, 0.9, 1.1, 1.3)):
        for side, step_ms in ((QUICK, 10.0), (SLOW, 10.5)):
            runs += a_trial_of(step_ms * disturbed, 1, first=at, seed=at, scatter=0.001, **side)
    (row,) = compare_by_name("freq=high", "freq=low", runs).rows
    assert (row.verdict, row.level) == (ComparisonVerdict.SLOWER, UnitLevel.BLOCKS)
    assert row.ratio == pytest.approx(1.05, abs=0.005)


def test_four_phones_are_a_sample_of_phones() -> None:
    runs = [
        run
        for serial in "abcd"
        for side, step_ms in ((QUICK, 10.0), (SLOW, 15.0))
        for run in a_trial_of(step_ms, 4, serial=serial, seed=ord(serial), **side)
    ]
    (row,) = compare_by_name("freq=high", "freq=low", runs).rows
    assert row.scope is ComparisonScope.SUCH_PHONES


def test_a_single_run_has_no_interval() -> None:
    runs = [*a_trial_of(10.0, 1, **QUICK), *a_trial_of(20.0, 1, **SLOW)]
    (row,) = compare_by_name("freq=high", "freq=low", runs).rows
    assert (row.verdict, row.reason, row.low) == (
        ComparisonVerdict.UNCLEAR,
        UnclearReason.SINGLE_RUN,
        None,
    )
    assert row.provenance == MEASURED
