"""The cooling model: it recovers the parameters of a trace, learns, and states its uncertainty."""

import math
import random
from itertools import pairwise

import pytest

from agent.phone.cooling_model import (
    PRIOR,
    CoolingFit,
    CoolingPosterior,
    TempReading,
    fit_cooling,
    predict_time_to_cool,
    slope_c_per_min,
    update_posterior,
)


def a_cooling(
    slow: float, rest: float, start: float, seconds: int, body: bool = True, seed: int = 7
) -> list[TempReading]:
    """Draw readings after load, one per five seconds: the die cools first, then the body."""
    rng = random.Random(seed)
    readings = []
    for t in range(0, seconds, 5):
        body_c = rest - 1.5 + (start - rest) * math.exp(-t / slow)
        cpu_c = body_c + 1.5 + 20 * math.exp(-t / 14)
        measured_c = body_c + rng.gauss(0, 0.05) if body else None
        readings.append(TempReading(t, cpu_c + rng.gauss(0, 0.08), measured_c))
    return readings


def cool_after_s(slow: float, rest: float, start: float, target: float) -> float:
    return slow * math.log((start - rest) / (target - rest))


def fitted(trace: list[TempReading], prior: CoolingPosterior = PRIOR) -> CoolingFit:
    fit = fit_cooling(trace, prior)
    assert fit is not None
    return fit


@pytest.mark.parametrize("body", [True, False])
@pytest.mark.parametrize(("slow", "rest"), [(150.0, 27.0), (300.0, 25.0), (560.0, 30.0)])
def test_a_long_trace_predicts_when_the_phone_is_cool(slow: float, rest: float, body: bool) -> None:
    trace = a_cooling(slow, rest, rest + 15, seconds=int(1.5 * slow), body=body)
    prediction = predict_time_to_cool(fitted(trace), rest + 1.5)
    truth = cool_after_s(slow, rest, rest + 15, rest + 1.5) - trace[-1].t_s
    assert prediction is not None
    assert prediction.earliest_s <= truth <= prediction.latest_s
    assert prediction.likely_s == pytest.approx(truth, rel=0.2)


def test_a_known_phone_is_predicted_early() -> None:
    posterior = PRIOR
    early = a_cooling(400.0, 28.0, 40.0, 60, seed=99)
    truth = cool_after_s(400.0, 28.0, 40.0, 31.0) - early[-1].t_s
    widths = []
    for seed in range(4):
        prediction = predict_time_to_cool(fitted(early, posterior), 31.0)
        assert prediction is not None
        widths.append(prediction.latest_s - prediction.earliest_s)
        posterior = update_posterior(
            posterior, fitted(a_cooling(400.0, 28.0, 36.0 + seed, 700, seed=seed), posterior)
        )
    assert prediction.likely_s == pytest.approx(truth, rel=0.1)
    assert widths[-1] < widths[0] / 3
    assert posterior.coolings == 4
    assert posterior.rest_c == pytest.approx(28.0, abs=0.5)


def test_the_wait_ends_when_it_is_steady_as_well_as_cool() -> None:
    fit = fitted(a_cooling(400.0, 28.0, 40.0, 300))
    loose, strict = predict_time_to_cool(fit, 35.0), predict_time_to_cool(fit, 35.0, 0.2)
    assert loose is not None
    assert strict is not None
    assert strict.likely_s > loose.likely_s + 100


def test_a_rising_room_temperature_is_followed() -> None:
    posterior = PRIOR
    rests = [26.0, 26.3, 26.6, 26.9, 27.2]
    for seed, rest in enumerate(rests):
        posterior = update_posterior(
            posterior, fitted(a_cooling(300.0, rest, rest + 12, 600, seed=seed), posterior)
        )
    assert posterior.rest_c == pytest.approx(rests[-1], abs=0.4)


def test_a_phone_that_does_not_cool_gives_no_fit() -> None:
    assert fit_cooling([TempReading(t, 40.0) for t in range(0, 300, 10)]) is None
    assert fit_cooling(a_cooling(300.0, 26.0, 46.0, seconds=15)) is None


def test_a_temperature_below_rest_is_never_reached() -> None:
    assert predict_time_to_cool(fitted(a_cooling(120.0, 30.0, 45.0, seconds=600)), 20.0) is None


def test_a_phone_that_is_cool_is_ready_now() -> None:
    fit = fitted(a_cooling(120.0, 27.0, 45.0, seconds=600))
    assert predict_time_to_cool(fit, 32.0) == (0.0, 0.0, 0.0)


def test_lower_targets_take_longer() -> None:
    fit = fitted(a_cooling(300.0, 26.0, 40.0, seconds=400))
    waits = [predict_time_to_cool(fit, target) for target in (29.0, 28.5, 28.0, 27.5)]
    assert all(a.likely_s < b.likely_s for a, b in pairwise(wait for wait in waits if wait))


def test_the_slope_is_in_degrees_per_minute() -> None:
    assert slope_c_per_min(
        [TempReading(0, 40.0), TempReading(30, 39.0), TempReading(60, 38.0)]
    ) == pytest.approx(-2)
    assert slope_c_per_min([TempReading(5, 40.0)]) == 0.0
