"""What is remembered of a phone's heat."""

import math

import pytest

from agent.phone.memory import DIE_COOLS_S, TRACE_MAX, HeatMemory, cooling_part
from workloads.heat import Reading, predict_ready


def body_and_die(t_s: float) -> float:
    """A phone after hard work: the die falls in seconds, the body in minutes."""
    return 28 + 8 * math.exp(-t_s / 400) + 25 * math.exp(-t_s / 12)


def test_the_die_is_not_taken_for_the_body() -> None:
    """Fitted after the die's own fall, and with a known rest, the prediction holds."""
    memory = HeatMemory()
    memory.record(0, 28.0)
    for t in range(100, 220, 5):
        memory.record(t, body_and_die(t - 100))
    fit = memory.fit()
    assert fit is not None
    ready = predict_ready(fit, memory.trace[-1].temp_c, 32.0)
    assert ready is not None
    truth = next(t for t in range(10_000) if body_and_die(t) <= 32.0) - 115
    assert ready.earliest_s * 0.8 <= truth <= ready.latest_s * 1.2


def test_too_little_is_no_fit() -> None:
    """In the first moments nobody knows."""
    memory = HeatMemory()
    for t in range(0, 40, 5):
        memory.record(t, body_and_die(t))
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
    assert memory.rest_c == pytest.approx(35.0)


def test_cooling_begins_after_the_peak() -> None:
    """Readings from before the load do not bend the fit."""
    trace = [Reading(0, 30.0), Reading(10, 60.0), *(Reading(t, 40.0) for t in range(20, 100, 10))]
    assert cooling_part(trace)[0].t_s >= 10 + DIE_COOLS_S
