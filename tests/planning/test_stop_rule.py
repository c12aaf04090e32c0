"""A trial stops when it is known: the interval holds what it promises, and runs are saved."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.plan.policy import StopRule
from orchestrator.plan.stopping import Decision, Stop, decide, interval, runs_needed
from tests.plan.noise import PINNED, UNPINNED, Noise, coverage, saving, stopped

TWO_PERCENT = StopRule(half_width_rel=0.02, n_max=100)
FIVE_PERCENT = StopRule(half_width_rel=0.05, n_max=100)
AS_USUAL = StopRule(half_width_rel=0.03)
CASES = [(noise, TWO_PERCENT) for noise in PINNED] + [(noise, FIVE_PERCENT) for noise in UNPINNED]
CASES += [(noise, AS_USUAL) for noise in (*PINNED, *UNPINNED)]
SOME = [(PINNED[0], AS_USUAL), (PINNED[3], TWO_PERCENT), (PINNED[5], AS_USUAL)]
SOME += [(UNPINNED[3], FIVE_PERCENT), (UNPINNED[4], AS_USUAL)]


def test_quiet_runs_are_known_at_the_first_look_and_noisy_ones_go_on() -> None:
    quiet = [100.0, 100.4, 99.8, 100.1, 99.9, 100.2]
    assert Decision(None, 0, next_look=6) == decide(quiet[:5], TWO_PERCENT)
    found = decide(quiet, TWO_PERCENT)
    assert (Stop.WIDTH, 6, 100.05) == (found.stop, found.n, found.median)
    assert "100 ± 0.3% after 6 runs" == found.why
    noisy = [100.0, 150.0, 80.0, 120.0, 60.0, 140.0, 90.0]
    found = decide(noisy, TWO_PERCENT)
    assert (None, 6, 9) == (found.stop, found.n, found.next_look)
    short = StopRule(half_width_rel=0.02, n_max=7)
    assert Stop.N_MAX is decide(noisy, short).stop
    assert "5 runs tell no interval yet" == Decision(None, 5).why


def test_it_is_looked_on_the_grid_and_never_in_between() -> None:
    # six quiet runs in the middle of others do not count: the look after nine sees them all
    values = [50.0, 100.0, 150.0] + [100.0] * 5
    assert None is decide(values, TWO_PERCENT).stop
    assert 6 == decide(values, TWO_PERCENT).n


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(1, 1e6), min_size=6, max_size=40), st.data())
def test_more_runs_never_take_a_decision_back(values: list[float], data: st.DataObject) -> None:
    fewer = values[: data.draw(st.integers(0, len(values)))]
    early, late = decide(fewer, TWO_PERCENT), decide(values, TWO_PERCENT)
    assert early.stop is None or early == late


@pytest.mark.parametrize(("confidence", "expected"), [(0.95, 6), (0.99, 8), (0.9, 5), (0.5, 3)])
def test_so_many_runs_give_an_interval_and_one_less_does_not(
    confidence: float, expected: int
) -> None:
    assert expected == runs_needed(confidence)
    asked = 1 - 0.85 * (1 - confidence)
    widths = [interval(list(range(n)), asked) for n in (expected - 1, expected)]
    assert [False, True] == [math.isfinite(high) for _, _, high in widths]


def test_the_interval_is_that_of_the_order_statistics_where_these_fit_exactly() -> None:
    values = [float(each) for each in range(1, 11)]
    exactly = 1 - 2 * (1 + 10) / 2**10  # between the second and the ninth of ten
    assert (2.0, 5.5, 9.0) == interval(values, exactly)


@pytest.mark.parametrize(("noise", "rule"), SOME, ids=str)
def test_the_interval_of_95_percent_holds_the_median_so_often(noise: Noise, rule: StopRule) -> None:
    found = stopped(noise, rule, 800)
    # 800 trials tell the share to ±1.5 % (two standard errors); the slow test tells it to ±0.3 %
    assert 0.93 - 0.01 <= coverage(noise, found) <= 0.97 + 0.01


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "rule"), CASES, ids=str)
def test_the_interval_of_95_percent_holds_the_median_in_the_long_run(
    noise: Noise, rule: StopRule
) -> None:
    found = [each for seed in range(10) for each in stopped(noise, rule, 2000, seed)]
    share = coverage(noise, found)
    assert 0.93 <= share <= 0.97


def test_a_sweep_is_known_with_a_third_fewer_runs_than_a_fixed_number_takes() -> None:
    found = saving(StopRule(half_width_rel=0.03, n_max=100), trials=200)
    assert found.known >= 0.95
    assert found.share >= 0.30
