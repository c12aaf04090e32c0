"""What is remembered of a phone."""

import math
from pathlib import Path

import pytest

from agent.phone.memory import (
    TRACE_MAX,
    HeatMemory,
    Remembered,
    cooling_part,
    recall,
    remember,
)
from workloads.heat import NEVER_SEEN, Reading, predict_ready
from workloads.phone import Gauge


def body_and_die(t_s: float) -> float:
    """A phone after hard work: the die falls in seconds, the body in minutes."""
    return 28 + 8 * math.exp(-t_s / 400) + 25 * math.exp(-t_s / 12)


def cooled(memory: HeatMemory, start_s: float, seconds: int) -> None:
    for t in range(0, seconds, 5):
        memory.record(start_s + t, body_and_die(t))


def test_every_run_makes_the_next_prediction_better() -> None:
    memory = HeatMemory()
    truth = next(t for t in range(10_000) if body_and_die(t) <= 32.0) - 145
    errors = []
    for cooling in range(4):
        start = 5000.0 * cooling
        cooled(memory, start, 150)
        fit = memory.fit()
        assert fit is not None
        ready = predict_ready(fit, 32.0)
        errors.append(math.inf if ready is None else abs(ready.likely_s - truth) / truth)
        memory.disturbed()
        cooled(memory, start + 1000, 600)
        memory.disturbed()
    assert errors[3] < 0.1
    assert errors[3] <= errors[0]
    assert memory.known.coolings == 8


def test_too_little_is_no_fit() -> None:
    """In the first moments nobody knows."""
    memory = HeatMemory()
    cooled(memory, 0, 15)
    assert memory.fit() is None


def test_a_long_trace_stays_small() -> None:
    """The past is thinned out, the present is not."""
    memory = HeatMemory()
    for t in range(5000):
        memory.record(t, 30 + t % 3)
    assert len(memory.trace) <= TRACE_MAX
    assert [reading.t_s for reading in memory.trace[-5:]] == [4995, 4996, 4997, 4998, 4999]


def test_a_reboot_and_a_run_begin_a_new_trace() -> None:
    """What came before says nothing about the cooling that follows."""
    memory = HeatMemory()
    memory.record(500, 40.0)
    memory.record(3, 35.0)
    assert memory.trace == [Reading(3, 35.0)]
    memory.disturbed()
    assert memory.trace == []
    assert memory.known == NEVER_SEEN


def test_a_phone_that_stood_still_shows_where_it_comes_to_rest() -> None:
    memory = HeatMemory()
    for t in range(0, 400, 20):
        memory.record(t, 29.4)
    memory.disturbed()
    assert memory.known.rest_c == pytest.approx(29.4)


def test_cooling_begins_at_the_peak() -> None:
    """Readings from before the load do not bend the fit."""
    trace = [Reading(0, 30.0), Reading(10, 60.0), *(Reading(t, 40.0) for t in range(20, 100, 10))]
    assert cooling_part(trace)[0].t_s == 10


def test_what_was_learned_outlives_the_agent(tmp_path: Path) -> None:
    memory = HeatMemory()
    cooled(memory, 0, 600)
    memory.disturbed()
    gauge = Gauge(discharge_sign=-1, unit_a=1e-6, period_s=0.5)
    known = Remembered(cooled=memory.known, gauge=gauge, canary_ms={"f0": 1.5})
    remember(tmp_path, "A:1", known)
    assert recall(tmp_path, "A:1") == known
    assert recall(tmp_path, "other") == Remembered()
    (tmp_path / "memory" / "A_1.json").write_text("torn")
    assert recall(tmp_path, "A:1") == Remembered()
