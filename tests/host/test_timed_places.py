"""Phones that do not answer: they delay the others by a few places, not by their timeouts."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from agent.timed_places import TimedPlaces


def test_slow_actions_give_up_their_places() -> None:
    places, end = TimedPlaces(4, 0.2), threading.Event()

    def hang() -> None:
        with places.place():
            end.wait()

    with ThreadPoolExecutor(40) as pool:
        for _ in range(12):
            pool.submit(hang)
        started = time.monotonic()
        with places.place():
            waited_s = time.monotonic() - started
        end.set()
    assert waited_s < 2.0  # twelve actions at four places for 0.2 s each


def test_no_more_actions_start_at_once_than_there_are_places() -> None:
    places, end = TimedPlaces(4, 60.0), threading.Event()
    started: list[int] = []

    def work(number: int) -> None:
        with places.place():
            started.append(number)
            end.wait()

    with ThreadPoolExecutor(10) as pool:
        for number in range(10):
            pool.submit(work, number)
        time.sleep(0.3)
        assert len(started) == 4
        end.set()
    assert len(started) == 10
