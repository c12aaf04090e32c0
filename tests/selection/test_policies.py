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


def picked(policy: str, state: RoundState, request: RoundRequest) -> list[int]:
    """The phones that a policy chooses."""
    choice = POLICIES[policy]().choose(state, request, np.random.default_rng(1))
    assert len(choice.reasons) == len(choice.picks)
    return [int(i) for i in choice.picks]


def test_work_heats_and_rest_cools_with_the_phones_own_time_constant() -> None:
    fleet = a_fleet(1, slowdown=np.array([2.0]))
    hot = heat_after_work(fleet, np.zeros(1), 100.0)
    assert hot[0] == pytest.approx(1 - np.exp(-1))
    assert heat_after_rest(fleet, hot, 100.0)[0] == pytest.approx(hot[0] * np.exp(-1))
    cold_s, hot_s = (
        work_seconds(fleet, np.array([10.0]), np.array([heat]))[0] for heat in (0.0, 1.0)
    )
    assert hot_s == pytest.approx(2 * cold_s, rel=1e-2)


@pytest.mark.parametrize("policy", POLICIES)
def test_nobody_is_chosen_who_is_away_flat_or_too_small(policy: str) -> None:
    state = initial_round_state(a_fleet(6, fits=np.array([0, 1, 1, 1, 1, 1], dtype=bool)), 100)
    state.online[1] = False
    state.charge[2] = 0.1
    assert {3, 4, 5} >= set(picked(policy, state, RoundRequest(k=6, deadline_s=1e6)))


@pytest.mark.parametrize("policy", POLICIES)
def test_no_phone_at_all_is_an_empty_round(policy: str) -> None:
    state = initial_round_state(a_fleet(3), 100)
    state.online[:] = False
    assert picked(policy, state, RoundRequest(k=2)) == []


def test_the_fastest_cold_and_the_fastest_sustained_are_not_the_same() -> None:
    fleet = a_fleet(3, slowdown=np.array([9.0, 1.0, 1.0]))
    state = initial_round_state(fleet, 100)
    assert picked("fastest", state, RoundRequest(k=2)) == [0, 1]
    assert picked("fastest-sustained", state, RoundRequest(k=2)) == [1, 2]


def test_fedcs_fills_a_deadline_and_counts_updates_that_are_sent_one_by_one() -> None:
    state = initial_round_state(a_fleet(9), 100)
    assert picked("fedcs", state, RoundRequest(k=9, deadline_s=2.1)) == [0, 1, 2]
    assert picked("fedcs", state, RoundRequest(k=9, deadline_s=2.4, link_s=0.5)) == [0, 1]


def test_fedcs_goes_by_what_a_phone_took_last() -> None:
    state = initial_round_state(a_fleet(3), 100)
    state.last_duration_s[0] = 9.0
    assert picked("fedcs", state, RoundRequest(k=3, deadline_s=4.0)) == [1]


def test_tifl_asks_one_tier_a_round_each_of_a_cohort_at_least() -> None:
    state = initial_round_state(a_fleet(50), 100)
    policy = POLICIES["tifl"]()
    tiers = [policy.choose(state, RoundRequest(k=5), RNG).picks // 10 for _ in range(60)]
    assert all(len(set(tier)) == 1 for tier in tiers)
    assert {int(tier[0]) for tier in tiers} == {0, 1, 2, 3, 4}
    small = initial_round_state(a_fleet(6), 100)
    assert len(picked("tifl", small, RoundRequest(k=3))) == 3, (
        "five tiers would be of one phone each"
    )


def test_tifl_turns_to_the_tier_on_which_the_model_does_worst() -> None:
    state = initial_round_state(a_fleet(50), 100)
    state.utility[:] = np.where(np.arange(50) >= 40, 1000.0, np.arange(50))
    policy = POLICIES["tifl"]()
    last = [0] * 5
    for round_ in range(1, 101):
        state.round = round_
        tier = int(policy.choose(state, RoundRequest(k=5, rounds=1000), RNG).picks[0] // 10)
        last[tier] += round_ > 20
    assert last[4] == max(last), "nothing was learned, so the worst becomes the likeliest"


def test_tifl_gives_slow_tiers_fewer_credits() -> None:
    state = initial_round_state(a_fleet(50), 100)
    policy = POLICIES["tifl"]()
    tiers = [
        int(policy.choose(state, RoundRequest(k=5, rounds=100), RNG).picks[0] // 10)
        for _ in range(100)
    ]
    assert tiers.count(4) <= 10, "1.5 x 100 rounds x 1/15"
    assert all(tiers.count(tier) <= 50 for tier in range(5))


def test_oort_takes_useful_data_and_marks_down_the_slow() -> None:
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


def test_oort_explores_while_there_is_somebody_to_be_heard() -> None:
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
    assert shares[0] == 9, "nine tenths at first"
    assert shares[-1] == 3, "three tenths at last"
    state.utility[:] = 1.0
    assert len(policy.choose(state, RoundRequest(k=10), RNG).picks) == 10, (
        "nobody is left to be explored"
    )


def test_oorts_pacer_allows_more_time_when_rounds_earn_no_more() -> None:
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


def test_ours_does_not_favour_a_phone_that_was_measured_badly() -> None:
    same = np.full(4, 0.02)
    state = initial_round_state(
        a_fleet(4, cold_s=same, uncertainty=np.array([2.0, 0.0, 0.0, 0.0])), 100
    )
    assert set(picked("frugal", state, RoundRequest(k=3))) == {1, 2, 3}


def test_ours_spares_a_hot_phone_a_hungry_one_and_one_that_has_served() -> None:
    same = np.full(4, 0.02)
    energy_j = np.array([1.0, 50.0, 1.0, 1.0])
    state = initial_round_state(
        a_fleet(4, cold_s=same, energy_j=energy_j, slowdown=np.full(4, 3.0)), 100
    )
    state.heat[0] = 1.0
    state.times_chosen[2] = 30
    assert picked("frugal", state, RoundRequest(k=1)) == [3]


def test_ours_believes_what_a_phone_took_more_than_what_was_measured() -> None:
    state = initial_round_state(
        a_fleet(2, cold_s=np.full(2, 0.02), uncertainty=np.full(2, 0.5)), 100
    )
    state.last_duration_s[1], state.duration_ratio[1] = 8.0, 4.0
    assert picked("frugal", state, RoundRequest(k=1)) == [0], (
        "the other has shown to be four times slower"
    )
    assert state.expected_s == pytest.approx([2.0, 8.0])
    assert list(state.uncertainty) == [0.5, 0.0]


def test_ours_asks_nobody_who_would_miss_the_deadline() -> None:
    uncertainty = np.array([1.0, 0.0, 0.0])
    state = initial_round_state(
        a_fleet(3, cold_s=np.array([0.019, 0.02, 0.05]), uncertainty=uncertainty), 100
    )
    assert picked("frugal", state, RoundRequest(k=3, deadline_s=3.0)) == [1, 0], (
        "the sure one first"
    )
    assert picked("frugal", state, RoundRequest(k=3, deadline_s=0.1)) == []


def test_ours_guards_a_battery_near_its_floor() -> None:
    state = initial_round_state(a_fleet(2, cold_s=np.full(2, 0.02)), 100)
    state.charge[0] = 0.25
    assert picked("frugal", state, RoundRequest(k=1)) == [1]


def test_ten_thousand_phones_are_chosen_from_within_a_second() -> None:
    state = initial_round_state(a_fleet(10_000), 100)
    for policy in POLICIES:
        began = time.perf_counter()
        assert len(picked(policy, state, RoundRequest(k=100, deadline_s=1e6))) == 100
        assert time.perf_counter() - began < 1


def test_columns_hold_the_values_of_the_rows() -> None:
    fleet = build_round_fleet(a_client_table().clients)
    assert [bool(fits) for fits in fleet.fits] == [True, True, True, False]
    assert fleet.cold_s * 1000 * 32 == pytest.approx([40.16, 10.04, 12.048, 11.044])
