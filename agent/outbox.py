"""Outbox: sends the parcels of the spool, and sends them again until the centre confirms them.

The first parcel goes at once. While a delivery is under way, further parcels gather and go together
when it is confirmed, or shortly after: a busy host sends few large deliveries, an idle one does not
wait.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence

from agent.host_broker import HostBroker
from agent.spool import Spool
from agent.timeouts import DEFAULT_TIMEOUTS, Timeouts
from workloads.protocol.faults import FarmTrouble
from workloads.protocol.limits import DELIVERY_BYTES_MAX, DELIVERY_PARCELS_MAX
from workloads.protocol.messages import REPORT_PREFIX, AnyParcel, RunId

log = logging.getLogger("farm.outbox")


class Outbox:
    """Two threads: one sends, one receives confirmations."""

    def __init__(
        self,
        spool: Spool,
        broker: HostBroker,
        send: Callable[[Sequence[str]], None],
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
    ) -> None:
        self._spool = spool
        self._broker = broker
        self._send = send
        self._timeouts = timeouts
        self._stop = threading.Event()
        self._changed = threading.Condition()
        spool.delete_unreadable()
        # id -> (when to send it, how often it was sent); the bodies stay on disk
        self._due: dict[str, tuple[float, int]] = dict.fromkeys(spool.unconfirmed_ids(), (0.0, 0))
        self._under_way: set[str] = set()
        self._sent_at = 0.0
        self._threads = [
            threading.Thread(target=target, name=name, daemon=True)
            for name, target in (
                ("outbox-send", self._send_parcels),
                ("outbox-confirm", self._receive_confirmations),
            )
        ]

    def start(self) -> None:
        """Begin to send."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop sending; unconfirmed parcels stay in the spool for the next start."""
        self._stop.set()
        with self._changed:
            self._changed.notify_all()

    def post(self, parcels: Sequence[AnyParcel]) -> None:
        """Send parcels that the spool already has."""
        with self._changed:
            self._due.update(dict.fromkeys([parcel.parcel_id for parcel in parcels], (0.0, 0)))
            self._changed.notify_all()

    def unconfirmed_runs(self) -> list[RunId]:
        """Return the runs whose report waits here, oldest first."""
        with self._changed:
            ids = [parcel_id for parcel_id in self._due if parcel_id.startswith(REPORT_PREFIX)]
        return [RunId.parse(parcel_id.removeprefix(REPORT_PREFIX)) for parcel_id in ids]

    def wait_until_empty(self, timeout_s: float) -> bool:
        """Wait until everything is confirmed, or the time is up."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._due, timeout_s)

    def _send_parcels(self) -> None:
        failing = False
        while not self._stop.is_set():
            ids = self._next_batch()
            if not ids:
                continue
            try:
                if bodies := self._bodies_for_delivery(ids):
                    self._send(bodies)
                failing = False
            except FarmTrouble as error:
                if not failing:
                    log.warning("%s", error)
                failing = True
                self._mark_unsent(ids)
                self._stop.wait(self._timeouts.outbox_retry_interval_s)

    def _mark_unsent(self, ids: Sequence[str]) -> None:
        """Make parcels due at once that never left: they need not wait like a resend."""
        with self._changed:
            for parcel_id in ids:
                if parcel_id in self._due:
                    self._due[parcel_id] = (0.0, max(0, self._due[parcel_id][1] - 1))

    def _next_batch(self) -> list[str]:
        """Wait for parcels that are due; each further attempt at a parcel waits longer."""
        timeouts = self._timeouts
        with self._changed:
            now = time.monotonic()
            due = [parcel_id for parcel_id, (due_at, _) in self._due.items() if due_at <= now]
            if not due:
                latest = now + timeouts.outbox_resend_interval_max_s
                next_at = min((due_at for due_at, _ in self._due.values()), default=latest)
                self._changed.wait(max(0.01, next_at - now))
                return []
            gather_s = self._sent_at + timeouts.outbox_batch_interval_s - now
            if self._under_way and gather_s > 0 and len(due) < DELIVERY_PARCELS_MAX:
                self._changed.wait(gather_s)
                return []
            batch = due[:DELIVERY_PARCELS_MAX]
            self._under_way, self._sent_at = set(batch), now
            for parcel_id in batch:
                count = self._due[parcel_id][1]
                resend_s = timeouts.outbox_resend_interval_s * 2**count
                pause_s = min(resend_s, timeouts.outbox_resend_interval_max_s)
                due_at = now + pause_s  # guard: resend-report
                self._due[parcel_id] = (due_at, count + 1)
            return batch

    def _bodies_for_delivery(self, ids: Sequence[str]) -> list[str]:
        """The bodies that fit into one delivery; the rest is due again at once."""
        bodies = self._spool.parcel_bodies(ids)
        with self._changed:
            for parcel_id in set(ids) - bodies.keys():
                self._due.pop(parcel_id, None)  # confirmed in between
        fitting: list[str] = []
        size = 0
        for parcel_id, body in bodies.items():
            size += len(body)
            if fitting and size > DELIVERY_BYTES_MAX:
                with self._changed:
                    if parcel_id in self._due:
                        self._due[parcel_id] = (0.0, 0)
            else:
                fitting.append(body)
        return fitting

    def _receive_confirmations(self) -> None:
        while not self._stop.is_set():
            try:
                ids = self._broker.take_confirmations(wait_s=1)
                if ids:
                    self._allow_next_delivery(ids)
                    self._spool.delete_confirmed(ids)
            except FarmTrouble:  # no broker, or a full disk: the centre confirms again
                self._stop.wait(self._timeouts.outbox_retry_interval_s)
                continue
            if ids:
                with self._changed:
                    for parcel_id in ids:
                        self._due.pop(parcel_id, None)
                    self._changed.notify_all()

    def _allow_next_delivery(self, ids: Sequence[str]) -> None:
        """Let the next delivery go while the disk still deletes this one."""
        with self._changed:
            self._under_way.difference_update(ids)
            self._changed.notify_all()
