"""The phone's clock: a queue of scheduled actions, each at an exact phone time.

A clock with a speed is paced by the host's clock. Every action still runs at its exact time,
however late the host looks: catching up runs all due actions in order, each with `now` set to its
own time.

In event time the clock does not know the host's. It moves only while an attached service is blocked
on the phone's time and no process of the phone can run; then it goes to the next action. A shell
that waits for input and a process that runs alone move nothing. What happens on the phone therefore
depends on the commands that it gets, and not on the computer.
"""

import asyncio
import heapq
import itertools
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from dataclasses import dataclass

from workloads.cli_options import EVENT_TIME

# At high speed, actions are closer together than a host should wake up for; they run in batches.
WAKE_EVERY_S = 0.1
# Two reads of the clock within this host time return the same phone time.
SAME_MOMENT_S = 0.0002
# A clock that was paused catches up with the host, but only by this much host time: a computer
# that is too slow for the speed makes its phones slower.
CATCH_UP_MAX_S = 0.1
# In event time, host seconds after which the other phones of this process get their turn.
TURN_S = 0.005

# Whether a task belongs to a service that a host has opened and waits for.
IS_ATTACHED: ContextVar[bool] = ContextVar("is_attached", default=False)


@dataclass(slots=True)
class ScheduledAction:
    """An action that runs at a phone time unless it is cancelled first."""

    when: float
    action: Callable[[], None]
    wakes_host: bool
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


class PhoneClock:
    """Phone seconds since the phone was created; with speed 0 only `advance` moves it."""

    def __init__(self, speed: float = 1.0) -> None:
        self.speed = speed
        self.is_event_time = speed == EVENT_TIME
        self.now = 0.0
        self._host_start = time.monotonic()
        self._queue: list[tuple[float, int, ScheduledAction]] = []
        self._sequence = itertools.count()
        self._is_firing = False
        self._fire_end = 0.0
        self._running = 0  # callbacks of the phone's processes that wait for the host or run
        self._blocked = 0  # attached services that are blocked on the phone's time
        self._paused_at = 0.0  # phone time while there are such callbacks
        self._timer: asyncio.TimerHandle | None = None
        self._move: asyncio.Handle | None = None  # in event time: the next one

    def current_time(self) -> float:
        """Return the phone time without running any action."""
        if self._is_firing or self.speed <= 0 or self.is_event_time:
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
        if self._running:
            return
        if self.is_event_time:
            self._plan_move()
        elif self.speed > 0:
            latest = time.monotonic() - self._paused_at / self.speed
            self._host_start = max(self._host_start, latest - CATCH_UP_MAX_S)
            self._schedule_wakeup()

    @contextmanager
    def blocked(self) -> Iterator[None]:
        """Mark that a process waits for the phone's time; it counts in an attached service."""
        if not IS_ATTACHED.get():
            yield
            return
        self.let_pass()
        try:
            yield
        finally:
            self.stop_passing()

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
        """Wait until phone seconds have passed."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        start = self.catch_up()
        event = self.schedule(
            start + max(seconds, 0.0), lambda: resolve_future(woken), wakes_host=True
        )
        try:
            with self.blocked():
                await woken
        finally:
            event.cancel()

    async def pass_time(self, seconds: float) -> None:
        """Sleep while the phone is off, and no host can wait on it."""
        self.let_pass()
        try:
            await self.sleep(seconds)
        finally:
            self.stop_passing()

    def let_pass(self) -> None:
        """Let the time pass: a service waits for it, the phone is off, or its link is down."""
        self._blocked += 1
        if self.is_event_time:
            self._plan_move()

    def stop_passing(self) -> None:
        """End one reason for which the time passes."""
        self._blocked -= 1
        if self.is_event_time and self._is_firing and not self._blocked:
            self._fire_end = self.now

    def stop(self) -> None:
        """Cancel everything that is scheduled."""
        self._queue.clear()
        for handle in (self._timer, self._move):
            if handle is not None:
                handle.cancel()
        self._timer = self._move = None

    def _fire_until(self, end: float, until: float = math.inf) -> None:
        """Run what is due, in order, to an end of phone time or for so long by the host's clock."""
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
                    if until < time.monotonic():
                        return
            if self._fire_end < EVENT_TIME:
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
        if self.is_event_time:
            self._plan_move()
            return
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

    # -- event time

    def _plan_move(self) -> None:
        """Go on with the next turn of the loop; the callback belongs to no process."""
        if self._move is None and self._end_of_move() >= self.now:
            loop = asyncio.get_running_loop()
            self._move = loop.call_soon(self._move_on, context=Context())

    def _move_on(self) -> None:
        self._move = None
        end = self._end_of_move()
        if end >= self.now:
            self._fire_until(end, until=time.monotonic() + TURN_S)
            self._plan_move()

    def _end_of_move(self) -> float:
        """Return how far the clock may go now; what is due runs also while no service waits."""
        if self._running or not self._queue:
            return -EVENT_TIME
        if self._blocked:
            return EVENT_TIME
        return self.now if self._queue[0][0] <= self.now else -EVENT_TIME


def resolve_future(future: asyncio.Future[None]) -> None:
    """Resolve a future unless its waiter has given up."""
    if not future.done():
        future.set_result(None)
