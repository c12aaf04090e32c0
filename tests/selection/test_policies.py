"""Who is chosen, by each rule, and why."""

import time

import numpy as np
import pytest

from orchestrator.selection.fleet import cooled, line_up, warmed, work_s
from orchestrator.selection.policies import POLICIES
from orchestrator.selection.situation import Situation, Want, first_look
from tests.selection.fleets import a_census, a_fleet

RNG = np.random.default_rng(0)


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


def test_fedcs_goes_by_what_a_phone_took_last() -> None:
    now = first_look(a_fleet(3), 100)
    now.took_s[0] = 9.0
    assert [1] == picked("fedcs", now, Want(k=3, deadline_s=4.0))


def test_tifl_asks_one_tier_a_round_each_of_a_cohort_at_least() -> None:
    now = first_look(a_fleet(50), 100)
    policy = POLICIES["tifl"]()
    tiers = [policy.choose(now, Want(k=5), RNG).picks // 10 for _ in range(60)]
    assert all(len(set(tier)) == 1 for tier in tiers)
    assert {0, 1, 2, 3, 4} == {int(tier[0]) for tier in tiers}
    small = first_look(a_fleet(6), 100)
    assert 3 == len(picked("tifl", small, Want(k=3))), "five tiers would be of one phone each"


def test_tifl_turns_to_the_tier_on_which_the_model_does_worst() -> None:
    now = first_look(a_fleet(50), 100)
    now.utility[:] = np.where(np.arange(50) >= 40, 1000.0, np.arange(50))
    policy = POLICIES["tifl"]()
    last = [0] * 5
    for round_ in range(1, 101):
        now.round = round_
        tier = int(policy.choose(now, Want(k=5, rounds=1000), RNG).picks[0] // 10)
        last[tier] += round_ > 20
    assert last[4] == max(last), "nothing was learned, so the worst becomes the likeliest"


def test_tifl_gives_slow_tiers_fewer_credits() -> None:
    now = first_look(a_fleet(50), 100)
    policy = POLICIES["tifl"]()
    tiers = [int(policy.choose(now, Want(k=5, rounds=100), RNG).picks[0] // 10) for _ in range(100)]
    assert tiers.count(4) <= 10, "1.5 x 100 rounds x 1/15"
    assert all(tiers.count(tier) <= 50 for tier in range(5))


def test_oort_takes_useful_data_and_marks_down_the_slow() -> None:
    now = first_look(a_fleet(40), 100)
    now.utility[:] = np.where(np.arange(40) % 2, 100.0, 1.0)
    now.last_round[:] = 1
    often = [0] * 40
    for seed in range(40):
        choice = POLICIES["oort"]().choose(now, Want(k=10), np.random.default_rng(seed))
        for i in choice.picks:
            often[int(i)] += 1
    assert often[3] > often[39], "as useful, but five times slower"
    assert often[3] > often[4], "as quick, but less useful"


def test_oort_explores_while_there_is_somebody_to_be_heard() -> None:
    now = first_look(a_fleet(40), 100)
    now.utility[:20] = 1.0
    now.last_round[:20] = 1
    policy = POLICIES["oort"]()
    shares = []
    for round_ in range(2, 80):
        now.round = round_
        shares.append(sum(int(i) >= 20 for i in policy.choose(now, Want(k=10), RNG).picks))
    assert 9 == shares[0], "nine tenths at first"
    assert 3 == shares[-1], "three tenths at last"
    now.utility[:] = 1.0
    assert 10 == len(policy.choose(now, Want(k=10), RNG).picks), "nobody is left to be explored"


def test_oorts_pacer_allows_more_time_when_rounds_earn_no_more() -> None:
    now = first_look(a_fleet(40), 100)
    now.utility[:] = 5.0
    now.last_round[:] = 1
    policy = POLICIES["oort"]()
    said = []
    for round_ in range(1, 61):
        now.round = round_
        said.append(policy.choose(now, Want(k=4), RNG).why[0].split(" where ")[1])
    assert said[0] == said[38] != said[39] == said[58] != said[59]


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


def test_ours_believes_what_a_phone_took_more_than_what_was_measured() -> None:
    now = first_look(a_fleet(2, cold_s=np.full(2, 0.02), doubt=np.full(2, 0.5)), 100)
    now.took_s[1], now.off[1] = 8.0, 4.0
    assert [0] == picked("frugal", now, Want(k=1)), "the other has shown to be four times slower"
    assert pytest.approx([2.0, 8.0]) == now.expected_s
    assert [0.5, 0.0] == list(now.doubt)


def test_ours_asks_nobody_who_would_miss_the_deadline() -> None:
    doubt = np.array([1.0, 0.0, 0.0])
    now = first_look(a_fleet(3, cold_s=np.array([0.019, 0.02, 0.05]), doubt=doubt), 100)
    assert [1, 0] == picked("frugal", now, Want(k=3, deadline_s=3.0)), "the sure one first"
    assert [] == picked("frugal", now, Want(k=3, deadline_s=0.1))


def test_ours_guards_a_battery_near_its_floor() -> None:
    now = first_look(a_fleet(2, cold_s=np.full(2, 0.02)), 100)
    now.charge[0] = 0.25
    assert [1] == picked("frugal", now, Want(k=1))


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
