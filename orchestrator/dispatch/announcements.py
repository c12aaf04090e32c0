"""Announcements of phones that wait to be stored, while results are stored before them.

A lab of thousands of phones announces them all when it starts, and hosts repeat what is not
confirmed. Each announcement waits here once; hosts take turns.
"""

import threading
from collections.abc import Sequence

from workloads.protocol.limits import HOST_PHONES_MAX
from workloads.protocol.messages import PhoneAnnouncement


class WaitingAnnouncements:
    """Announcements by host and id; for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, dict[str, PhoneAnnouncement]] = {}

    def add(self, host: str, announcements: Sequence[PhoneAnnouncement]) -> int:
        """Add what a host announces; return how many it has to send again because it has most."""
        with self._lock:
            waiting = self._waiting.setdefault(host, {})
            for item in announcements:
                if item.parcel_id in waiting or len(waiting) < HOST_PHONES_MAX:
                    waiting[item.parcel_id] = item
            return sum(item.parcel_id not in waiting for item in announcements)

    def take(self, count: int) -> list[tuple[str, PhoneAnnouncement]]:
        """Return the oldest ones of hosts in turn, so that one host does not delay the others."""
        taken: list[tuple[str, PhoneAnnouncement]] = []
        with self._lock:
            while self._waiting and len(taken) < count:
                host, waiting = next(iter(self._waiting.items()))
                del self._waiting[host]
                if waiting:
                    taken.append((host, waiting.pop(next(iter(waiting)))))
                    self._waiting[host] = waiting  # at the end
            return taken
