"""The ingest worker: deliveries from the results queue go into the store, then are confirmed."""

import logging
from collections.abc import Sequence

from pydantic import ValidationError

from orchestrator.dispatch.broker import Broker
from orchestrator.dispatch.queue import serve_deliveries
from orchestrator.store.database import Database
from orchestrator.store.ingest import store_parcels
from workloads.fault import BrokerDown
from workloads.messages import (
    CHUNK_BYTES_MAX,
    DELIVERY_PARCELS_MAX,
    PARCEL,
    REPORT_BYTES_MAX,
    AnyParcel,
    Chunk,
    Report,
)

log = logging.getLogger("farm.ingest")


def serve(db: Database, broker: Broker) -> None:
    """Store deliveries until told to stop."""

    def deliver(host: str, texts: Sequence[str]) -> None:
        stored = store_parcels(db, host, read_parcels(host, texts))
        try:
            broker.confirm(host, stored.confirmed, stored.events)
        except BrokerDown as error:  # stored is stored; the agent will send it again and hear then
            log.warning("%s", error)

    serve_deliveries(broker.url, deliver)


def read_parcels(host: str, texts: Sequence[str]) -> list[AnyParcel]:
    """Read what a host sent; what breaks the agreed form, or speaks for others, is dropped."""
    parcels: list[AnyParcel] = []
    for text in texts[:DELIVERY_PARCELS_MAX]:
        if len(text) > CHUNK_BYTES_MAX + 1024:
            log.warning("%s sent a parcel of %d bytes: dropped", host, len(text))
            continue
        try:
            parcel = PARCEL.validate_json(text)
        except ValidationError as error:
            log.warning("%s sent a bad parcel: %s", host, error.errors()[0]["msg"])
            continue
        too_long = isinstance(parcel, Report) and len(text) > REPORT_BYTES_MAX
        if too_long or (not isinstance(parcel, Chunk) and parcel.host != host):
            log.warning("%s sent a parcel that is too long or not its own: dropped", host)
            continue
        parcels.append(parcel)
    return parcels
