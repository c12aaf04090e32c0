"""The phone's time: a queue of events on a clock that runs `speed` times faster than ours.

Everything on a phone happens at an exact model time, however late the host looks: catching up
fires what is due in order, each at its own moment, so a busy host never bends a measurement.
"""

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass

# At high speed events are closer together than a host should wake up for; they fire in batches.
WAKE_EVERY_S = 0.1
# Looks closer together than this, in host time, see the same moment.
SAME_MOMENT_S = 0.0002


@dataclass(slots=True)
class Event:
    """Something that will happen at a model time, unless it is dropped first."""

    when: float
    action: Callable[[], None]
    prompt: bool
    dropped: bool = False

    def drop(self) -> None:
        self.dropped = True


class Timeline:
    """Model seconds since the phone came into being; a speed of 0 moves only by `advance`."""

    def __init__(self, speed: float = 1.0) -> None:
        self.speed = speed
        self.now = 0.0
        self._host_start = time.monotonic()
        self._queue: list[tuple[float, int, Event]] = []
        self._orders = itertools.count()
        self._firing = False
        self._end = 0.0
        self._alarm: asyncio.TimerHandle | None = None

    def peek(self) -> float:
        """The model time it is, without letting anything happen."""
        if self._firing or self.speed <= 0:
            return self.now
        return (time.monotonic() - self._host_start) * self.speed

    def catch_up(self) -> float:
        """Fire what is due by the host's clock; inside an event, time stands at the event."""
        if not self._firing:
            now = self.peek()
            if now - self.now > SAME_MOMENT_S * self.speed:
                self._fire_until(now)
        return self.now

    def advance(self, seconds: float) -> None:
        """Move a clock of speed 0 by hand."""
        self._fire_until(self.now + seconds)

    def at(self, when: float, action: Callable[[], None], prompt: bool = False) -> Event:
        """Plan an event; a prompt one wakes the host in time, others may wait for company."""
        event = Event(max(when, self.now), action, prompt)
        heapq.heappush(self._queue, (event.when, next(self._orders), event))
        if not self._firing:
            self._set_alarm(event)
        return event

    def reach(self, when: float) -> bool:
        """Inside an event: move straight on to a moment, if nothing else is due before it."""
        if self._firing and when <= self._end and not (self._queue and self._queue[0][0] <= when):
            self.now = max(self.now, when)
            return True
        return False

    async def sleep(self, seconds: float) -> None:
        """Wait for model seconds to pass."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        start = self.catch_up()
        event = self.at(start + max(seconds, 0.0), lambda: settle_future(woken), prompt=True)
        try:
            await woken
        finally:
            event.drop()

    def stop(self) -> None:
        """Forget everything planned."""
        self._queue.clear()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _fire_until(self, end: float) -> None:
        self._firing = True
        self._end = end
        queue = self._queue
        fired = False
        try:
            while queue and queue[0][0] <= end:
                when, _, event = heapq.heappop(queue)
                if not event.dropped:
                    self.now = max(self.now, when)
                    event.action()
                    fired = True
            self.now = max(self.now, end)
        finally:
            self._firing = False
        if fired or self._alarm is None:
            self._plan_alarm()

    def _plan_alarm(self) -> None:
        """Wake up for the next event; a prompt one behind others must not wait for company."""
        while self._queue and self._queue[0][2].dropped:
            heapq.heappop(self._queue)
        if self._queue:
            self._set_alarm(self._queue[0][2])
            for _, _, event in self._queue:
                if event.prompt and not event.dropped:
                    self._set_alarm(event)

    def _set_alarm(self, event: Event) -> None:
        if self.speed <= 0:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        delay = self._host_start + event.when / self.speed - time.monotonic()
        due = loop.time() + max(delay, 0.0 if event.prompt else WAKE_EVERY_S)
        if self._alarm is None or due < self._alarm.when():
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm = loop.call_at(due, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._fire_until(self.peek())


def settle_future(future: asyncio.Future[None]) -> None:
    """Resolve a future that its waiter may have abandoned."""
    if not future.done():
        future.set_result(None)
