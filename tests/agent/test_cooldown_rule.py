"""When a run may start."""

import math
from itertools import pairwise

import pytest

from agent.phone.cooling_model import TempReading, fit_cooling
from agent.phone.phone_memory import RestTemps
from agent.phone.phone_snapshot import PhoneSnapshot
from agent.phone.start_limit import StartBy, find_start_limit
from agent.prepare.cooldown import CoolEnough, GiveUp, KeepWaiting, TempSample, decide_start
from workloads.protocol.condition import Condition
from workloads.protocol.faults import SensorMissing, TooHot

CONDITION = Condition(start_temp_max_c=32.0)
START = find_start_limit(CONDITION, True, None, None)


def flat(temp_c: float | None, n: int = 6, step_s: float = 3.0) -> list[TempSample]:
    return [TempSample(100 + index * step_s, temp_c) for index in range(n)]


def cooling(start_c: float, rest_c: float, tau_s: float, span_s: float) -> list[TempSample]:
    times = [span_s * index / 20 for index in range(21)]
    return [TempSample(t, rest_c + (start_c - rest_c) * math.exp(-t / tau_s)) for t in times]


def test_a_phone_at_rest_is_ready() -> None:
    assert decide_start(flat(30.0), 0, CONDITION, None, START) == CoolEnough(30.0)


def test_one_sample_is_not_enough() -> None:
    """A temperature without a slope may rise or fall."""
    assert isinstance(decide_start(flat(30.0, n=1), 100, CONDITION, None, START), KeepWaiting)


def test_a_hot_phone_waits_for_the_fitted_time() -> None:
    """The wait ends about when the phone is cool enough and falls by at most 1 °C per minute."""
    samples = cooling(60, 25, 100, 60)
    fit = fit_cooling([TempReading(sample.t_s, sample.temp_c or 0) for sample in samples])
    decision = decide_start(samples, 0, CONDITION, fit, START)
    assert isinstance(decision, KeepWaiting)
    assert decision.prediction is not None
    steady_s = 100 * math.log(60 * 35 / 100) - 60
    assert decision.prediction.earliest_s <= steady_s <= decision.prediction.latest_s


def test_a_hot_phone_waits_even_if_it_is_steady() -> None:
    assert isinstance(decide_start(flat(32.1), 100, CONDITION, None, START), KeepWaiting)


def test_cool_but_throttled_is_not_at_rest() -> None:
    samples = [sample._replace(capped=True) for sample in flat(30.0)]
    assert isinstance(decide_start(samples, 100, CONDITION, None, START), KeepWaiting)
    decision = decide_start(samples, 100 - 2 * CONDITION.cool_wait_max_s, CONDITION, None, START)
    assert isinstance(decision, GiveUp)
    assert isinstance(decision.error, TooHot)


def test_cool_but_falling_fast_is_not_at_rest() -> None:
    """The die is cool long before the body."""
    samples = [TempSample(t, 31.0 - 0.1 * t) for t in range(0, 30, 3)]
    assert isinstance(decide_start(samples, 0, CONDITION, None, START), KeepWaiting)


def test_a_sensor_of_whole_degrees_may_show_one_number_for_minutes() -> None:
    assert isinstance(
        decide_start(flat(40.0, n=9, step_s=40), 0, CONDITION, None, START), KeepWaiting
    )


@pytest.mark.parametrize(
    ("samples", "error"),
    [
        (flat(None), SensorMissing),  # no sensor at all
        (flat(30.0)[:3] + flat(None, n=3), SensorMissing),  # the sensor stopped during the wait
        (flat(40.5, n=9, step_s=40), SensorMissing),  # hot, and constant for minutes
        (flat(40.0, n=40, step_s=40), SensorMissing),  # the same, in whole degrees
        (
            [TempSample(0, 50.0), TempSample(2500, 49.0)],
            TooHot,
        ),  # the longest wait of the condition is over
    ],
)
def test_without_a_usable_temperature_no_run_starts(
    samples: list[TempSample], error: type[Exception]
) -> None:
    decision = decide_start(samples, 0, CONDITION, None, START)
    assert isinstance(decision, GiveUp)
    assert type(decision.error) is error


def test_one_missing_sample_is_tolerated() -> None:
    assert isinstance(
        decide_start([*flat(30.0), TempSample(200, None)], 0, CONDITION, None, START), KeepWaiting
    )


def test_a_cooling_phone_starts_in_time() -> None:
    t, samples = 0.0, []
    for _ in range(1000):
        samples.append(TempSample(t, 26 + 30 * math.exp(-t / 240)))
        readings = [TempReading(sample.t_s, sample.temp_c or 0) for sample in samples]
        decision = decide_start(samples, 0, CONDITION, fit_cooling(readings), START)
        if isinstance(decision, CoolEnough):
            break
        assert isinstance(decision, KeepWaiting)
        t += min(decision.phone_s, 5.0)
    truth = next(s for s in range(5000) if 30 / 240 * 60 * math.exp(-s / 240) <= 1.0)
    assert truth <= t + 20
    assert t <= truth + 40
    assert all(a.t_s < b.t_s for a, b in pairwise(samples))


REST = RestTemps(zones_c={"big": 41.0, "little": 36.0}, battery_c=30.0)
DEFAULT = Condition()


@pytest.mark.parametrize(
    ("has_zones", "rest", "battery_c", "snapshot", "by", "is_cool"),
    [
        (True, REST, None, PhoneSnapshot(0, 43.0, 90, zones_c={"big": 43.0}), StartBy.REST, True),
        # The hottest zone is as usual, another one is not.
        (
            True,
            REST,
            None,
            PhoneSnapshot(0, 41.0, 90, zones_c={"big": 41.0, "little": 40.0}),
            StartBy.REST,
            False,
        ),
        (True, None, 30.0, PhoneSnapshot(0, 46.0, 90, battery_c=30.0), StartBy.BATTERY, True),
        (True, None, 38.0, PhoneSnapshot(0, 46.0, 90, battery_c=38.0), StartBy.BATTERY, False),
        (False, None, 30.0, PhoneSnapshot(0, None, 90, battery_c=30.0), StartBy.BATTERY, True),
        (False, REST, 34.0, PhoneSnapshot(0, None, 90, battery_c=34.0), StartBy.BATTERY, False),
        (False, None, None, PhoneSnapshot(0, None, None), StartBy.ANY, True),
    ],
)
def test_by_default_a_phone_starts_relative_to_its_own_rest(
    has_zones: bool,
    rest: RestTemps | None,
    battery_c: float | None,
    snapshot: PhoneSnapshot,
    by: StartBy,
    is_cool: bool,
) -> None:
    start = find_start_limit(DEFAULT, has_zones, rest, battery_c)
    assert start.by is by
    assert start.waits == (by is not StartBy.ANY)
    if start.waits:
        sample = TempSample(0, start.temp_c(snapshot), battery_c=snapshot.battery_c)
        samples = [sample._replace(t_s=t_s) for t_s in range(0, 90, 9)]
        decision = decide_start(samples, 0, DEFAULT, None, start)
        assert isinstance(decision, CoolEnough) == is_cool


@pytest.mark.parametrize(
    ("condition", "rest", "battery_c", "words"),
    [
        (CONDITION, None, None, ("requested 32.0", "start_temp_max_c: 42 would have passed")),
        (DEFAULT, RestTemps(zones_c={"big": 36.0}, battery_c=30.0), 30.5, ("_k: 6 would have",)),
        (DEFAULT, RestTemps(zones_c={"big": 36.0}, battery_c=27.0), 32.0, ("5 K warmer", "room")),
        (DEFAULT, None, 39.0, ("its battery is still at 39.0",)),
    ],
)
def test_a_phone_that_stays_too_warm_names_what_would_have_passed(
    condition: Condition, rest: RestTemps | None, battery_c: float | None, words: tuple[str, ...]
) -> None:
    start = find_start_limit(condition, True, rest, battery_c)
    samples = [TempSample(t_s, 41.0 + t_s / 1e6, False, battery_c) for t_s in range(0, 3001, 600)]
    decision = decide_start(samples, 0, condition, None, start)
    assert isinstance(decision, GiveUp)
    assert all(word in str(decision.error) for word in words), decision.error


def test_a_phone_whose_rest_is_unknown_is_watched_for_longer() -> None:
    start = find_start_limit(DEFAULT, True, None, 30.0)
    falling = [TempSample(t_s, 40.0 - 0.6 * t_s / 60, False, 30.0) for t_s in range(0, 91, 9)]
    assert isinstance(decide_start(falling, 0, DEFAULT, None, start), KeepWaiting)
    known = find_start_limit(DEFAULT, True, REST, None)
    assert isinstance(decide_start(falling, 0, DEFAULT, None, known), CoolEnough)
