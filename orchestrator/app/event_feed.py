"""The events of a lab, as a user follows them."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.operation import Role, operation
from workloads.protocol.faults import InvalidRequest
from workloads.protocol.messages import Event

EVENT_BATCHES_MAX = 4  # a reader that falls behind further than this skips events
EVENT_BATCH = 500
WAIT_MAX_S = 10.0


class EventPage(NamedTuple):
    """Events in their order, and where to continue reading."""

    cursor: str
    events: tuple[Event, ...]


@operation(Role.VIEWER)
def read_events(
    lab: LabConnection, cursor: str = "", wait_s: float = 0.0, latest: int = 0
) -> EventPage:
    """Read the events after a cursor, and wait for one; without a cursor, the latest ones."""
    if cursor and re.fullmatch(r"[0-9]{1,19}-[0-9]{1,19}", cursor) is None:
        raise InvalidRequest("the cursor is not one of this lab; leave it out to begin now")
    broker = lab.broker
    if cursor:
        after, events = broker.events(cursor, min(max(wait_s, 0.001), WAIT_MAX_S))
    elif latest > 0:
        after, events = broker.latest_events(min(latest, EVENT_BATCH))
    else:
        after, events = broker.newest_cursor(), []
    return EventPage(after, tuple(events))


class EventFeed:
    """The events of a lab, or of one sweep, from now on."""

    def __init__(self, lab: LabConnection, sweep: str | None, latest: int = 0) -> None:
        self._lab = lab
        self._sweep = sweep
        self.skipped = 0  # how often events came too fast and were skipped
        self._cursor, events = read_events(lab, latest=latest)
        self.latest = self._relevant(events)

    def read(self, wait_s: float) -> list[Event] | None:
        """Return new events, or None if there was none at all within the time."""
        events: list[Event] = []
        received = 0
        for _ in range(EVENT_BATCHES_MAX):
            self._cursor, batch = read_events(self._lab, self._cursor, wait_s)
            wait_s = 0.001
            received += len(batch)
            events += self._relevant(batch)
            if len(batch) < EVENT_BATCH:
                return events if received else None
        self._cursor = read_events(self._lab).cursor
        self.skipped += 1
        return events

    def _relevant(self, events: Sequence[Event]) -> list[Event]:
        return [
            event for event in events if self._sweep is None or event.sweep in ("", self._sweep)
        ]
