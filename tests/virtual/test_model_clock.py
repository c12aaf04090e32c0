"""The phone's time: exact, in order, and as fast as it was told."""

import asyncio
import time

import pytest

from agent.virtual.timeline import Timeline
from tests.virtual.conftest import StartPhone


def test_events_fire_in_order_each_at_its_own_moment() -> None:
    timeline = Timeline(speed=0.0)
    seen: list[tuple[str, float]] = []

    def note(name: str) -> None:
        seen.append((name, timeline.now))
        if name == "first":
            timeline.at(timeline.now + 0.5, lambda: note("from within"))

    timeline.at(2.0, lambda: note("second"))
    timeline.at(1.0, lambda: note("first"))
    timeline.at(1.2, lambda: note("dropped")).drop()
    timeline.advance(10.0)
    assert [("first", 1.0), ("from within", 1.5), ("second", 2.0)] == seen
    assert 10.0 == timeline.now


def test_a_late_look_still_sees_every_event_in_time() -> None:
    """A host that was busy must not bend the phone's time."""
    timeline = Timeline(speed=1000.0)
    moments: list[float] = []

    def tick() -> None:
        moments.append(timeline.now)
        if len(moments) < 50:
            timeline.at(timeline.now + 0.2, tick)

    timeline.at(0.2, tick)
    time.sleep(0.03)
    timeline.catch_up()
    assert [0.2 * (n + 1) for n in range(50)] == pytest.approx(moments)


def test_sleeping_takes_model_seconds() -> None:
    async def slept() -> float:
        timeline = Timeline(speed=200.0)
        start = time.monotonic()
        await timeline.sleep(20.0)
        assert timeline.now >= 20.0
        return time.monotonic() - start

    assert 0.1 <= asyncio.run(slept()) < 0.5


@pytest.mark.parametrize("speed", [1.0, 40.0])
def test_uptime_runs_at_the_speed_of_the_phone(start_phone: StartPhone, speed: float) -> None:
    phone = start_phone(speed=speed)
    host, there = time.monotonic(), phone.uptime()
    phone.out(f"sleep {0.3 * speed}")
    gained = phone.uptime() - there
    assert gained == pytest.approx((time.monotonic() - host) * speed, rel=0.1)
