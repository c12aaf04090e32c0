"""The memory of a phone: cooling traces, resting temperature, gauge."""

import math
from pathlib import Path

import pytest

from agent.phone.canary_reference import CanaryReference
from agent.phone.cooling_model import PRIOR, TempReading, predict_time_to_cool
from agent.phone.phone_memory import (
    TRACE_MAX,
    CoolingHistory,
    PhoneMemory,
    cooling_section,
    load_phone_memory,
    save_phone_memory,
)
from workloads.protocol.phone_facts import FuelGauge


def body_and_die(t_s: float) -> float:
    """Return the temperature after heavy load: the die cools in seconds, the body in minutes."""
    return 28 + 8 * math.exp(-t_s / 400) + 25 * math.exp(-t_s / 12)


def record_cooling(history: CoolingHistory, start_s: float, seconds: int) -> None:
    for t in range(0, seconds, 5):
        history.record(start_s + t, body_and_die(t))


def test_every_run_makes_the_next_prediction_better() -> None:
    history = CoolingHistory()
    truth = next(t for t in range(10_000) if body_and_die(t) <= 32.0) - 145
    errors = []
    for cooling in range(4):
        start = 5000.0 * cooling
        record_cooling(history, start, 150)
        fit = history.fit()
        assert fit is not None
        prediction = predict_time_to_cool(fit, 32.0)
        errors.append(math.inf if prediction is None else abs(prediction.likely_s - truth) / truth)
        history.finish_trace()
        record_cooling(history, start + 1000, 600)
        history.finish_trace()
    assert errors[3] < 0.1
    assert errors[3] <= errors[0]
    assert history.posterior.coolings == 8


def test_a_short_trace_gives_no_fit() -> None:
    history = CoolingHistory()
    record_cooling(history, 0, 15)
    assert history.fit() is None


def test_a_long_trace_stays_small() -> None:
    history = CoolingHistory()
    for t in range(5000):
        history.record(t, 30 + t % 3)
    assert len(history.trace) <= TRACE_MAX
    assert [reading.t_s for reading in history.trace[-5:]] == [4995, 4996, 4997, 4998, 4999]


def test_a_reboot_and_a_run_begin_a_new_trace() -> None:
    history = CoolingHistory()
    history.record(500, 40.0)
    history.record(3, 35.0)
    assert history.trace == [TempReading(3, 35.0)]
    history.finish_trace()
    assert history.trace == []
    assert history.posterior == PRIOR


def test_a_constant_temperature_is_the_resting_temperature() -> None:
    history = CoolingHistory()
    for t in range(0, 400, 20):
        history.record(t, 29.4)
    history.finish_trace()
    assert history.posterior.rest_c == pytest.approx(29.4)


def test_cooling_begins_at_the_peak() -> None:
    trace = [
        TempReading(0, 30.0),
        TempReading(10, 60.0),
        *(TempReading(t, 40.0) for t in range(20, 100, 10)),
    ]
    assert cooling_section(trace)[0].t_s == 10


def test_the_memory_survives_the_agent(tmp_path: Path) -> None:
    history = CoolingHistory()
    record_cooling(history, 0, 600)
    history.finish_trace()
    gauge = FuelGauge(discharge_sign=-1, unit_a=1e-6, period_s=0.5)
    reference = CanaryReference(ms=1.5, spread=0.004, count=6, slower=0.01)
    known = PhoneMemory(cooling=history.posterior, gauge=gauge, canaries={"f0": reference})
    save_phone_memory(tmp_path, "A:1", known)
    assert load_phone_memory(tmp_path, "A:1") == known
    assert load_phone_memory(tmp_path, "other") == PhoneMemory()
    (tmp_path / "memory" / "A_1.json").write_text("torn")
    assert load_phone_memory(tmp_path, "A:1") == PhoneMemory()
