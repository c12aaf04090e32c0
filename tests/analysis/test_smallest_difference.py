"""The smallest difference that runs can show, and the test of failure rates."""

import random
from itertools import product

import pytest
from scipy.stats import fisher_exact

from orchestrator.analysis.ab_comparison import ComparisonVerdict, compare_sides
from orchestrator.analysis.failure_rates import fisher_p
from orchestrator.analysis.side_filter import parse_side
from orchestrator.analysis.smallest_difference import RunSpread, shown_difference
from orchestrator.analysis.trial_pairs import pair_trials
from orchestrator.analysis.trial_series import trial_series
from tests.analysis.builders import measured

SPREAD, REPEATS, SWEEPS = 0.02, 6, 150


def share_found(difference: float, seed: int) -> tuple[float, float]:
    """Return how often a true difference is found, and the median of what the rows promise."""
    rng = random.Random(seed)
    sides = parse_side("a:batch_size=32"), parse_side("a:batch_size=64")
    found, promised = 0, []
    for _ in range(SWEEPS):
        runs = [
            measured(
                step_ms=10.0 * factor * rng.lognormvariate(0, SPREAD),
                repeat=repeat,
                parameters={"batch_size": size},
            )
            for size, factor in ((32, 1.0), (64, 1 + difference))
            for repeat in range(REPEATS)
        ]
        series = trial_series(runs)
        (row,) = compare_sides(pair_trials(series, series, sides)).rows
        found += row.verdict is ComparisonVerdict.SLOWER
        promised.append(row.shows or 0.0)
    return found / SWEEPS, sorted(promised)[SWEEPS // 2]


def test_what_a_plan_promises_is_found_four_times_out_of_five(seed: int) -> None:
    difference = shown_difference(SPREAD, REPEATS)
    share, promised = share_found(difference, seed)
    assert 0.68 <= share <= 0.92
    assert promised == pytest.approx(difference, rel=0.3), "plan and comparison agree"
    assert share_found(difference / 3, seed)[0] < 0.4


def test_the_spread_is_the_phones_own() -> None:
    runs = [
        measured(serial, 10.0 * (1 + spread * (-1) ** repeat), repeat=repeat)
        for serial, spread in (("calm", 0.001), ("noisy", 0.05))
        for repeat in range(8)
    ]
    cell = (runs[0].case.digest, runs[0].condition.digest)
    known = RunSpread(trial_series(runs))
    calm, noisy = (
        known.smallest_difference(phone, [(cell, "cold")], 6) for phone in ("calm", "noisy")
    )
    assert calm is not None
    assert noisy is not None
    assert 0.02 < calm.worst < 0.022, "never below the margin"
    assert noisy.best > 0.08
    assert known.smallest_difference("unknown", [(cell, "cold")], 6) is None
    assert known.smallest_difference("noisy", [(cell, "cold")], 3) is None, "too few to claim"


def test_failure_rates_are_compared_by_fishers_exact_test() -> None:
    for failed, other in product((0, 1, 5, 12), (0, 3, 20)):
        table = [[failed, 12 - failed], [other, 20 - other]]
        expected = pytest.approx(float(fisher_exact(table)[1]), abs=1e-9)
        assert fisher_p(failed, 12, other, 20) == expected
