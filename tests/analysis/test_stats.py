"""Median, intervals and means have their stated properties."""

import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from orchestrator.analysis.median_interval import error_before_widening
from orchestrator.analysis.stats import (
    Instability,
    Interval,
    IntervalKind,
    geometric_mean,
    interval_over_occasions,
    median,
    median_interval,
    split_occasions,
    widen_by_model,
)
from tests.analysis.builders import FITTED


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
    middle = (4.0 + values[-1]) / 2
    expected = Interval(4.0, middle, values[-1], len(values), IntervalKind.RANGE)
    assert median_interval(values) == expected


def test_the_interval_lies_between_order_statistics() -> None:
    values = [5.0, 1.0, 9.0, 3.0, 7.0, 2.0, 10.0, 4.0, 8.0, 6.0]
    # the second and the ninth of ten
    level = 1 - 2 * (1 + 10) / 2**10 / error_before_widening(10)
    found = median_interval(values, level)
    assert (found.low, found.middle, found.high) == pytest.approx((2.0, 5.5, 9.0))
    assert found.unclear is None, "the values alternate"


def test_four_runs_have_an_interval_beyond_their_range() -> None:
    found = median_interval([10.0, 13.0, 11.0, 12.0])
    assert found.low < 10.0
    assert found.high > 13.0
    assert found.high - found.low < 2 * 3.0


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, 1.02, 1.03, 1.05, 1.06, 1.08, 1.09], Instability.DRIFT),
        ([1.0, 1.3, 1.01, 1.31, 1.3, 1.005, 1.29, 1.0], Instability.TWO_MODES),
        ([1.0, 1.01, 1.03, 1.02, 1.04, 1.0, 0.99, 0.97, 0.98], Instability.SERIAL_CORRELATION),
        ([1.0, 1.04, 0.99, 1.02, 1.01, 0.98, 1.03, 1.0], None),
        ([1.0, 1.0, 1.0, 1.0, 1.0, 1.0], None),
        ([1.0, 2.0, 3.0], None),
    ],
)
def test_what_makes_a_median_unclear_is_named(
    values: list[float], expected: Instability | None
) -> None:
    found = median_interval(values)
    assert found.unclear is expected
    if expected in (Instability.DRIFT, Instability.TWO_MODES):
        assert found.low <= min(values)
        assert found.high >= max(values)


def test_runs_of_several_occasions_show_how_occasions_differ() -> None:
    start = datetime(2026, 3, 1, tzinfo=UTC)
    hours = [0, 1, 2, 24, 25, 26]
    times = [start + timedelta(hours=hour) for hour in hours]
    assert split_occasions(times) == [0, 0, 0, 1, 1, 1]
    long = [start + timedelta(hours=3 * index) for index in range(10)]
    assert split_occasions(long) == [0] * 9 + [1], "an occasion lasts a day at most"
    assert split_occasions([start] * 4, ["a", "a", "b", "b"]) == [0, 0, 1, 1], "another host"
    values = [10.0, 10.04, 10.02, 10.03, 10.01, 10.0]
    one, two = (interval_over_occasions(values, at) for at in ([start] * 6, times))
    assert one == median_interval(values)
    assert two.half_width_rel == pytest.approx(2 * 0.01 / math.sqrt(2), rel=0.1)
    days = [start + timedelta(days=day) for day in (0, 0, 1, 1, 2, 2, 3, 3, 4, 4)]
    spread = [10.0, 10.01, 10.5, 10.51, 9.8, 9.81, 10.3, 10.31, 9.9, 9.91]
    found = interval_over_occasions(spread, days)
    assert (found.n, found.middle) == (10, pytest.approx(10.005))
    five = median_interval([10.005, 10.505, 9.805, 10.305, 9.905])
    assert (found.low, found.high) == pytest.approx((five.low, five.high)), "not ten runs"


@pytest.mark.parametrize(
    ("runs", "least", "most"), [(4, 0.92, 0.985), (5, 0.92, 0.985), (15, 0.93, 0.985)]
)
def test_the_interval_has_about_its_nominal_coverage(runs: int, least: float, most: float) -> None:
    noise = np.random.default_rng(20240)
    # lognormal: step times are skewed, and the true median is exp(mean)
    samples = np.exp(noise.normal(np.log(10.0), 0.05, size=(400, runs)))
    intervals = [median_interval(list(sample)) for sample in samples]
    covered = sum(each.low <= 10.0 <= each.high for each in intervals) / len(intervals)
    assert least <= covered <= most


def test_the_interval_of_very_many_runs_continues_that_of_many() -> None:
    values = list(np.random.default_rng(7).normal(10, 1, 20_000))
    widths = [median_interval(values[:n]).half_width_rel * math.sqrt(n) for n in (200, 201, 20_000)]
    assert widths[1] == pytest.approx(widths[0], rel=0.1)
    assert widths[2] == pytest.approx(0.1 * 1.96 * math.sqrt(math.pi / 2), rel=0.15)


def test_more_runs_make_a_narrower_interval() -> None:
    values = list(np.random.default_rng(5).normal(10, 1, 60))
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


def test_a_models_error_is_added_like_an_independent_one() -> None:
    found = Interval(5.0, 10.0, 10.0, 5, IntervalKind.CONFIDENCE).widen(0.3)
    low = 10 * math.exp(-math.hypot(math.log(2), 0.3))
    assert (found.low, found.high) == pytest.approx((low, 10 * math.exp(0.3)))
    cold = Interval(-11.0, -10.0, -9.0, 5, IntervalKind.CONFIDENCE)
    assert cold.widen(0.0) == cold
    wider = cold.widen(0.3)
    assert wider.low < -13 < -8 < wider.high < 0


@pytest.mark.parametrize("share", [0.0, 1e-6, 0.01, 0.5, 0.711, 0.99, 1.0])
@pytest.mark.parametrize("half", [0.0, 0.1, 0.67, 2.6])
def test_an_interval_of_a_share_stays_a_share(share: float, half: float) -> None:
    exact = Interval(share, share, share, 5, IntervalKind.CONFIDENCE)
    found = exact.widen(half, is_share=True)
    assert 0 <= found.low <= share <= found.high <= 1
    if share in (0, 1):
        return
    rest = Interval(*(1 - share,) * 3, 5, IntervalKind.CONFIDENCE).widen(half, is_share=True)
    assert (1 - rest.high, 1 - rest.low) == pytest.approx((found.low, found.high))


def test_two_medians_differ_by_more_than_both_intervals_allow() -> None:
    one = Interval(9.0, 10.0, 11.0, 5, IntervalKind.CONFIDENCE)
    for middle, differs in ((11.3, False), (11.5, True)):
        other = Interval(middle - 1, middle, middle + 1, 5, IntervalKind.CONFIDENCE)
        assert one.differs_from(other) == other.differs_from(one) == differs


def test_equal_twins_rarely_differ() -> None:
    rng = np.random.default_rng(8)
    errors = rng.normal(0, 0.1 * math.sqrt(math.pi / 2), (1500, 2))  # 10 % on average
    differ = 0
    for pair in 10 * np.exp(errors):
        one, other = (
            widen_by_model(median_interval([step_ms] * 5), FITTED) for step_ms in pair.tolist()
        )
        differ += one.differs_from(other)
    assert 0.005 < differ / len(errors) <= 0.05
