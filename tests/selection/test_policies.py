"""Which phones each policy chooses."""

import time

import numpy as np
import pytest

from orchestrator.selection.basic_policies import POLICIES
from orchestrator.selection.oort_policy import OortPolicy
from orchestrator.selection.round_clock import (
    duty_heat,
    heat_after_rest,
    heat_after_work,
    link_cost,
    work_cost,
)
from orchestrator.selection.round_fleet import build_round_fleet
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
    cold_s, hot_s = (work_cost(fleet, 10.0, np.array([heat])).seconds[0] for heat in (0.0, 1.0))
    assert hot_s == pytest.approx(0.2)
    assert cold_s == pytest.approx(0.1, rel=1e-3)


@pytest.mark.parametrize("heat", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("slowdown", [1.0, 1.5, 4.0])
def test_the_clock_solves_the_thermal_model(heat: float, slowdown: float) -> None:
    fleet = a_fleet(1, slowdown=np.array([slowdown]), cold_s=np.array([0.01]))
    cost = work_cost(fleet, 30_000.0, heat, rest_s=50.0)
    done, now_s, step_s, hot = 0.0, 0.0, 0.02, heat
    while done < 30_000:  # by small steps, from the definition of the model
        done += step_s / (0.01 * (1 + hot * (slowdown - 1)))
        hot += (1 - hot) * step_s / 100
        now_s += step_s
    assert cost.seconds[0] == pytest.approx(now_s, rel=1e-3)
    assert cost.heat[0] == pytest.approx(hot * np.exp(-0.5), rel=1e-2)
    assert cost.joules[0] == 30_000


def test_a_duty_cycle_ends_as_warm_as_it_began() -> None:
    fleet = a_fleet(3, slowdown=np.full(3, 2.0))
    heat = duty_heat(fleet, 5000.0, 60.0)
    assert work_cost(fleet, 5000.0, heat, 60.0).heat == pytest.approx(heat, abs=1e-6)
    assert (heat > 0.1).all()
    assert (duty_heat(fleet, 5000.0, None) == 0).all(), "without a pause they rest until cool"


def test_links_cost_time_and_energy_in_both_directions() -> None:
    seconds, joules = link_cost(8000.0, 20_000.0, 5_000.0)
    assert seconds == pytest.approx(8000 / 20_000 + 8000 / 5_000)
    assert joules == pytest.approx(0.4 * (0.13286 + 20 * 0.13701) + 1.6 * (0.13286 + 5 * 0.28317))


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
    distant = initial_round_state(a_fleet(9), 100, link_s=0.5)
    assert chosen("fedcs", distant, RoundRequest(k=9, deadline_s=2.4)) == [0, 1]


def test_the_default_deadline_of_fedcs_excludes_half_of_its_sample() -> None:
    state = initial_round_state(a_fleet(40), 100)
    assert len(chosen("fedcs", state, RoundRequest(k=20))) == 20, "of a sample of all 40"
    assert max(chosen("fedcs", state, RoundRequest(k=20))) == 19


def test_fedcs_uses_the_last_duration_of_a_phone() -> None:
    state = initial_round_state(a_fleet(3), 100)
    state.last_duration_s[0] = 9.0
    assert chosen("fedcs", state, RoundRequest(k=3, deadline_s=4.0)) == [1]


def test_power_of_choice_takes_the_highest_losses_of_its_sample() -> None:
    state = initial_round_state(a_fleet(10), 100)
    state.utility[:] = np.arange(10.0)
    state.utility[0] = np.nan
    picks = chosen("power-of-choice", state, RoundRequest(k=5))
    assert sorted(picks) == [0, 6, 7, 8, 9], "2 k are all; an unknown loss counts as infinite"


def test_oort_penalises_slow_phones_and_prefers_useful_data() -> None:
    state = initial_round_state(a_fleet(40), 100)
    state.utility[:] = np.where(np.arange(40) % 2, 100.0, 1.0)
    state.last_round[:], state.round = 1, 2
    often = [0] * 40
    for seed in range(40):
        policy, rng = POLICIES["oort"](), np.random.default_rng(seed)
        policy.choose(state, RoundRequest(k=10), rng)  # the first round is random
        for _ in range(20):
            picks = policy.choose(state, RoundRequest(k=10), rng).picks
        for i in picks:
            often[int(i)] += 1
    assert often[3] > often[39], "as useful, but five times slower"
    assert often[3] > often[4], "as quick, but less useful"


def test_oort_explores_while_phones_are_unexplored() -> None:
    state = initial_round_state(a_fleet(40), 100)
    state.utility[:20] = 1.0
    state.last_round[:20] = 1
    policy = POLICIES["oort"]()
    shares = []
    for round_ in range(1, 80):
        state.round = round_
        shares.append(
            sum(int(i) >= 20 for i in policy.choose(state, RoundRequest(k=20), RNG).picks)
        )
    assert shares[1] == 18, "the share is 0.9 x 0.95 in the second round"
    assert shares[-1] == 4, "exploration ends at 20 %"
    state.utility[:] = 1.0
    assert len(policy.choose(state, RoundRequest(k=10), RNG).picks) == 10, (
        "no unexplored phone is left"
    )


def test_oorts_pacer_allows_more_time_without_progress() -> None:
    state = initial_round_state(a_fleet(40), 100)
    state.utility[:] = 5.0
    policy = OortPolicy()
    percentiles = []
    for round_ in range(1, 82):
        state.round, state.last_round[:] = round_, round_ - 1
        policy.choose(state, RoundRequest(k=4), RNG)
        percentiles.append(policy.percentile)
    assert percentiles == [10.0] * 60 + [15.0] * 20 + [20.0], (
        "at round 41 the utility has risen: nothing was exploited at first"
    )


def test_frugal_does_not_prefer_an_uncertain_phone() -> None:
    same = np.full(4, 0.02)
    state = initial_round_state(
        a_fleet(4, cold_s=same, uncertainty=np.array([2.0, 0.0, 0.0, 0.0])), 100
    )
    assert set(chosen("frugal", state, RoundRequest(k=3))) == {1, 2, 3}


def test_frugal_avoids_often_chosen_phones() -> None:
    state = initial_round_state(a_fleet(4, cold_s=np.full(4, 0.02)), 100)
    state.times_chosen[[0, 2]] = 30
    assert set(chosen("frugal", state, RoundRequest(k=2))) == {1, 3}


def test_frugal_waits_no_longer_than_its_phones_should_take() -> None:
    state = initial_round_state(a_fleet(8, cold_s=np.repeat([0.01, 0.04], 4)), 100, link_s=1.0)
    choice = POLICIES["frugal"]().choose(state, RoundRequest(k=4), np.random.default_rng(1))
    assert choice.deadline_s == pytest.approx(2.0 * 1.15), "one second of work, one of link"


def test_frugal_takes_slow_phones_together_once_they_are_valuable() -> None:
    state = initial_round_state(a_fleet(8, cold_s=np.repeat([0.01, 0.04], 4)), 100)
    assert set(chosen("frugal", state, RoundRequest(k=4))) == {0, 1, 2, 3}
    state.times_chosen[:4] = 8
    assert set(chosen("frugal", state, RoundRequest(k=4))) == {4, 5, 6, 7}


def test_a_phone_that_took_part_is_no_longer_uncertain() -> None:
    state = initial_round_state(
        a_fleet(2, cold_s=np.full(2, 0.02), uncertainty=np.full(2, 0.5)), 100
    )
    state.last_duration_s[1] = 2.0
    assert list(state.uncertainty) == [0.5, 0.0]
    assert chosen("frugal", state, RoundRequest(k=1)) == [1]


def test_frugal_skips_phones_that_would_miss_the_deadline() -> None:
    uncertainty = np.array([1.0, 0.0, 0.0])
    state = initial_round_state(
        a_fleet(3, cold_s=np.array([0.019, 0.02, 0.05]), uncertainty=uncertainty), 100
    )
    assert chosen("frugal", state, RoundRequest(k=3, deadline_s=3.0)) == [1], (
        "the time of the first is uncertain, that of the last too long"
    )
    assert chosen("frugal", state, RoundRequest(k=3, deadline_s=0.1)) == []


def test_choosing_from_ten_thousand_phones_takes_less_than_a_minute() -> None:
    state = initial_round_state(a_fleet(10_000), 100)
    for policy in POLICIES:
        started = time.process_time()
        assert len(chosen(policy, state, RoundRequest(k=100, deadline_s=1e6))) == 100
        assert time.process_time() - started < 60


def test_columns_have_the_values_of_the_rows() -> None:
    fleet = build_round_fleet(a_client_table().clients)
    assert [bool(fits) for fits in fleet.fits] == [True, True, True, False]
    assert fleet.cold_s * 1000 * 32 == pytest.approx([40.16, 10.04, 12.048, 11.044])
