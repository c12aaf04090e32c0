"""The reference of a canary: frozen, with limits from its spread, and sums against slow drift."""

import random

import pytest

from agent.phone.canary_reference import (
    COMPUTER_SPREAD,
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


def test_a_disturbed_reference_does_not_excuse_later_disturbances() -> None:
    disturbed = learn_reference([2.0, 2.3, 2.0, 2.4])
    assert disturbed is not None
    assert disturbed.drift_max > 0.2
    slow = CanaryTimes(2.3, 2.5, disturbed)
    assert (slow.change_max, slow.drift_max) == (0.06, 0.06)
    assert slow.has_drifted
    assert not slow.is_stable
    of_a_computer = disturbed.model_copy(update={"usual_spread": COMPUTER_SPREAD})
    assert CanaryTimes(2.3, 2.5, of_a_computer).is_stable


# A phone with free clocks whose reference has learned a smaller spread than it has.
STOCK = CanaryReference(ms=6.0, spread=0.006, count=4)


@pytest.mark.parametrize(
    ("before_ms", "after_ms", "again_ms", "stable"),
    [
        (5.88, 6.115, 6.02, True),  # 4.0 % apart by chance
        (5.87, 6.128, 5.97, True),  # 4.4 %
        (6.0, 6.25, 6.24, False),  # a phone that became 4 % slower
        (6.05, 5.80, 5.79, False),
        (5.88, 6.35, 6.30, False),  # 8 %: not doubtful
    ],
)
def test_a_canary_slightly_beyond_its_limit_is_measured_once_more(
    before_ms: float, after_ms: float, again_ms: float, stable: bool
) -> None:
    first = CanaryTimes(before_ms, after_ms, STOCK, is_held=False)
    assert not first.is_stable
    assert first.is_doubtful == (abs(after_ms / before_ms - 1) < 0.07)
    assert first.measured_again(again_ms).is_stable == stable


def test_the_canary_before_a_run_is_measured_once_more_as_well() -> None:
    first = CanaryTimes(6.22, reference=STOCK, is_held=False)
    assert first.is_doubtful
    assert not first.measured_again(6.1).has_drifted
    assert first.measured_again(6.24).has_drifted
    assert not CanaryTimes(6.5, reference=STOCK, is_held=False).is_doubtful
    assert not CanaryTimes(None, reference=STOCK).is_doubtful


def test_a_second_look_hardly_costs_detection() -> None:
    """Free clocks of 0.95 % spread: clean runs, and runs after which the phone is 5 % slower."""
    rng = random.Random(4)

    def rejected(slower: float) -> float:
        found = 0
        for _ in range(2000):
            reference = learn_reference([rng.gauss(6.0, 0.057) for _ in range(4)])
            before_ms, after_ms, again_ms = (rng.gauss(6.0, 0.057) for _ in range(3))
            times = CanaryTimes(before_ms, after_ms * (1 + slower), reference, is_held=False)
            if times.is_doubtful:
                times = times.measured_again(again_ms * (1 + slower))
            found += not times.is_stable
        return found / 2000

    assert rejected(0.0) < 0.002
    assert rejected(0.05) > 0.65


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
