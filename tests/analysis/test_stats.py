"""Median, intervals and means have their stated properties."""

import numpy as np
import pytest

from orchestrator.analysis.stats import (
    Interval,
    IntervalKind,
    geometric_mean,
    median,
    median_interval,
)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([3.0], 3.0),
        ([1.0, 2.0, 9.0], 2.0),  # an outlier does not move it
        ([1.0, 2.0, 4.0, 9.0], 3.0),
    ],
)
def test_the_median_is_the_middle(values: list[float], expected: float) -> None:
    assert median(values) == expected


@pytest.mark.parametrize("values", [[4.0], [4.0, 7.0]])
def test_fewer_than_three_runs_give_their_range(values: list[float]) -> None:
    expected = Interval(4.0, values[-1], len(values), IntervalKind.RANGE)
    assert median_interval(values) == expected


def test_an_interval_is_reproducible() -> None:
    values = list(np.random.default_rng(1).normal(10, 1, 10))
    assert median_interval(values) == median_interval(values)
    assert median_interval(values, seed=1) != median_interval(values, seed=2)


@pytest.mark.parametrize(
    ("runs", "least", "most"),
    [
        # the interval of five runs is nearly their range, which misses 1 of 16 medians
        (5, 0.88, 0.97),
        (15, 0.90, 0.98),
        (40, 0.91, 0.98),
    ],
)
def test_the_interval_has_about_its_nominal_coverage(runs: int, least: float, most: float) -> None:
    noise = np.random.default_rng(20240)
    # lognormal: step times are skewed, and the true median is exp(mean)
    samples = np.exp(noise.normal(np.log(10.0), 0.05, size=(400, runs)))
    intervals = [median_interval(list(sample)) for sample in samples]
    covered = sum(each.low <= 10.0 <= each.high for each in intervals) / len(intervals)
    assert least <= covered <= most


def test_more_runs_make_a_narrower_interval() -> None:
    values = list(np.random.default_rng(3).normal(10, 1, 60))
    few, many = median_interval(values[:6]), median_interval(values)
    assert many.high - many.low < 0.7 * (few.high - few.low)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([2.0, 8.0], 4.0),
        ([5.0], 5.0),
        # doubling any one case has the same effect
        ([1.0, 100.0], 10.0),
    ],
)
def test_the_geometric_mean_weights_cases_equally(values: list[float], expected: float) -> None:
    assert geometric_mean(values) == pytest.approx(expected)


@pytest.mark.parametrize("values", [[], [1.0, 0.0], [-1.0]])
def test_a_geometric_mean_of_nonpositive_values_is_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="above zero"):
        geometric_mean(values)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (10.0, 20.0, (9.0, 22.0)),
        # a temperature below zero is widened outwards too
        (-10.0, 20.0, (-11.0, 22.0)),
    ],
)
def test_a_models_error_widens_both_ends(
    low: float, high: float, expected: tuple[float, float]
) -> None:
    wide = Interval(low, high, 5, IntervalKind.BOOTSTRAP).widen(0.1)
    assert (wide.low, wide.high) == pytest.approx(expected)
