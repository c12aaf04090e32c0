"""Reads the events of the lab once for all streams."""

import time
from collections import deque

import anyio
from starlette.concurrency import run_in_threadpool

from orchestrator.app.event_feed import EventFeed
from orchestrator.app.lab_connection import LabConnection

READ_INTERVAL_S = 0.5
EVENTS_KEPT = 2000  # a stream that falls behind further than this skips events


class SharedFeed:
    """The latest events with their numbers, each written once."""

    def __init__(self, lab: LabConnection) -> None:
        self._lab = lab
        self._feed: EventFeed | None = None
        self._kept: deque[tuple[int, str, str]] = deque(maxlen=EVENTS_KEPT)
        self._number, self._read_at = 0, 0.0
        self._reading = anyio.Lock()

    async def after(self, number: int | None, sweep: str | None) -> tuple[int, list[str]]:
        """Return the number of the newest event, and the text of those of a sweep after another.

        Without a number, a stream begins now.
        """
        async with self._reading:
            if time.monotonic() - self._read_at >= READ_INTERVAL_S:
                self._read_at = time.monotonic()
                await run_in_threadpool(self._read)
        if number is None:
            return self._number, []
        mine = ("", sweep)
        texts = [
            text
            for found, of_sweep, text in self._kept
            if found > number and (sweep is None or of_sweep in mine)
        ]
        return self._number, texts

    def _read(self) -> None:
        if self._feed is None:
            self._feed = EventFeed(self._lab, None)
        for event in self._feed.read(0.0) or ():
            self._number += 1
            text = f"event: {event.kind}\ndata: {event.model_dump_json()}\n\n"
            self._kept.append((self._number, event.sweep, text))
