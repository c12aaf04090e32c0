"""The ingest service: stores the deliveries of the results queue, then confirms them."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from pydantic import ValidationError

from orchestrator.decisions.states import ReportStatus
from orchestrator.dispatch.central_broker import CentralBroker
from orchestrator.dispatch.job_queue import serve_deliveries
from orchestrator.store.database import Database
from orchestrator.store.ingest import IngestResult, store_parcels
from workloads.protocol.faults import BrokerDown, StoreDown
from workloads.protocol.limits import (
    CHUNK_BYTES_MAX,
    CHUNK_ENVELOPE_BYTES_MAX,
    DELIVERY_PARCELS_MAX,
    REPORT_BYTES_MAX,
)
from workloads.protocol.messages import PARCEL_ADAPTER, AnyParcel, Chunk, Report

log = logging.getLogger("farm.ingest")

RETRY_INTERVAL_S = 0.5


def serve(db: Database, broker: CentralBroker) -> None:
    """Store deliveries until stopped; while the store is down, they wait in the broker."""

    def deliver(host: str, texts: Sequence[str], stop: threading.Event) -> None:
        started = time.monotonic()
        parcels = read_parcels(host, texts)
        stored = _store_with_retry(lambda: store_parcels(db, host, parcels), stop)
        log.info(
            "delivery stored host=%s parcels=%d reports=%s seconds=%.3f",
            *(host, len(parcels), _counts(stored.reports), time.monotonic() - started),
        )
        try:
            broker.confirm(host, stored.confirmed, stored.events)
        except BrokerDown as error:  # the agent resends; the next confirmation reaches it
            log.warning("%s", error)

    serve_deliveries(broker.url, deliver)


def _counts(reports: Mapping[ReportStatus, int]) -> str:
    """Reports by status, e.g. accepted:3,void:1; 0 if the delivery had no report."""
    return ",".join(f"{status}:{count}" for status, count in sorted(reports.items())) or "0"


def _store_with_retry(store: Callable[[], IngestResult], stop: threading.Event) -> IngestResult:
    """Store, again and again until the store answers; the agent resends what a stop interrupts."""
    failing = False
    while True:
        try:
            return store()
        except StoreDown as error:
            if not failing:
                log.warning("%s", error)
            failing = True
            if stop.wait(RETRY_INTERVAL_S):
                raise


def read_parcels(host: str, texts: Sequence[str]) -> list[AnyParcel]:
    """Decode the parcels of a host; drop those that are invalid or belong to another host."""
    parcels: list[AnyParcel] = []
    for text in texts[:DELIVERY_PARCELS_MAX]:
        if len(text) > CHUNK_BYTES_MAX + CHUNK_ENVELOPE_BYTES_MAX:
            log.warning("%s sent a parcel of %d bytes: dropped", host, len(text))
            continue
        try:
            parcel = PARCEL_ADAPTER.validate_json(text)
        except ValidationError as error:
            log.warning("%s sent a bad parcel: %s", host, error.errors()[0]["msg"])
            continue
        too_long = isinstance(parcel, Report) and len(text) > REPORT_BYTES_MAX
        if too_long or (not isinstance(parcel, Chunk) and parcel.host != host):
            log.warning("%s sent a parcel that is too long or not its own: dropped", host)
            continue
        parcels.append(parcel)
    return parcels
