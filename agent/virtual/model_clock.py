"""The phone's clock: a queue of scheduled actions in model time, `speed` times faster than the
host.

Every action runs at its exact model time, however late the host looks: catching up runs all due
actions in order, each with `now` set to its own time. An action that lets a process of the phone
continue stops the clock until all processes wait again. A busy host therefore never distorts a
measurement.
"""

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass

# At high speed, actions are closer together than a host should wake up for; they run in batches.
WAKE_EVERY_S = 0.1
# Two reads of the clock within this host time return the same model time.
SAME_MOMENT_S = 0.0002
# A clock that was paused catches up with the host, but only by this much host time: a computer
# that is too slow for the speed makes its phones slower.
CATCH_UP_MAX_S = 0.1


@dataclass(slots=True)
class ScheduledAction:
    """An action that runs at a model time unless it is cancelled first."""

    when: float
    action: Callable[[], None]
    wakes_host: bool
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


class ModelClock:
    """Model seconds since the phone was created; with speed 0 only `advance` moves it."""

    def __init__(self, speed: float = 1.0) -> None:
        self.speed = speed
        self.now = 0.0
        self._host_start = time.monotonic()
        self._queue: list[tuple[float, int, ScheduledAction]] = []
        self._sequence = itertools.count()
        self._is_firing = False
        self._fire_end = 0.0
        self._running = 0  # callbacks of the phone's processes that wait for the host or run
        self._paused_at = 0.0  # model time while there are such callbacks
        self._timer: asyncio.TimerHandle | None = None

    def current_time(self) -> float:
        """Return the model time without running any action."""
        if self._is_firing or self.speed <= 0:
            return self.now
        if self._running:
            return self._paused_at
        return (time.monotonic() - self._host_start) * self.speed

    def catch_up(self) -> float:
        """Run what is due by the host's clock; inside an action, do nothing."""
        if not self._is_firing:
            now = self.current_time()
            if now - self.now > SAME_MOMENT_S * self.speed:
                self._fire_until(now)
        return self.now

    def pause(self) -> None:
        """Pause for one callback of a process; inside an action, at the time of this action."""
        if not self._running or self._is_firing:
            self._paused_at = self.current_time()
        if self._is_firing:
            self._fire_end = self.now
        self._running += 1

    def resume(self) -> None:
        """End one pause; the last one lets the clock continue from where it was."""
        self._running -= 1
        if not self._running and self.speed > 0:
            latest = time.monotonic() - self._paused_at / self.speed
            self._host_start = max(self._host_start, latest - CATCH_UP_MAX_S)
            self._schedule_wakeup()

    def advance(self, seconds: float) -> None:
        """Move a clock of speed 0."""
        self._fire_until(self.now + seconds)

    def schedule(
        self, when: float, action: Callable[[], None], wakes_host: bool = False
    ) -> ScheduledAction:
        """Schedule an action; with `wakes_host` the host wakes up in time, otherwise in a batch."""
        event = ScheduledAction(max(when, self.now), action, wakes_host)
        heapq.heappush(self._queue, (event.when, next(self._sequence), event))
        if not self._is_firing:
            self._set_timer(event)
        return event

    def try_jump_to(self, when: float) -> bool:
        """Inside an action, move the time forward if nothing else is due until then."""
        if (
            self._is_firing
            and when <= self._fire_end
            and not (self._queue and self._queue[0][0] <= when)
        ):
            self.now = max(self.now, when)
            return True
        return False

    async def sleep(self, seconds: float) -> None:
        """Wait until model seconds have passed."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        start = self.catch_up()
        event = self.schedule(
            start + max(seconds, 0.0), lambda: resolve_future(woken), wakes_host=True
        )
        try:
            await woken
        finally:
            event.cancel()

    def stop(self) -> None:
        """Cancel everything that is scheduled."""
        self._queue.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire_until(self, end: float) -> None:
        self._is_firing = True
        self._fire_end = end
        queue = self._queue
        fired = False
        try:
            while queue and queue[0][0] <= self._fire_end:
                when, _, event = heapq.heappop(queue)
                if not event.is_cancelled:
                    self.now = max(self.now, when)
                    event.action()
                    fired = True
            self.now = max(self.now, self._fire_end)
        finally:
            self._is_firing = False
        if fired or self._timer is None:
            self._schedule_wakeup()

    def _schedule_wakeup(self) -> None:
        """Set the timer for the next action, and for every one that must wake the host in time."""
        while self._queue and self._queue[0][2].is_cancelled:
            heapq.heappop(self._queue)
        if self._queue:
            self._set_timer(self._queue[0][2])
            for _, _, event in self._queue:
                if event.wakes_host and not event.is_cancelled:
                    self._set_timer(event)

    def _set_timer(self, event: ScheduledAction) -> None:
        # Actions that are due run also while the clock is paused.
        if self.speed <= 0 or (self._running and event.when > self._paused_at):
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        delay = self._host_start + event.when / self.speed - time.monotonic()
        due = loop.time() + max(delay, 0.0 if event.wakes_host else WAKE_EVERY_S)
        if self._timer is None or due < self._timer.when():
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_at(due, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._fire_until(self.current_time())


def resolve_future(future: asyncio.Future[None]) -> None:
    """Resolve a future unless its waiter has given up."""
    if not future.done():
        future.set_result(None)
