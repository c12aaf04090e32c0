"""Which requests run: each person has some places, and further requests wait for one."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TypeVar

import anyio
from anyio.to_thread import run_sync

from orchestrator.app.app_errors import TooBusy

RUNNING_MAX, RUNNING_PER_PERSON_MAX = 40, 8
HEAVY_MAX, HEAVY_PER_PERSON_MAX = 2, 1  # reports, exports and the like, which use the processor
ASKED_PER_PERSON_MAX = 40  # running and waiting
WAIT_MAX_S = 30.0

Result = TypeVar("Result")


class _Person:
    """The places of a person, and how many requests have or want one."""

    def __init__(self) -> None:
        self.asked = 0
        self.running = anyio.Semaphore(RUNNING_PER_PERSON_MAX)
        self.heavy = anyio.Semaphore(HEAVY_PER_PERSON_MAX)


class RequestPlaces:
    """Runs the calls of requests in threads; one person cannot take the places of all others."""

    def __init__(self) -> None:
        self._persons: dict[str, _Person] = {}
        self._heavy = anyio.Semaphore(HEAVY_MAX)
        self._threads = anyio.CapacityLimiter(RUNNING_MAX)

    async def run(self, person: str, call: Callable[[], Result], heavy: bool = False) -> Result:
        """Wait for a place and call; TooBusy if none becomes free in time."""
        own = self._persons.setdefault(person, _Person())
        if own.asked >= ASKED_PER_PERSON_MAX:
            raise TooBusy(f"{person} has {own.asked} requests under way; send fewer at once")
        own.asked += 1
        wanted = (own.heavy, self._heavy, own.running) if heavy else (own.running,)
        try:
            async with AsyncExitStack() as places:
                with anyio.move_on_after(WAIT_MAX_S) as waiting:
                    for place in wanted:
                        await places.enter_async_context(place)
                if waiting.cancelled_caught:
                    raise TooBusy("the lab has no place for this request now; send it again")
                return await run_sync(call, limiter=self._threads)
        finally:
            own.asked -= 1
            if own.asked == 0:
                self._persons.pop(person, None)
