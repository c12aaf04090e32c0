"""Which phones each policy chooses."""

import time

import numpy as np
import pytest

from orchestrator.selection.basic_policies import POLICIES
from orchestrator.selection.oort_policy import OortPolicy
from orchestrator.selection.round_fleet import (
    build_round_fleet,
    heat_after_rest,
    heat_after_work,
    work_seconds,
)
from orchestrator.selection.round_state import RoundRequest, RoundState, initial_round_state
from tests.selection.fleets import a_client_table, a_fleet

RNG = np.random.default_rng(0)


def chosen(policy: str, state: RoundState, request: RoundRequest) -> list[int]:
    """Return the phones that a policy chooses."""
    choice = POLICIES[policy]().choose(state, request, np.random.default_rng(1))
    assert len(choice.reasons) == len(choice.picks)
    return [int(i) for i in choice.picks]


def test_phones_heat_and_cool_with_their_time_constant() -> None:
    fleet = a_fleet(1, slowdown=np.array([2.0]))
    hot = heat_after_work(fleet, np.zeros(1), 100.0)
    assert hot[0] == pytest.approx(1 - np.exp(-1))
    assert heat_after_rest(fleet, hot, 100.0)[0] == pytest.approx(hot[0] * np.exp(-1))
    cold_s, hot_s = (
        work_seconds(fleet, np.array([10.0]), np.array([heat]))[0] for heat in (0.0, 1.0)
    )
    assert hot_s == pytest.approx(2 * cold_s, rel=1e-2)


@pytest.mark.parametrize("policy", POLICIES)
def test_phones_that_are_away_empty_or_too_small_are_not_chosen(policy: str) -> None:
    state = initial_round_state(a_fleet(6, fits=np.array([0, 1, 1, 1, 1, 1], dtype=bool)), 100)
    state.online[1] = False
    state.charge[2] = 0.1
    assert {3, 4, 5} >= set(chosen(policy, state, RoundRequest(k=6, deadline_s=1e6)))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_round_without_phones_is_empty(policy: str) -> None:
    state = initial_round_state(a_fleet(3), 100)
    state.online[:] = False
    assert chosen(policy, state, RoundRequest(k=2)) == []


def test_fastest_and_fastest_sustained_choose_different_phones() -> None:
    fleet = a_fleet(3, slowdown=np.array([9.0, 1.0, 1.0]))
    state = initial_round_state(fleet, 100)
    assert chosen("fastest", state, RoundRequest(k=2)) == [0, 1]
    assert chosen("fastest-sustained", state, RoundRequest(k=2)) == [1, 2]


def test_fedcs_fills_the_deadline_with_sequential_uploads() -> None:
    state = initial_round_state(a_fleet(9), 100)
    assert chosen("fedcs", state, RoundRequest(k=9, deadline_s=2.1)) == [0, 1, 2]
    assert chosen("fedcs", state, RoundRequest(k=9, deadline_s=2.4, link_s=0.5)) == [0, 1]


def test_fedcs_uses_the_last_duration_of_a_phone() -> None:
    state = initial_round_state(a_fleet(3), 100)
    state.last_duration_s[0] = 9.0
    assert chosen("fedcs", state, RoundRequest(k=3, deadline_s=4.0)) == [1]


def test_tifl_chooses_one_tier_per_round_with_at_least_a_cohort() -> None:
    state = initial_round_state(a_fleet(50), 100)
    policy = POLICIES["tifl"]()
    tiers = [policy.choose(state, RoundRequest(k=5), RNG).picks // 10 for _ in range(60)]
    assert all(len(set(tier)) == 1 for tier in tiers)
    assert {int(tier[0]) for tier in tiers} == {0, 1, 2, 3, 4}
    small = initial_round_state(a_fleet(6), 100)
    assert len(chosen("tifl", small, RoundRequest(k=3))) == 3, (
        "five tiers would have one phone each"
    )


def test_tifl_prefers_the_tier_with_the_worst_accuracy() -> None:
    state = initial_round_state(a_fleet(50), 100)
    state.utility[:] = np.where(np.arange(50) >= 40, 1000.0, np.arange(50))
    policy = POLICIES["tifl"]()
    last = [0] * 5
    for round_ in range(1, 101):
        state.round = round_
        tier = int(policy.choose(state, RoundRequest(k=5, rounds=1000), RNG).picks[0] // 10)
        last[tier] += round_ > 20
    assert last[4] == max(last), "without progress the worst tier is the most likely"


def test_tifl_gives_slow_tiers_fewer_credits() -> None:
    state = initial_round_state(a_fleet(50), 100)
    policy = POLICIES["tifl"]()
    tiers = [
        int(policy.choose(state, RoundRequest(k=5, rounds=100), RNG).picks[0] // 10)
        for _ in range(100)
    ]
    assert tiers.count(4) <= 10, "1.5 x 100 rounds x 1/15"
    assert all(tiers.count(tier) <= 50 for tier in range(5))


def test_oort_prefers_useful_data_and_penalises_slow_phones() -> None:
    state = initial_round_state(a_fleet(40), 100)
    state.utility[:] = np.where(np.arange(40) % 2, 100.0, 1.0)
    state.last_round[:] = 1
    often = [0] * 40
    for seed in range(40):
        choice = POLICIES["oort"]().choose(state, RoundRequest(k=10), np.random.default_rng(seed))
        for i in choice.picks:
            often[int(i)] += 1
    assert often[3] > often[39], "as useful, but five times slower"
    assert often[3] > often[4], "as quick, but less useful"


def test_oort_explores_while_phones_are_unexplored() -> None:
    state = initial_round_state(a_fleet(40), 100)
    state.utility[:20] = 1.0
    state.last_round[:20] = 1
    policy = POLICIES["oort"]()
    shares = []
    for round_ in range(2, 80):
        state.round = round_
        shares.append(
            sum(int(i) >= 20 for i in policy.choose(state, RoundRequest(k=10), RNG).picks)
        )
    assert shares[0] == 9, "exploration starts at 90 %"
    assert shares[-1] == 3, "exploration ends at 30 %"
    state.utility[:] = 1.0
    assert len(policy.choose(state, RoundRequest(k=10), RNG).picks) == 10, (
        "no unexplored phone is left"
    )


def test_oorts_pacer_allows_more_time_without_progress() -> None:
    state = initial_round_state(a_fleet(40), 100)
    state.utility[:] = 5.0
    state.last_round[:] = 1
    policy = OortPolicy()
    percentiles = []
    for round_ in range(1, 61):
        state.round = round_
        policy.choose(state, RoundRequest(k=4), RNG)
        percentiles.append(policy.percentile)
    assert percentiles == [30.0] * 39 + [35.0] * 20 + [40.0]


def test_frugal_does_not_prefer_an_uncertain_phone() -> None:
    same = np.full(4, 0.02)
    state = initial_round_state(
        a_fleet(4, cold_s=same, uncertainty=np.array([2.0, 0.0, 0.0, 0.0])), 100
    )
    assert set(chosen("frugal", state, RoundRequest(k=3))) == {1, 2, 3}


def test_frugal_avoids_hot_energy_hungry_and_often_chosen_phones() -> None:
    same = np.full(4, 0.02)
    energy_j = np.array([1.0, 50.0, 1.0, 1.0])
    state = initial_round_state(
        a_fleet(4, cold_s=same, energy_j=energy_j, slowdown=np.full(4, 3.0)), 100
    )
    state.heat[0] = 1.0
    state.times_chosen[2] = 30
    assert chosen("frugal", state, RoundRequest(k=1)) == [3]


def test_frugal_prefers_observed_durations_to_measured_ones() -> None:
    state = initial_round_state(
        a_fleet(2, cold_s=np.full(2, 0.02), uncertainty=np.full(2, 0.5)), 100
    )
    state.last_duration_s[1], state.duration_ratio[1] = 8.0, 4.0
    assert chosen("frugal", state, RoundRequest(k=1)) == [0], (
        "the observed duration of the other phone is four times longer"
    )
    assert state.expected_s == pytest.approx([2.0, 8.0])
    assert list(state.uncertainty) == [0.5, 0.0]


def test_frugal_skips_phones_that_would_miss_the_deadline() -> None:
    uncertainty = np.array([1.0, 0.0, 0.0])
    state = initial_round_state(
        a_fleet(3, cold_s=np.array([0.019, 0.02, 0.05]), uncertainty=uncertainty), 100
    )
    assert chosen("frugal", state, RoundRequest(k=3, deadline_s=3.0)) == [1, 0], (
        "the phone with the certain time first"
    )
    assert chosen("frugal", state, RoundRequest(k=3, deadline_s=0.1)) == []


def test_frugal_avoids_phones_with_a_low_battery() -> None:
    state = initial_round_state(a_fleet(2, cold_s=np.full(2, 0.02)), 100)
    state.charge[0] = 0.25
    assert chosen("frugal", state, RoundRequest(k=1)) == [1]


def test_choosing_from_ten_thousand_phones_takes_less_than_a_second() -> None:
    state = initial_round_state(a_fleet(10_000), 100)
    for policy in POLICIES:
        started = time.perf_counter()
        assert len(chosen(policy, state, RoundRequest(k=100, deadline_s=1e6))) == 100
        assert time.perf_counter() - started < 1


def test_columns_have_the_values_of_the_rows() -> None:
    fleet = build_round_fleet(a_client_table().clients)
    assert [bool(fits) for fits in fleet.fits] == [True, True, True, False]
    assert fleet.cold_s * 1000 * 32 == pytest.approx([40.16, 10.04, 12.048, 11.044])
