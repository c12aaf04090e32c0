"""The model clock: exact, in order, and at the given speed."""

import asyncio
import time

import pytest

from agent.virtual.phone_clock import CATCH_UP_MAX_S, PhoneClock
from tests.virtual.conftest import StartPhone


def test_events_fire_in_order_at_their_times() -> None:
    clock = PhoneClock(speed=0.0)
    fired: list[tuple[str, float]] = []

    def record(name: str) -> None:
        fired.append((name, clock.now))
        if name == "first":
            clock.schedule(clock.now + 0.5, lambda: record("from within"))

    clock.schedule(2.0, lambda: record("second"))
    clock.schedule(1.0, lambda: record("first"))
    clock.schedule(1.2, lambda: record("dropped")).cancel()
    clock.advance(10.0)
    assert fired == [("first", 1.0), ("from within", 1.5), ("second", 2.0)]
    assert clock.now == 10.0


def test_late_polling_does_not_delay_events() -> None:
    """A busy host must not distort the phone's time."""
    clock = PhoneClock(speed=1000.0)
    moments: list[float] = []

    def tick() -> None:
        moments.append(clock.now)
        if len(moments) < 50:
            clock.schedule(clock.now + 0.2, tick)

    clock.schedule(0.2, tick)
    time.sleep(0.03)
    clock.catch_up()
    assert moments == pytest.approx([0.2 * (n + 1) for n in range(50)])


def test_sleeping_takes_model_seconds() -> None:
    async def slept() -> float:
        clock = PhoneClock(speed=200.0)
        start = time.monotonic()
        await clock.sleep(20.0)
        assert clock.now >= 20.0
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
