"""Which run a phone gets next: shares and deadlines between sweeps, backfilling while it cools."""

import math
from collections import Counter
from itertools import pairwise

import pytest

from orchestrator.dispatch.fair_share import (
    NEVER_S,
    ExpectedDuration,
    SweepShare,
    ThermalState,
    assign_runs,
)
from orchestrator.store.next_runs import NextRun

WARM = ThermalState(temp_c=36.0, rest_c=28.0, time_constant_s=600.0)
MILD_RUN = ExpectedDuration(run_s=30.0, rise_c=1.0, start_max_c=32.0)
ANY_RUN = ExpectedDuration(run_s=20.0, rise_c=0.0, start_max_c=None)


def waiting(phone: str, sweep: str, run: int) -> NextRun:
    return NextRun(phone, sweep, run, "tr-1", run)


def test_the_wait_follows_exponential_cooling() -> None:
    assert math.isclose(600.0 * math.log(2), WARM.wait_s(32.0))
    assert math.isclose(32.0, WARM.after(WARM.wait_s(32.0)).temp_c)
    assert (WARM.wait_s(None), WARM.wait_s(36.0), WARM.wait_s(27.0)) == (0.0, 0.0, NEVER_S)


def shares(stakes: dict[str, SweepShare], turns: int, now: float = 0.0) -> Counter[str]:
    """Count how often each sweep gets the phone if every run takes the same time."""
    used: dict[str, float] = {}
    got: Counter[str] = Counter()
    for _ in range(turns):
        lines = [waiting("PH1", name, at) for at, name in enumerate(stakes)]
        expected = dict.fromkeys(range(len(stakes)), MILD_RUN)
        (offer,) = assign_runs(lines, expected, stakes, used, {}, now)
        stake = stakes[offer.sweep]
        used[stake.owner] = used.get(stake.owner, 0.0) + MILD_RUN.run_s / stake.weight
        got[offer.sweep] += 1
    return got


def test_owners_share_the_lab_independently_of_their_number_of_sweeps() -> None:
    stakes = {
        "a1": SweepShare("anna"),
        "a2": SweepShare("anna", created_at_s=1.0),
        "b": SweepShare("bert"),
    }
    got = shares(stakes, 40)
    assert (got["a1"] + got["a2"], got["b"]) == (20, 20)


def test_ten_more_priority_points_double_the_share() -> None:
    got = shares({"a": SweepShare("anna", priority=60), "b": SweepShare("bert")}, 60)
    assert (got["a"], got["b"]) == (40, 20)


def test_within_an_owner_priority_then_age_decides() -> None:
    stakes = {
        "young": SweepShare("anna", created_at_s=2.0),
        "old": SweepShare("anna", created_at_s=1.0),
        "urgent": SweepShare("anna", priority=70, created_at_s=3.0),
    }
    order = []
    while stakes:
        (name,) = shares(stakes, 1)
        order.append(name)
        del stakes[name]
    assert order == ["urgent", "old", "young"]


@pytest.mark.parametrize(
    ("stake", "first"),
    [
        (
            SweepShare("anna", deadline=1000.0, remaining_s=900.0),
            "a",
        ),  # the deadline would be missed
        (SweepShare("anna", deadline=9000.0, remaining_s=900.0), "b"),  # there is enough time
        (SweepShare("anna", deadline=-1.0, remaining_s=900.0), "b"),  # the deadline has passed
        (SweepShare("anna", priority=40, deadline=1000.0, remaining_s=900.0), "a"),
    ],
)
def test_a_deadline_has_precedence_only_while_it_can_be_met(stake: SweepShare, first: str) -> None:
    used = {"anna": 100.0, "bert": 0.0}
    lines = [waiting("PH1", "a", 1), waiting("PH1", "b", 2)]
    stakes = {"a": stake, "b": SweepShare("bert")}
    (chosen,) = assign_runs(lines, {1: MILD_RUN, 2: MILD_RUN}, stakes, used, {}, now=0.0)
    assert first == chosen.sweep


def next_sweep(fillers: list[ExpectedDuration], heat: ThermalState) -> str:
    """Return the sweep that gets the phone if 'a' has the highest priority."""
    expected = dict(enumerate([MILD_RUN, *fillers]))
    lines = [waiting("PH1", "abc"[at], at) for at in expected]
    stakes = {"a": SweepShare("anna"), "b": SweepShare("bert"), "c": SweepShare("carl")}
    used = {"bert": 500.0, "carl": 900.0}
    (chosen,) = assign_runs(lines, expected, stakes, used, {"PH1": heat}, 0.0)
    return chosen.sweep


def test_a_run_that_may_start_warm_backfills_a_cooldown() -> None:
    assert next_sweep([ANY_RUN], WARM) == "b"
    assert next_sweep([ANY_RUN], WARM.after(10_000.0)) == "a", "the phone is cool enough"
    assert next_sweep([MILD_RUN], WARM) == "a", "the other run would have to wait too"


def test_a_run_that_would_delay_the_waiting_one_does_not_backfill() -> None:
    long = ExpectedDuration(run_s=4000.0, rise_c=0.0, start_max_c=None)
    warming = ExpectedDuration(run_s=20.0, rise_c=5.0, start_max_c=None)
    assert next_sweep([long], WARM) == "a"
    assert next_sweep([warming], WARM) == "a"


def test_a_backfilled_run_may_warm_the_phone_if_it_saves_time() -> None:
    # From 36 °C the body falls to 32 °C in 416 s; 0.05 °C more at 30 s cost 4 s of 30 s.
    slightly = ExpectedDuration(run_s=30.0, rise_c=0.05, start_max_c=None)
    too_much = ExpectedDuration(run_s=30.0, rise_c=0.2, start_max_c=None)
    assert next_sweep([slightly], WARM) == "b"
    assert next_sweep([too_much], WARM) == "a"


def test_the_highest_priority_run_that_fits_backfills() -> None:
    longer = ExpectedDuration(run_s=60.0, rise_c=0.0, start_max_c=None)
    assert next_sweep([longer, ANY_RUN], WARM) == "b"


def test_phones_that_are_idle_at_once_are_shared() -> None:
    stakes = {"a": SweepShare("anna"), "b": SweepShare("bert")}
    phones = [f"PH{number}" for number in range(10)]
    offers = [waiting(phone, name, at) for phone in phones for at, name in enumerate("ab")]
    chosen = assign_runs(offers, {0: MILD_RUN, 1: MILD_RUN}, stakes, {}, {}, now=0.0)
    assert [item.phone for item in chosen] == phones
    assert Counter(item.sweep for item in chosen) == Counter({"a": 5, "b": 5})
    assert all(one.sweep != other.sweep for one, other in pairwise(chosen))
