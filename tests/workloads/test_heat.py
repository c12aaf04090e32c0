"""The heat model: it finds back what a trace was made of, and says how sure it is."""

import math
import random

import pytest

from workloads.heat import Reading, fit_cooling, predict_ready, slope_c_per_min


def a_cooling(
    tau: float, rest: float, start: float, seconds: int, noise: float = 0.0
) -> list[Reading]:
    """Readings of a phone that cools, one in ten seconds."""
    dice = random.Random(7)
    return [
        Reading(t, rest + (start - rest) * math.exp(-t / tau) + dice.gauss(0, noise))
        for t in range(0, seconds, 10)
    ]


@pytest.mark.parametrize(("tau", "rest"), [(120.0, 27.0), (300.0, 25.0), (560.0, 30.0)])
def test_a_long_trace_tells_when_the_phone_will_be_ready(tau: float, rest: float) -> None:
    trace = a_cooling(tau, rest, 45.0, seconds=int(2 * tau), noise=0.1)
    fit = fit_cooling(trace)
    assert fit is not None
    now, target = trace[-1].temp_c, rest + 1.0
    ready = predict_ready(fit, now, target)
    truth = tau * math.log((now - rest) / (target - rest))
    assert ready is not None
    assert ready.earliest_s <= truth <= ready.latest_s
    assert ready.likely_s == pytest.approx(truth, rel=0.2)


def test_more_data_makes_a_narrower_interval() -> None:
    def width(seconds: int) -> float:
        trace = a_cooling(300.0, 26.0, 46.0, seconds)
        fit = fit_cooling(trace, rest_hint_c=26.0)
        assert fit is not None
        ready = predict_ready(fit, trace[-1].temp_c, 28.0)
        assert ready is not None
        return ready.latest_s - ready.earliest_s

    assert width(600) < width(60)


def test_a_phone_that_does_not_cool_explains_nothing() -> None:
    assert fit_cooling([Reading(t, 40.0) for t in range(0, 300, 10)]) is None
    assert fit_cooling(a_cooling(300.0, 26.0, 46.0, seconds=30)) is None


def test_a_temperature_below_rest_is_never_reached() -> None:
    fit = fit_cooling(a_cooling(120.0, 30.0, 45.0, seconds=600))
    assert fit is not None
    assert predict_ready(fit, 35.0, 20.0) is None


def test_a_phone_that_is_cool_is_ready_now() -> None:
    fit = fit_cooling(a_cooling(120.0, 30.0, 45.0, seconds=600))
    assert fit is not None
    assert (0.0, 0.0, 0.0) == predict_ready(fit, 29.0, 32.0)


def test_slope_is_in_degrees_a_minute() -> None:
    assert slope_c_per_min(
        [Reading(0, 40.0), Reading(30, 39.0), Reading(60, 38.0)]
    ) == pytest.approx(-2)
    assert 0.0 == slope_c_per_min([Reading(5, 40.0)])
