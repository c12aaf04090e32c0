"""The stop rule: its interval covers the median at the stated rate, and it saves runs."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.analysis.median_interval import Instability, median_interval
from orchestrator.store.stop_rule import StopCause, StopDecision, decide_stop
from orchestrator.sweepfile.policy import StopRule, runs_needed
from tests.planning.run_noise import PINNED, UNPINNED, Noise, coverage, saving, stopped

TWO_PERCENT = StopRule(half_width_rel=0.02, n_max=100)
FIVE_PERCENT = StopRule(half_width_rel=0.05, n_max=100)
DEFAULT_WIDTH = StopRule(half_width_rel=0.03)
CASES = [(noise, TWO_PERCENT) for noise in PINNED] + [(noise, FIVE_PERCENT) for noise in UNPINNED]
CASES += [(noise, DEFAULT_WIDTH) for noise in (*PINNED, *UNPINNED)]
SOME = [(PINNED[0], DEFAULT_WIDTH), (PINNED[3], TWO_PERCENT), (PINNED[5], DEFAULT_WIDTH)]
SOME += [(UNPINNED[3], FIVE_PERCENT), (UNPINNED[4], DEFAULT_WIDTH)]


def test_quiet_trials_stop_at_the_first_look_and_noisy_ones_continue() -> None:
    quiet = [100.0, 100.4, 99.8, 100.1, 99.9, 100.2]
    assert decide_stop(quiet[:5], TWO_PERCENT) == StopDecision(None)
    decision = decide_stop(quiet, TWO_PERCENT)
    assert decision.interval is not None
    assert (decision.cause, decision.interval.n) == (StopCause.WIDTH, 6)
    assert decision.interval.middle == 100.05
    noisy = [100.0, 150.0, 80.0, 120.0, 60.0, 140.0, 90.0]
    decision = decide_stop(noisy, TWO_PERCENT)
    assert decision.interval is not None
    assert (decision.cause, decision.interval.n) == (None, 6)
    short = StopRule(half_width_rel=0.02, n_max=7)
    assert decide_stop(noisy, short).cause is StopCause.N_MAX


def test_the_interval_is_checked_only_on_the_grid() -> None:
    # the look after nine runs uses all nine, not the six quiet ones among them
    values = [50.0, 100.0, 150.0] + [100.0] * 5
    decision = decide_stop(values, TWO_PERCENT)
    assert decision.interval is not None
    assert (decision.cause, decision.interval.n) == (None, 6)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(1, 1e6), min_size=6, max_size=40), st.data())
def test_more_runs_never_change_a_decision(values: list[float], data: st.DataObject) -> None:
    fewer = values[: data.draw(st.integers(0, len(values)))]
    early, late = decide_stop(fewer, TWO_PERCENT), decide_stop(values, TWO_PERCENT)
    assert early.cause is None or early == late


@pytest.mark.parametrize(("confidence", "expected"), [(0.95, 6), (0.99, 8), (0.9, 5)])
def test_the_minimum_number_of_runs_has_its_interval_within_its_range(
    confidence: float, expected: int
) -> None:
    assert runs_needed(confidence) == expected
    values = [10.0, 14.0, 11.0, 15.0, 9.0, 13.0, 12.0, 16.0][
        :expected
    ]  # alternating: no dependence
    found = median_interval(values, confidence)
    assert min(values) <= found.low < found.high <= max(values)


def test_a_drift_does_not_stop_however_narrow_it_is() -> None:
    drift = [100.0, 100.12, 100.19, 100.31, 100.42, 100.48, 100.61, 100.68, 100.83]
    decision = decide_stop(drift, TWO_PERCENT)
    interval = decision.interval
    assert interval is not None
    assert (decision.cause, interval.n, interval.unclear) == (None, 9, Instability.DRIFT)
    assert interval.half_width_rel < TWO_PERCENT.half_width_rel
    assert decide_stop(drift, StopRule(half_width_rel=0.02, n_max=9)).cause is StopCause.N_MAX


@pytest.mark.parametrize(("noise", "rule"), SOME, ids=str)
def test_the_95_percent_interval_covers_the_median(noise: Noise, rule: StopRule) -> None:
    decisions = stopped(noise, rule, 800)
    # 800 trials give the share to ±1.5 % (two standard errors); the slow test to ±0.3 %
    assert 0.93 - 0.01 <= coverage(noise, decisions) <= 0.97 + 0.01


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "rule"), CASES, ids=str)
def test_the_95_percent_interval_covers_the_median_in_the_long_run(
    noise: Noise, rule: StopRule
) -> None:
    """The share is an estimate: 20,000 trials at 97 % have a standard error of 0.12 %.

    Trials with quiet runs stop at the first look, where the interval, widened for dependence that
    six runs cannot disprove, covers 96.9 % of independent runs.
    """
    decisions = [each for seed in range(10) for each in stopped(noise, rule, 2000, seed)]
    share = coverage(noise, decisions)
    low, high = (3 * math.sqrt(limit * (1 - limit) / len(decisions)) for limit in (0.93, 0.97))
    assert 0.93 - low <= share <= 0.97 + high


def test_stopping_needs_a_third_fewer_runs_than_a_fixed_number() -> None:
    saved = saving(StopRule(half_width_rel=0.03, n_max=100), trials=200)
    assert saved.precise >= 0.95
    assert saved.share >= 0.30
