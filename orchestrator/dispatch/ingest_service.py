"""The ingest worker: deliveries from the results queue go into the store, then are confirmed."""

import logging
import threading
from collections.abc import Callable, Sequence

from pydantic import ValidationError

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

TROUBLE_PAUSE_S = 0.5


def serve(db: Database, broker: CentralBroker) -> None:
    """Store deliveries until told to stop; while the store is away, they wait in the broker."""

    def deliver(host: str, texts: Sequence[str], stop: threading.Event) -> None:
        parcels = read_parcels(host, texts)
        stored = _patiently(lambda: store_parcels(db, host, parcels), stop)
        try:
            broker.confirm(host, stored.confirmed, stored.events)
        except BrokerDown as error:  # stored is stored; the agent will send it again and hear then
            log.warning("%s", error)

    serve_deliveries(broker.url, deliver)


def _patiently(store: Callable[[], IngestResult], stop: threading.Event) -> IngestResult:
    """Store, as soon as there is a store; what is in hand at the end will be sent again."""
    trouble = False
    while True:
        try:
            return store()
        except StoreDown as error:
            if not trouble:
                log.warning("%s", error)
            trouble = True
            if stop.wait(TROUBLE_PAUSE_S):
                raise


def read_parcels(host: str, texts: Sequence[str]) -> list[AnyParcel]:
    """Read what a host sent; what breaks the agreed form, or speaks for others, is dropped."""
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
