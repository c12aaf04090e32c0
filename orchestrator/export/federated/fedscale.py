"""FedScale: device capacity and availability, two pickles.

FedScale computes the time of a round as 3 · batch · steps · computation / 1000 + bits /
communication. The factor 3 turns inference into training and cannot be set, so a third of the
measured time is written. The k-th client looks up id (k + 1) modulo the number of ids, so the ids
are 0, 1, 2, ... without a gap.
"""

from collections.abc import Mapping, Sequence

from orchestrator.export.federated import plain_pickle
from orchestrator.export.federated.consumer_files import Consumer, NetworkLink, batch_ms
from orchestrator.selection.client_types import ClientTable

FACTOR = 3.0
DAY_S = 86_400
CAPACITY, AVAILABILITY = "device_capacity.pickle", "device_availability.pickle"


def render_files(table: ClientTable, link: NetworkLink | None) -> Mapping[str, bytes]:
    """Return the files for --device_conf_file and --device_avail_file."""
    assert link is not None
    n = len(table.clients)
    capacity = {
        (index + 1) % n: {
            "computation": batch_ms(client, table.batch) / table.batch / FACTOR,
            "communication": link.harmonic_mean_kbps,
        }
        for index, client in enumerate(table.clients)
    }
    always = {"active": [0], "inactive": [DAY_S], "finish_time": DAY_S, "duration": DAY_S}
    available = {index: {**always, "model": c.model} for index, c in enumerate(table.clients)}
    return {
        CAPACITY: plain_pickle.dump(dict(sorted(capacity.items()))),
        AVAILABILITY: plain_pickle.dump(available),
    }


def read_batch_ms(contents: Mapping[str, bytes], batch: int) -> Sequence[float]:
    """Apply FedScale's formula for one training step."""
    capacity = plain_pickle.load(contents[CAPACITY])
    n = len(capacity)
    return [FACTOR * batch * capacity[(k + 1) % n]["computation"] for k in range(n)]


FEDSCALE = Consumer(
    name="fedscale",
    title="FedScale",
    conventions=(
        "computation: milliseconds per training sample / 3, because FedScale multiplies by 3",
        "communication: kbit/s from --link-kbps, the harmonic mean of both directions, because "
        "FedScale divides the sum of upload and download by it",
        "the k-th client reads id (k + 1) modulo the number of ids",
        "availability: always, because a lab cannot observe how people use their phones",
    ),
    needs_link=True,
    render_files=render_files,
    read_batch_ms=read_batch_ms,
)
