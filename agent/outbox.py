"""The post: sends what the spool holds, and again until the centre confirms it.

The first parcel goes at once. While a delivery is on its way, further ones gather and go together
when it is confirmed, or shortly after: a busy host sends few large deliveries, an idle one waits
for nothing.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence

from agent.broker import Broker
from agent.spool import Spool
from workloads.fault import FarmTrouble
from workloads.messages import DELIVERY_BYTES_MAX, DELIVERY_PARCELS_MAX, AnyParcel

log = logging.getLogger("farm.post")

RESEND_S = 5.0
RESEND_MAX_S = 60.0
GATHER_S = 0.05
TROUBLE_PAUSE_S = 0.5


class Post:
    """Two threads: one sends, one listens for confirmations."""

    def __init__(
        self,
        spool: Spool,
        broker: Broker,
        send: Callable[[Sequence[str]], None],
        resend_s: float = RESEND_S,
    ) -> None:
        self._spool = spool
        self._broker = broker
        self._send = send
        self._resend_s = resend_s
        self._stop = threading.Event()
        self._changed = threading.Condition()
        # id -> (when to send it, how often it was sent); bodies stay on disk
        self._due: dict[str, tuple[float, int]] = dict.fromkeys(spool.waiting(), (0.0, 0))
        self._under_way: set[str] = set()
        self._sent_at = 0.0
        self._threads = [
            threading.Thread(target=target, name=name, daemon=True)
            for name, target in (("post-send", self._sender), ("post-listen", self._listener))
        ]

    def start(self) -> None:
        """Begin sending."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop sending; what is not confirmed waits in the spool for the next start."""
        self._stop.set()
        self._wake()

    def post(self, parcels: Sequence[AnyParcel]) -> None:
        """Send parcels that the spool already has."""
        with self._changed:
            self._due.update(dict.fromkeys([parcel.parcel for parcel in parcels], (0.0, 0)))
            self._changed.notify_all()

    def drained(self, timeout_s: float) -> bool:
        """Wait until everything is confirmed, or the time is up."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._due, timeout_s)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _sender(self) -> None:
        trouble = False
        while not self._stop.is_set():
            ids = self._next_batch()
            if not ids:
                continue
            try:
                if bodies := self._fitting(ids):
                    self._send(bodies)
                trouble = False
            except FarmTrouble as error:
                if not trouble:
                    log.warning("%s", error)
                trouble = True
                self._not_sent(ids)
                self._stop.wait(TROUBLE_PAUSE_S)

    def _not_sent(self, ids: Sequence[str]) -> None:
        """They never left: as soon as the broker is back they go, without the wait of a resend."""
        with self._changed:
            for name in ids:
                if name in self._due:
                    self._due[name] = (0.0, max(0, self._due[name][1] - 1))

    def _next_batch(self) -> list[str]:
        """Wait for parcels that are due; each next try of a parcel waits longer."""
        with self._changed:
            now = time.monotonic()
            due = [name for name, (at, _) in self._due.items() if at <= now]
            if not due:
                later = min((at for at, _ in self._due.values()), default=now + RESEND_MAX_S)
                self._changed.wait(max(0.01, later - now))
                return []
            gathering = self._sent_at + GATHER_S - now
            if self._under_way and gathering > 0 and len(due) < DELIVERY_PARCELS_MAX:
                self._changed.wait(gathering)
                return []
            chosen = due[:DELIVERY_PARCELS_MAX]
            self._under_way, self._sent_at = set(chosen), now
            for name in chosen:
                count = self._due[name][1]
                self._due[name] = (now + min(self._resend_s * 2**count, RESEND_MAX_S), count + 1)
            return chosen

    def _fitting(self, ids: Sequence[str]) -> list[str]:
        """Bodies that fit one delivery; the rest is due again at once."""
        bodies = self._spool.bodies(ids)
        with self._changed:
            for name in set(ids) - bodies.keys():
                self._due.pop(name, None)  # confirmed meanwhile
        fitting: list[str] = []
        size = 0
        for name, body in bodies.items():
            size += len(body)
            if fitting and size > DELIVERY_BYTES_MAX:
                with self._changed:
                    if name in self._due:
                        self._due[name] = (0.0, 0)
            else:
                fitting.append(body)
        return fitting

    def _listener(self) -> None:
        while not self._stop.is_set():
            try:
                ids = self._broker.confirmed(wait_s=1)
                if ids:
                    self._arrived(ids)
                    self._spool.confirm(ids)
            except FarmTrouble:  # no broker, or no room on the disk: it will be confirmed again
                self._stop.wait(TROUBLE_PAUSE_S)
                continue
            if ids:
                with self._changed:
                    for name in ids:
                        self._due.pop(name, None)
                    self._changed.notify_all()

    def _arrived(self, ids: Sequence[str]) -> None:
        """The next delivery may go, while the disk still forgets this one."""
        with self._changed:
            self._under_way.difference_update(ids)
            self._changed.notify_all()
