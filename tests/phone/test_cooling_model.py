"""The heat model: it finds back what a trace was made of, learns, and says how sure it is."""

import math
import random
from itertools import pairwise

import pytest

from workloads.heat import (
    NEVER_SEEN,
    Cooled,
    CoolingFit,
    Reading,
    fit_cooling,
    learn,
    predict_ready,
    slope_c_per_min,
)


def a_cooling(
    slow: float, rest: float, start: float, seconds: int, body: bool = True, seed: int = 7
) -> list[Reading]:
    """Readings of a phone after work, one in five seconds: the die falls first, then the body."""
    dice = random.Random(seed)
    readings = []
    for t in range(0, seconds, 5):
        body_c = rest - 1.5 + (start - rest) * math.exp(-t / slow)
        cpu_c = body_c + 1.5 + 20 * math.exp(-t / 14)
        seen = body_c + dice.gauss(0, 0.05) if body else None
        readings.append(Reading(t, cpu_c + dice.gauss(0, 0.08), seen))
    return readings


def ready_after(slow: float, rest: float, start: float, target: float) -> float:
    return slow * math.log((start - rest) / (target - rest))


def fitted(trace: list[Reading], known: Cooled = NEVER_SEEN) -> CoolingFit:
    fit = fit_cooling(trace, known)
    assert fit is not None
    return fit


@pytest.mark.parametrize("body", [True, False])
@pytest.mark.parametrize(("slow", "rest"), [(150.0, 27.0), (300.0, 25.0), (560.0, 30.0)])
def test_a_long_trace_tells_when_the_phone_will_be_ready(
    slow: float, rest: float, body: bool
) -> None:
    trace = a_cooling(slow, rest, rest + 15, seconds=int(1.5 * slow), body=body)
    ready = predict_ready(fitted(trace), rest + 1.5)
    truth = ready_after(slow, rest, rest + 15, rest + 1.5) - trace[-1].t_s
    assert ready is not None
    assert ready.earliest_s <= truth <= ready.latest_s
    assert ready.likely_s == pytest.approx(truth, rel=0.2)


def test_a_phone_that_is_known_is_predicted_early() -> None:
    """After three coolings, a minute of the fourth says what the first could not have said."""
    known = NEVER_SEEN
    early = a_cooling(400.0, 28.0, 40.0, 60, seed=99)
    truth = ready_after(400.0, 28.0, 40.0, 31.0) - early[-1].t_s
    widths = []
    for seed in range(4):
        ready = predict_ready(fitted(early, known), 31.0)
        assert ready is not None
        widths.append(ready.latest_s - ready.earliest_s)
        known = learn(known, fitted(a_cooling(400.0, 28.0, 36.0 + seed, 700, seed=seed), known))
    assert ready.likely_s == pytest.approx(truth, rel=0.1)
    assert widths[-1] < widths[0] / 3
    assert known.coolings == 4
    assert known.rest_c == pytest.approx(28.0, abs=0.5)


def test_the_wait_ends_when_it_is_steady_as_well_as_cool() -> None:
    fit = fitted(a_cooling(400.0, 28.0, 40.0, 300))
    loose, strict = predict_ready(fit, 35.0), predict_ready(fit, 35.0, 0.2)
    assert loose is not None
    assert strict is not None
    assert strict.likely_s > loose.likely_s + 100


def test_a_room_that_gets_warmer_is_followed() -> None:
    known = NEVER_SEEN
    rests = [26.0, 26.3, 26.6, 26.9, 27.2]
    for seed, rest in enumerate(rests):
        known = learn(known, fitted(a_cooling(300.0, rest, rest + 12, 600, seed=seed), known))
    assert known.rest_c == pytest.approx(rests[-1], abs=0.4)


def test_a_phone_that_does_not_cool_explains_nothing() -> None:
    assert fit_cooling([Reading(t, 40.0) for t in range(0, 300, 10)]) is None
    assert fit_cooling(a_cooling(300.0, 26.0, 46.0, seconds=15)) is None


def test_a_temperature_below_rest_is_never_reached() -> None:
    assert predict_ready(fitted(a_cooling(120.0, 30.0, 45.0, seconds=600)), 20.0) is None


def test_a_phone_that_is_cool_is_ready_now() -> None:
    fit = fitted(a_cooling(120.0, 27.0, 45.0, seconds=600))
    assert (0.0, 0.0, 0.0) == predict_ready(fit, 32.0)


def test_lower_targets_take_longer() -> None:
    fit = fitted(a_cooling(300.0, 26.0, 40.0, seconds=400))
    waits = [predict_ready(fit, target) for target in (29.0, 28.5, 28.0, 27.5)]
    assert all(a.likely_s < b.likely_s for a, b in pairwise(wait for wait in waits if wait))


def test_slope_is_in_degrees_a_minute() -> None:
    assert slope_c_per_min(
        [Reading(0, 40.0), Reading(30, 39.0), Reading(60, 38.0)]
    ) == pytest.approx(-2)
    assert 0.0 == slope_c_per_min([Reading(5, 40.0)])
