"""The ingest service: stores the deliveries of every host's results queue, then confirms them.

Deliveries that arrive while one is being stored go into the next transaction together, and results
come before announcements of phones. Whatever is wrong is dropped, counted, and named by the host
whose queue it came out of.
"""

import logging
import queue
import re
import threading
import time
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from orchestrator.dispatch.announcements import WaitingAnnouncements
from orchestrator.dispatch.broker_memory import limit_queues
from orchestrator.dispatch.central_broker import CentralBroker
from orchestrator.dispatch.garbage_collection import freeze_gc
from orchestrator.dispatch.job_queue import call_on_shutdown, serve_deliveries
from orchestrator.dispatch.lab_hosts import LabHosts
from orchestrator.dispatch.ownership import PhoneSightings
from orchestrator.store.chunk_quota import ChunkQuota
from orchestrator.store.database import Database
from orchestrator.store.ingest import Delivery, IngestResult, store_deliveries
from workloads.lab.process_identity import new_instance, software_version
from workloads.lab.service_health import ServiceHealth
from workloads.lab.service_metrics import Service
from workloads.protocol.envelope import MessageFilter
from workloads.protocol.faults import BrokerDown, StoreDown
from workloads.protocol.limits import DELIVERY_PARCELS_MAX
from workloads.protocol.messages import (
    DELIVER,
    HOST_PATTERN,
    RESULTS_QUEUES,
    AnyParcel,
    BadMessage,
    Chunk,
    IngestHeartbeat,
    PhoneAnnouncement,
    decode_parcel,
)
from workloads.text import safe_text

log = logging.getLogger("farm.ingest")

RETRY_INTERVAL_S = 0.5
HEARTBEAT_INTERVAL_S = 1.0
WAITING_MAX = 32  # deliveries; further ones stay in the broker
PARCELS_MAX = 2 * DELIVERY_PARCELS_MAX  # in one transaction
ANNOUNCEMENTS_MAX = 25  # in one transaction: the results behind it wait for a tenth of a second
SIGHTINGS_INTERVAL_S = 0.2
LOG_INTERVAL_S = 10.0  # between lines about dropped messages of a host


def serve(
    db: Database, broker: CentralBroker, health: ServiceHealth, hosts: Collection[str] = ()
) -> None:
    """Store deliveries until stopped; while the store is down, they wait in the broker.

    `hosts` names the hosts of the lab; without names every host belongs to it.
    """
    freeze_gc()
    service = IngestService(db, broker, hosts, health)
    call_on_shutdown(service.stop)
    service.start()
    serve_deliveries(broker.url, service.take, service.message_filter, service.find_hosts)
    service.stop()


class IngestService:
    """Two threads beside Celery's own: one stores deliveries, one sends heartbeats."""

    def __init__(
        self,
        db: Database,
        broker: CentralBroker,
        hosts: Collection[str] = (),
        health: ServiceHealth | None = None,
    ) -> None:
        self._db = db
        self._health = health or ServiceHealth(Service.INGEST)
        self._metrics = self._health.metrics
        self._broker = broker
        self._lab_hosts = LabHosts(db, hosts)
        self._quota = ChunkQuota()
        self._sightings = PhoneSightings(time.monotonic())
        self._instance = new_instance()
        self._finder = CentralBroker(broker.url)  # one connection per thread
        self._waiting: queue.Queue[Delivery] = queue.Queue(WAITING_MAX)
        self._announced = WaitingAnnouncements()
        self._looked_at = 0.0
        self._stop = threading.Event()
        self._dropped: Counter[str] = Counter()
        self._reasons: dict[str, str] = {}
        self._logged_at: dict[str, float] = {}
        self.message_filter = MessageFilter(
            (DELIVER,), lambda name, reason: self.drop(_host_of(name), reason)
        )
        self._threads = [
            threading.Thread(target=target, name=name, daemon=True)
            for name, target in (("store", self._store), ("heartbeat", self._send_heartbeats))
        ]

    def start(self) -> None:
        """Begin to store."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop; agents resend what is not confirmed."""
        self._stop.set()

    def find_hosts(self) -> list[str]:
        """Return the hosts of the lab, alive or not: what they sent must not stay in the broker."""
        hosts = self._lab_hosts.read()
        return list(self._finder.found_hosts()) if hosts is None else sorted(hosts)

    def take(self, queue_name: str, texts: list[str]) -> None:
        """Take a delivery from Celery; wait while too many are waiting."""
        host = _host_of(queue_name)
        hosts = self._lab_hosts.read()
        if not re.fullmatch(HOST_PATTERN, host):
            self.drop(host, "its queue names no host")
            return
        if hosts is not None and host not in hosts:  # guard: revoked-host
            self.drop(host, "it does not belong to the lab")
            return
        parcels = self._read(host, texts)
        announced = [item for item in parcels if isinstance(item, PhoneAnnouncement)]
        if announced:
            if self._announced.add(host, announced):
                self.drop(host, "too many of its announcements wait; it sends them again")
            if self._waiting.empty():
                self._waiting.put(Delivery(host, ()))  # it wakes the other thread
        results = [item for item in parcels if not isinstance(item, PhoneAnnouncement)]
        while results and not self._stop.is_set():
            try:
                self._waiting.put(Delivery(host, results), timeout=RETRY_INTERVAL_S)
                return
            except queue.Full:
                continue

    def drop(self, host: str, reason: str) -> None:
        """Count a message that is not stored, and log it now and then."""
        name = host if re.fullmatch(HOST_PATTERN, host) else "unknown"
        self._dropped[name] += 1
        self._metrics.add("farm_messages_dropped_total", label=name)
        self._reasons[name] = safe_text(reason, 300)
        now = time.monotonic()
        if now - self._logged_at.get(name, -LOG_INTERVAL_S) >= LOG_INTERVAL_S:
            self._logged_at[name] = now
            text = "dropped a message of %s: %s dropped=%d"
            log.warning(text, name, self._reasons[name], self._dropped[name])

    def _store(self) -> None:
        while not self._stop.is_set():
            self._health.beat()
            found = self._announced.take(ANNOUNCEMENTS_MAX)
            announced = [Delivery(host, [item]) for host, item in found]
            waiting: list[Delivery] = []
            with suppress(queue.Empty):
                waiting.append(self._waiting.get(not announced, RETRY_INTERVAL_S))
            while not self._waiting.empty() and sum(len(d.parcels) for d in waiting) < PARCELS_MAX:
                waiting.append(self._waiting.get())
            deliveries = [item for item in (*waiting, *announced) if item.parcels]
            if deliveries:
                self.store(deliveries, time.monotonic())

    def _read(self, host: str, texts: Sequence[str]) -> list[AnyParcel]:
        parcels, bad = read_parcels(host, texts)
        for reason in bad:
            self.drop(host, reason)
        return parcels

    def store(self, deliveries: Sequence[Delivery], started: float) -> None:
        """Store deliveries together; if that fails, each one alone."""
        try:
            result = self._store_with_retry(deliveries)
        except StoreDown:  # stopped while the store was down: the agents resend
            return
        except Exception as error:
            if len(deliveries) > 1:
                for delivery in deliveries:
                    self.store([delivery], started)
                return
            log.exception("a delivery was not stored host=%s", deliveries[0].host)
            self.drop(deliveries[0].host, f"it cannot be stored: {type(error).__name__}")
            return
        for host, reason in result.refused:
            self.drop(host, reason)
        text = "delivery stored host=%s parcels=%d reports=%s seconds=%.3f"
        hosts = ",".join(sorted({delivery.host for delivery in deliveries}))
        count = sum(len(delivery.parcels) for delivery in deliveries)
        seconds = time.monotonic() - started
        reports = ",".join(f"{status}:{n}" for status, n in sorted(result.reports.items())) or "0"
        log.info(text, hosts, count, reports, seconds)
        self._metrics.observe("farm_store_seconds", seconds)
        self._metrics.add("farm_parcels_total", count)
        for status, number in result.reports.items():
            self._metrics.add("farm_reports_total", number, status)
        try:
            events = result.events
            for delivery in deliveries:
                sent = (item.parcel_id for item in delivery.parcels)
                ids = [parcel for parcel in sent if parcel not in result.deferred]
                self._broker.confirm(delivery.host, ids, events)
                events = []
        except BrokerDown as error:  # the agents resend; the next confirmation reaches them
            log.warning("%s", error)

    def _move_objection(self, serial: str, owner: str) -> str:
        """Return why a phone has not left its host, by the heartbeats up to this moment."""
        hosts, now = self._lab_hosts.read(), time.monotonic()
        try:
            if now - self._looked_at > SIGHTINGS_INTERVAL_S:
                self._sightings.update(self._broker.heartbeats(hosts), now)
                self._looked_at = now
        except BrokerDown as error:  # what was last seen counts
            log.info("%s", error)
        return self._sightings.objection(serial, owner, hosts, time.monotonic())

    def _store_with_retry(self, deliveries: Sequence[Delivery]) -> IngestResult:
        """Store, again and again until the store answers."""
        failing = False
        while True:
            try:
                result = store_deliveries(self._db, deliveries, self._move_objection, self._quota)
                self._health.set_trouble("store")
                return result
            except StoreDown as error:
                if not failing:
                    log.warning("%s", error)
                failing = True
                self._health.beat()
                self._health.set_trouble("store", str(error))
                if self._stop.wait(RETRY_INTERVAL_S):
                    raise

    def _send_heartbeats(self) -> None:
        broker = CentralBroker(self._broker.url)
        while not self._stop.is_set():
            heartbeat = IngestHeartbeat(
                sent_at=datetime.now(UTC),
                software=software_version(),
                dropped=dict(self._dropped),
                reasons=dict(self._reasons),
            )
            try:
                for host, reason in limit_queues(broker, self._lab_hosts.read()):
                    self.drop(host, reason)
                beats = broker.heartbeats(self._lab_hosts.read())
                self._sightings.update(beats, time.monotonic())
                broker.publish_ingest(self._instance, heartbeat)
                self._health.set_trouble("broker")
            except (BrokerDown, StoreDown) as error:
                log.info("%s", error)
                self._health.set_trouble("broker", str(error))
            self._stop.wait(HEARTBEAT_INTERVAL_S)


def _host_of(queue_name: str) -> str:
    return queue_name.removeprefix(RESULTS_QUEUES)


def read_parcels(host: str, texts: Sequence[str]) -> tuple[list[AnyParcel], list[str]]:
    """Decode the parcels of a host; return them, and why others are invalid or not its own."""
    parcels: list[AnyParcel] = []
    bad: list[str] = []
    for text in texts:
        try:
            parcel = decode_parcel(text)
        except BadMessage as error:
            bad.append(str(error))
            continue
        if isinstance(parcel, Chunk) or parcel.host == host:
            parcels.append(parcel)
        else:
            bad.append(f"it names another host, {parcel.host}")
    return parcels, bad
