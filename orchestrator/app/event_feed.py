"""The events of a lab, as a user follows them."""

from collections.abc import Sequence

from orchestrator.app.lab_connection import LabConnection
from workloads.protocol.messages import Event

EVENT_BATCHES_MAX = 4  # a reader that falls behind further than this skips events
EVENT_BATCH = 500


class EventFeed:
    """The events of a lab, or of one sweep, from now on."""

    def __init__(self, lab: LabConnection, sweep: str | None, latest: int = 0) -> None:
        self._broker = lab.broker
        self._sweep = sweep
        self.skipped = 0  # how often events came too fast and were skipped
        if latest:
            self._cursor, events = self._broker.latest_events(latest)
        else:
            self._cursor, events = self._broker.newest_cursor(), []
        self.latest = self._relevant(events)

    def read(self, wait_s: float) -> list[Event] | None:
        """Return new events, or None if there was none at all within the time."""
        events: list[Event] = []
        received = 0
        for _ in range(EVENT_BATCHES_MAX):
            self._cursor, batch = self._broker.events(self._cursor, wait_s)
            wait_s = 0.001
            received += len(batch)
            events += self._relevant(batch)
            if len(batch) < EVENT_BATCH:
                return events if received else None
        self._cursor = self._broker.newest_cursor()
        self.skipped += 1
        return events

    def _relevant(self, events: Sequence[Event]) -> list[Event]:
        return [
            event for event in events if self._sweep is None or event.sweep in ("", self._sweep)
        ]
