"""The reference of a canary: frozen, with limits from its spread, and sums against slow drift."""

import random

import pytest

from agent.phone.canary_reference import (
    SECONDS,
    SECONDS_MAX,
    CanaryReference,
    CanaryTimes,
    choose_seconds,
    learn_reference,
)

USUAL = CanaryReference(ms=2.0, spread=0.005, count=6)


def runs(reference: CanaryReference, distances: list[float]) -> list[CanaryTimes]:
    """Compare runs at these distances from the reference, one after the other."""
    found = []
    for distance in distances:
        ms = reference.ms * (1 + distance)
        times = CanaryTimes(ms, ms, reference).with_this_run()
        assert times.reference is not None
        reference = times.reference
        found.append(times)
    return found


def test_times_are_compared_with_each_other_and_with_the_reference() -> None:
    times = CanaryTimes(2.02, 2.1, USUAL)
    assert [times.change, times.drift] == pytest.approx([0.0396, 0.01], abs=1e-4)
    assert not times.is_stable
    assert CanaryTimes(2.02, 2.05, USUAL).is_stable
    assert CanaryTimes(2.0, None, None).change is None
    assert not CanaryTimes(2.0, None, None).has_drifted
    assert CanaryTimes(2.0, 2.0, None).with_this_run().reference is None


def test_limits_follow_the_spread_and_have_a_lower_bound() -> None:
    calm, noisy = (CanaryReference(ms=1, spread=s, count=4) for s in (0.001, 0.02))
    assert (calm.change_max, calm.drift_max) == (0.02, 0.03)
    assert noisy.change_max == pytest.approx(0.113, abs=1e-3)
    assert noisy.drift_max > noisy.detectable > 0.04


@pytest.mark.parametrize("direction", [1, -1])
def test_a_creeping_change_is_found_within_five_runs(direction: int) -> None:
    found = runs(USUAL, [direction * 0.015 * number for number in range(1, 6)])
    assert found[-1].has_drifted
    assert direction * found[-1].accumulated > 0
    assert {times.reference.ms for times in found if times.reference} == {2.0}


def test_a_small_change_that_stays_is_found_by_its_sum_alone() -> None:
    found = runs(USUAL, [0.02] * 7)
    assert [times.has_drifted for times in found] == [False] * 3 + [True] * 4
    # The sum is kept, but a phone that is as fast as it was is trusted at once.
    last = found[-1].reference
    assert last is not None
    assert not runs(last, [0.001])[0].has_drifted


def test_one_disturbance_is_not_a_drift_of_later_runs() -> None:
    found = runs(USUAL, [0.5, 0.01, 0.01, 0.01])
    assert [times.has_drifted for times in found] == [True, False, False, False]


def test_a_steady_phone_is_hardly_ever_accused() -> None:
    """Of 300 phones with 40 runs each, after references from few canaries."""
    rng = random.Random(1)
    accused = changed = 0
    for _ in range(300):
        reference = learn_reference([rng.gauss(2.0, 0.01) for _ in range(4)])
        assert reference is not None
        for _ in range(40):
            times = CanaryTimes(rng.gauss(2.0, 0.01), rng.gauss(2.0, 0.01), reference)
            changed += not times.is_stable
            times = times.with_this_run()
            accused += times.has_drifted
            assert times.reference is not None
            reference = times.reference
    assert changed < 12000 * 0.002
    assert accused < 12000 * 0.005


def test_a_reference_is_learned_from_the_middle_of_a_series() -> None:
    assert learn_reference([]) is None
    learned = learn_reference([2.0, 2.01, 1.99, 2.0, 2.02, 3.0], 0.5)
    assert learned is not None
    assert [learned.ms, learned.count, learned.seconds] == pytest.approx([2.005, 6, 0.5])
    assert learned.spread > 0.1
    equal = learn_reference([2.0] * 6)
    assert equal is not None
    assert 0.003 < equal.spread < 0.005  # a short series cannot show that there is no noise


def test_a_canary_is_as_long_as_it_has_to_be() -> None:
    def length(spread: float, seconds: float = SECONDS) -> float:
        return choose_seconds(CanaryReference(ms=1, spread=spread, count=6, seconds=seconds))

    assert length(0.005) == SECONDS
    assert length(0.015) == pytest.approx(2 * SECONDS)
    assert length(0.03) == pytest.approx(SECONDS * (2 * 0.03 / 0.03) ** 2 * 7 / 6)
    assert length(0.2) == length(0.2, SECONDS_MAX) == SECONDS_MAX
