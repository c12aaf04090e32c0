"""Who is chosen, by each rule, and why."""

import time

import numpy as np
import pytest

from orchestrator.selection.advice import advise
from orchestrator.selection.client import take_census
from orchestrator.selection.fleet import Fleet, cooled, line_up, warmed, work_s
from orchestrator.selection.policies import POLICIES, Situation, Want, first_look
from orchestrator.selection.ranking import hold_rankings_together
from tests.selection.fleets import a_census, both_ways

RNG = np.random.default_rng(0)


def a_fleet(n: int, **changes: object) -> Fleet:
    """Phones of falling speed, alike in everything else."""
    columns: dict[str, object] = {
        "cold_s": np.linspace(0.01, 0.05, n),
        "slowdown": np.ones(n),
        "heating_s": np.full(n, 100.0),
        "doubt": np.zeros(n),
        "energy_j": np.ones(n),
        "battery_j": np.full(n, 1e9),
        "fits": np.ones(n, dtype=bool),
    }
    return Fleet(**(columns | changes))  # type: ignore[arg-type]


def picked(policy: str, now: Situation, want: Want) -> list[int]:
    """Whom a policy takes."""
    choice = POLICIES[policy]().choose(now, want, np.random.default_rng(1))
    assert len(choice.why) == len(choice.picks)
    return [int(i) for i in choice.picks]


def test_work_heats_and_rest_cools_with_the_phones_own_time_constant() -> None:
    fleet = a_fleet(1, slowdown=np.array([2.0]))
    hot = warmed(fleet, np.zeros(1), 100.0)
    assert pytest.approx(1 - np.exp(-1)) == hot[0]
    assert pytest.approx(hot[0] * np.exp(-1)) == cooled(fleet, hot, 100.0)[0]
    cold_s, hot_s = (work_s(fleet, np.array([10.0]), np.array([heat]))[0] for heat in (0.0, 1.0))
    assert pytest.approx(2 * cold_s, rel=1e-2) == hot_s


@pytest.mark.parametrize("policy", POLICIES)
def test_nobody_is_chosen_who_is_away_flat_or_too_small(policy: str) -> None:
    now = first_look(a_fleet(6, fits=np.array([0, 1, 1, 1, 1, 1], dtype=bool)), 100)
    now.online[1] = False
    now.charge[2] = 0.1
    assert {3, 4, 5} >= set(picked(policy, now, Want(k=6, deadline_s=1e6)))


@pytest.mark.parametrize("policy", POLICIES)
def test_no_phone_at_all_is_an_empty_round(policy: str) -> None:
    now = first_look(a_fleet(3), 100)
    now.online[:] = False
    assert [] == picked(policy, now, Want(k=2))


def test_the_fastest_cold_and_the_fastest_sustained_are_not_the_same() -> None:
    fleet = a_fleet(3, slowdown=np.array([9.0, 1.0, 1.0]))
    now = first_look(fleet, 100)
    assert [0, 1] == picked("fastest", now, Want(k=2))
    assert [1, 2] == picked("fastest-sustained", now, Want(k=2))


def test_fedcs_fills_a_deadline_and_counts_updates_that_are_sent_one_by_one() -> None:
    now = first_look(a_fleet(9), 100)
    assert [0, 1, 2] == picked("fedcs", now, Want(k=9, deadline_s=2.1))
    assert [0, 1] == picked("fedcs", now, Want(k=9, deadline_s=2.4, link_s=0.5))


def test_tifl_asks_one_tier_a_round_and_the_worse_served_oftener() -> None:
    fleet = a_fleet(50)
    now = first_look(fleet, 100)
    now.utility[:] = np.where(np.arange(50) < 10, 1000.0, 1.0)
    policy = POLICIES["tifl"]()
    tiers = [policy.choose(now, Want(k=5), RNG).picks // 10 for _ in range(60)]
    assert all(len(set(tier)) == 1 for tier in tiers)
    assert sum(tier[0] == 0 for tier in tiers) > 40


def test_oort_takes_useful_data_and_marks_down_the_slow() -> None:
    now = first_look(a_fleet(40), 100)
    now.utility[:] = 1.0
    now.utility[[3, 39]] = 100.0
    chosen = picked("oort", now, Want(k=10))
    assert chosen.index(3) < (chosen.index(39) if 39 in chosen else 99)


def test_ours_does_not_favour_a_phone_that_was_measured_badly() -> None:
    same = np.full(4, 0.02)
    now = first_look(a_fleet(4, cold_s=same, doubt=np.array([2.0, 0.0, 0.0, 0.0])), 100)
    assert {1, 2, 3} == set(picked("frugal", now, Want(k=3)))


def test_ours_spares_a_hot_phone_a_hungry_one_and_one_that_has_served() -> None:
    same = np.full(4, 0.02)
    dear = np.array([1.0, 50.0, 1.0, 1.0])
    now = first_look(a_fleet(4, cold_s=same, energy_j=dear, slowdown=np.full(4, 3.0)), 100)
    now.heat[0] = 1.0
    now.chosen[2] = 30
    assert [3] == picked("frugal", now, Want(k=1))


def test_a_cohort_comes_with_reasons_an_interval_and_whom_to_measure_next() -> None:
    advice = advise(a_census(), "frugal", Want(k=2), samples=1000)
    assert 2 == len(advice.chosen)
    assert all(chosen.why for chosen in advice.chosen)
    assert ["tiny"] == [phone for phone, _ in advice.refused]
    assert advice.round_s is not None
    assert advice.round_s.low <= advice.round_s.value <= advice.round_s.high
    assert advice.energy_j is not None
    assert pytest.approx(4.0, rel=0.05) == advice.energy_j.value, "two phones, 2 mJ, 1000 samples"
    unheated = take_census([*both_ways("a", 10, 10), *both_ways("b", 10, 10)[:3]])
    assert ("b", "nobody knows what heat does to it") == advise(
        unheated, "frugal", Want(k=1), 10
    ).measure_next


def test_choosing_by_cold_figures_costs_hot_rounds() -> None:
    rankings = hold_rankings_together(a_census().clients, 2)
    assert rankings is not None
    assert rankings.tau < 1
    assert pytest.approx(20.08 / 12.048 - 1, rel=1e-3) == rankings.lost


def test_ten_thousand_phones_are_chosen_from_within_a_second() -> None:
    now = first_look(a_fleet(10_000), 100)
    for policy in POLICIES:
        began = time.perf_counter()
        assert 100 == len(picked(policy, now, Want(k=100, deadline_s=1e6)))
        assert time.perf_counter() - began < 1


def test_columns_say_what_rows_said() -> None:
    fleet = line_up(a_census().clients)
    assert [True, True, True, False] == [bool(fits) for fits in fleet.fits]
    assert pytest.approx([40.16, 10.04, 12.048, 11.044]) == fleet.cold_s * 1000 * 32
