"""The model clock: exact, in order, and at the given speed."""

import asyncio
import time

import pytest

from agent.virtual.model_clock import CATCH_UP_MAX_S, ModelClock
from tests.virtual.conftest import StartPhone


def test_events_fire_in_order_at_their_times() -> None:
    model_clock = ModelClock(speed=0.0)
    fired: list[tuple[str, float]] = []

    def record(name: str) -> None:
        fired.append((name, model_clock.now))
        if name == "first":
            model_clock.schedule(model_clock.now + 0.5, lambda: record("from within"))

    model_clock.schedule(2.0, lambda: record("second"))
    model_clock.schedule(1.0, lambda: record("first"))
    model_clock.schedule(1.2, lambda: record("dropped")).cancel()
    model_clock.advance(10.0)
    assert fired == [("first", 1.0), ("from within", 1.5), ("second", 2.0)]
    assert model_clock.now == 10.0


def test_late_polling_does_not_delay_events() -> None:
    """A busy host must not distort the phone's time."""
    model_clock = ModelClock(speed=1000.0)
    moments: list[float] = []

    def tick() -> None:
        moments.append(model_clock.now)
        if len(moments) < 50:
            model_clock.schedule(model_clock.now + 0.2, tick)

    model_clock.schedule(0.2, tick)
    time.sleep(0.03)
    model_clock.catch_up()
    assert moments == pytest.approx([0.2 * (n + 1) for n in range(50)])


def test_sleeping_takes_model_seconds() -> None:
    async def slept() -> float:
        model_clock = ModelClock(speed=200.0)
        start = time.monotonic()
        await model_clock.sleep(20.0)
        assert model_clock.now >= 20.0
        return time.monotonic() - start

    assert asyncio.run(slept()) >= 0.1


@pytest.mark.parametrize("speed", [1.0, 40.0])
def test_uptime_runs_at_most_at_the_speed_of_the_phone(
    start_phone: StartPhone, speed: float
) -> None:
    phone = start_phone(speed=speed)
    host_start, phone_start = time.monotonic(), phone.uptime()
    phone.out(f"sleep {0.3 * speed}")
    elapsed_s = phone.uptime() - phone_start
    host_s = time.monotonic() - host_start
    assert 0.3 * speed <= elapsed_s + 0.01 <= (host_s + CATCH_UP_MAX_S) * speed + 0.02
