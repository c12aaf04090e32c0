"""The choice of the next run: heat decides between drawn orders, shares between sweeps."""

import math
from collections import Counter
from itertools import pairwise

import pytest

from orchestrator.dispatch.choice import (
    NEVER_S,
    Expected,
    Heat,
    Offer,
    Stake,
    choose_order,
    share_out,
)

WARM = Heat(temp_c=36.0, rest_c=28.0, tau_s=600.0)
HOT_RUN = Expected(run_s=30.0, rise_c=10.0, start_max_c=32.0)
MILD_RUN = Expected(run_s=30.0, rise_c=1.0, start_max_c=32.0)
ANY_RUN = Expected(run_s=20.0, rise_c=0.0, start_max_c=None)


def test_the_wait_is_that_of_a_body_that_cools() -> None:
    assert math.isclose(600.0 * math.log(2), WARM.wait_s(32.0))
    assert math.isclose(32.0, WARM.later(WARM.wait_s(32.0)).temp_c)
    assert (0.0, 0.0, NEVER_S) == (WARM.wait_s(None), WARM.wait_s(36.0), WARM.wait_s(27.0))


def test_a_last_block_ends_with_what_nobody_has_to_wait_for() -> None:
    orders = [[HOT_RUN, MILD_RUN, MILD_RUN], [MILD_RUN, MILD_RUN, HOT_RUN]]
    assert 1 == choose_order(orders, WARM, is_last=True)


def test_heat_that_the_next_block_pays_for_is_no_gain() -> None:
    orders = [[MILD_RUN, HOT_RUN], [MILD_RUN, HOT_RUN][::-1]]
    times = [choose_order(orders, WARM, is_last=last) for last in (True, False)]
    assert 0 == times[0]
    ends_hot = choose_order([[MILD_RUN, HOT_RUN], [MILD_RUN, HOT_RUN]], WARM, is_last=False)
    assert 0 == ends_hot, "equal orders: the first that was drawn"


def test_a_run_that_may_start_warm_goes_while_the_phone_is_warm() -> None:
    lax = Expected(run_s=60.0, rise_c=0.2, start_max_c=38.0)
    assert 1 == choose_order([[MILD_RUN, lax], [lax, MILD_RUN]], WARM, is_last=False)


def test_without_a_thermometer_the_first_order_stands() -> None:
    assert 0 == choose_order([[HOT_RUN, MILD_RUN], [MILD_RUN, HOT_RUN]], None, is_last=True)


def shares(stakes: dict[str, Stake], turns: int, now: float = 0.0) -> Counter[str]:
    """How often each sweep got the phone, when every run takes as long."""
    used: dict[str, float] = {}
    got: Counter[str] = Counter()
    for _ in range(turns):
        lines = [Offer("PH1", name, at, MILD_RUN) for at, name in enumerate(stakes)]
        offer = share_out({"PH1": lines}, stakes, used, {}, now)["PH1"]
        stake = stakes[offer.sweep]
        used[stake.owner] = used.get(stake.owner, 0.0) + MILD_RUN.run_s / stake.weight
        got[offer.sweep] += 1
    return got


def test_owners_share_the_lab_however_many_sweeps_they_have() -> None:
    stakes = {"a1": Stake("anna"), "a2": Stake("anna", since=1.0), "b": Stake("bert")}
    got = shares(stakes, 40)
    assert (20, 20) == (got["a1"] + got["a2"], got["b"])


def test_ten_priorities_more_are_twice_the_share() -> None:
    got = shares({"a": Stake("anna", priority=60), "b": Stake("bert")}, 60)
    assert (40, 20) == (got["a"], got["b"])


def test_within_an_owner_the_higher_priority_then_the_older_goes_first() -> None:
    stakes = {
        "young": Stake("anna", since=2.0),
        "old": Stake("anna", since=1.0),
        "urgent": Stake("anna", priority=70, since=3.0),
    }
    order = []
    while stakes:
        (name,) = shares(stakes, 1)
        order.append(name)
        del stakes[name]
    assert ["urgent", "old", "young"] == order


@pytest.mark.parametrize(
    ("stake", "first"),
    [
        (Stake("anna", deadline=1000.0, left_s=900.0), "a"),  # it would be missed
        (Stake("anna", deadline=9000.0, left_s=900.0), "b"),  # there is time enough
        (Stake("anna", deadline=-1.0, left_s=900.0), "b"),  # it is missed already
        (Stake("anna", priority=40, deadline=1000.0, left_s=900.0), "a"),
    ],
)
def test_a_deadline_presses_only_while_it_can_still_be_kept(stake: Stake, first: str) -> None:
    used = {"anna": 100.0, "bert": 0.0}
    lines = [Offer("PH1", "a", 1, MILD_RUN), Offer("PH1", "b", 2, MILD_RUN)]
    stakes = {"a": stake, "b": Stake("bert")}
    assert first == share_out({"PH1": lines}, stakes, used, {}, now=0.0)["PH1"].sweep


def test_a_phone_that_cools_does_what_may_start_as_it_is() -> None:
    lines = [Offer("PH1", "a", 1, MILD_RUN), Offer("PH1", "b", 2, ANY_RUN)]
    stakes = {"a": Stake("anna"), "b": Stake("bert")}
    used = {"bert": 500.0}
    assert "b" == share_out({"PH1": lines}, stakes, used, {"PH1": WARM}, 0.0)["PH1"].sweep
    cool = WARM.later(10_000.0)
    assert "a" == share_out({"PH1": lines}, stakes, used, {"PH1": cool}, 0.0)["PH1"].sweep


def test_what_would_not_fit_into_the_pause_does_not_fill_it() -> None:
    long = Expected(run_s=4000.0, rise_c=0.0, start_max_c=None)
    warming = Expected(run_s=20.0, rise_c=5.0, start_max_c=None)
    for filler in (long, warming):
        lines = [Offer("PH1", "a", 1, MILD_RUN), Offer("PH1", "b", 2, filler)]
        stakes = {"a": Stake("anna"), "b": Stake("bert")}
        found = share_out({"PH1": lines}, stakes, {"bert": 500.0}, {"PH1": WARM}, 0.0)
        assert "a" == found["PH1"].sweep


def test_phones_that_are_free_together_are_shared_out_too() -> None:
    stakes = {"a": Stake("anna"), "b": Stake("bert")}
    phones = [f"PH{number}" for number in range(10)]
    offers = {
        phone: [Offer(phone, "a", 1, MILD_RUN), Offer(phone, "b", 2, MILD_RUN)] for phone in phones
    }
    chosen = share_out(offers, stakes, {}, {}, now=0.0)
    assert Counter({"a": 5, "b": 5}) == Counter(offer.sweep for offer in chosen.values())
    assert all(one.sweep != other.sweep for one, other in pairwise(chosen.values()))
