"""One round's choice explained: reasons, intervals, and whom to measure next."""

import numpy as np
import pytest

from orchestrator.selection.advice import State, Work, advise, expected_gain
from orchestrator.selection.census import take_census
from orchestrator.selection.ranking import hold_rankings_together
from orchestrator.selection.situation import Want
from tests.selection.fleets import a_census, both_ways

WORK = Work(samples=1000)


def test_a_cohort_comes_with_reasons_and_intervals() -> None:
    advice = advise(a_census(), "frugal", Want(k=2), WORK)
    assert 2 == len(advice.chosen)
    assert all(chosen.why for chosen in advice.chosen)
    assert ["tiny"] == [phone for phone, _ in advice.refused]
    assert advice.round_s is not None
    assert advice.round_s.low <= advice.round_s.value <= advice.round_s.high
    assert advice.energy_j is not None
    assert pytest.approx(4.0, rel=0.05) == advice.energy_j.value, "two phones, 2 mJ, 1000 samples"


def test_a_round_lasts_longer_from_heat_and_by_its_link() -> None:
    census = take_census([*both_ways("sprinter", 10.0, 20.0), *both_ways("steady", 12.0, 12.0)])
    cool, hot, far = (
        advise(census, "frugal", Want(k=1, link_s=link_s), Work(1e5, after_s))
        for after_s, link_s in ((0.0, 0.0), (1e5, 0.0), (0.0, 7.0))
    )
    assert ["sprinter"] == [chosen.client.phone for chosen in cool.chosen]
    assert ["steady"] == [chosen.client.phone for chosen in hot.chosen], "by now the quicker one"
    assert cool.round_s is not None
    assert far.round_s is not None
    assert pytest.approx(7.0, rel=1e-6) == far.round_s.value - cool.round_s.value


def test_how_the_phones_are_now_decides_who_can_and_how_long_it_takes() -> None:
    runs = [
        *both_ways("warm", 10.0, 20.0, start_temp_c=30.0, peak_temp_c=70.0),
        *both_ways("away", 10.0, 10.0),
        *both_ways("empty", 10.0, 10.0),
        *both_ways("unheard", 10.0, 10.0),
    ]
    now = {
        "warm": State(temp_c=50.0, charge=0.9),
        "away": State(away=True),
        "empty": State(charge=0.1),
    }
    advice = advise(take_census(runs), "frugal", Want(k=4), Work(1.0, now=now))
    ((chosen,), refused) = advice.chosen, dict(advice.refused)
    assert "50% hot" in chosen.why
    assert pytest.approx(10.04 / 32 / 1000 * 1.5, rel=1e-3) == chosen.seconds
    assert "its battery is at 10%" == refused["empty"]
    assert refused["away"] == refused["unheard"] == "it is not there now"


def test_without_a_word_a_round_is_half_a_minute_of_the_median_phone() -> None:
    advice = advise(a_census(), "fastest", Want(k=1), Work())
    assert pytest.approx(30.0 / np.median([40.16, 10.04, 12.048, 11.044]) * 32_000, abs=1) == (
        advice.samples
    )


def test_the_phone_to_be_measured_next_is_the_one_that_nobody_has_heated() -> None:
    census = take_census([*both_ways("a", 10, 10), *both_ways("b", 10, 10)[:3]])
    assert ("b", "nobody knows what heat does to it") == advise(
        census, "frugal", Want(k=1), WORK
    ).measure_next


def test_knowing_more_gains_what_chance_says() -> None:
    middle, sigma = np.array([1.0, 2.0, 2.2, 3.0]), np.array([0.1, 0.4, 0.3, 0.5])
    luck = np.random.default_rng(0).standard_normal(200_000)
    for at in range(4):
        times = np.tile(middle, (len(luck), 1))
        times[:, at] = middle[at] * np.exp(luck * sigma[at])
        informed = np.sort(times, axis=1)[:, 1]
        assert (
            pytest.approx((times[:, :2].max(axis=1) - informed).mean(), abs=0.003)
            == (expected_gain(middle, sigma, 2)[at])
        )


def test_nothing_needs_measuring_where_nothing_could_change() -> None:
    runs = [*both_ways("quick", 10.0, 10.0), *both_ways("slow", 90.0, 90.0)]
    assert advise(take_census(runs), "frugal", Want(k=1), WORK).measure_next is None
    assert advise(take_census(runs), "frugal", Want(k=2), WORK).measure_next is None


def test_choosing_by_cold_figures_costs_hot_rounds() -> None:
    rankings = hold_rankings_together(a_census().clients)
    assert rankings is not None
    assert rankings.tau < 1
    assert pytest.approx(20.08 / 11.044 - 1, rel=1e-3) == rankings.lost[0], "the sprinter alone"
    assert (1, rankings.lost[0]) == rankings.worst
    assert pytest.approx(0.0, abs=1e-9) == rankings.lost[2], "of three, the sprinter is one anyway"
    assert hold_rankings_together(a_census().clients[:1]) is None
