"""FedScale: device capacity and availability, two pickles.

Its time of a round is 3 · batch · steps · computation / 1000 + bits / communication: the 3 stands
for training against inference and cannot be set, so a third of the measured time is written. The
k-th client looks up id (k + 1) modulo the number of ids, so ids run from 0 without a gap.
"""

from collections.abc import Mapping, Sequence

from orchestrator.export.federated import plain_pickle
from orchestrator.export.federated.consumer_files import Consumer, NetworkLink, batch_ms
from orchestrator.selection.client_types import ClientTable

FACTOR = 3.0
DAY_S = 86_400
CAPACITY, AVAILABILITY = "device_capacity.pickle", "device_availability.pickle"


def render(census: ClientTable, link: NetworkLink | None) -> Mapping[str, bytes]:
    """Two files for --device_conf_file and --device_avail_file."""
    assert link is not None
    n = len(census.clients)
    capacity = {
        (index + 1) % n: {
            "computation": batch_ms(client, census.batch) / census.batch / FACTOR,
            "communication": link.both_ways_kbps,
        }
        for index, client in enumerate(census.clients)
    }
    always = {"active": [0], "inactive": [DAY_S], "finish_time": DAY_S, "duration": DAY_S}
    available = {index: {**always, "model": c.model} for index, c in enumerate(census.clients)}
    return {
        CAPACITY: plain_pickle.dump(dict(sorted(capacity.items()))),
        AVAILABILITY: plain_pickle.dump(available),
    }


def believed_ms(contents: Mapping[str, bytes], batch: int) -> Sequence[float]:
    """FedScale's own formula for one step of training."""
    capacity = plain_pickle.load(contents[CAPACITY])
    n = len(capacity)
    return [FACTOR * batch * capacity[(k + 1) % n]["computation"] for k in range(n)]


FEDSCALE = Consumer(
    name="fedscale",
    title="FedScale",
    conventions=(
        "computation: milliseconds a sample of training / 3, because FedScale multiplies by 3",
        "communication: kbit/s as said with --link-kbps, the harmonic mean of both directions, "
        "because FedScale divides what goes up and down together by it",
        "the k-th client reads id (k + 1) modulo the number of ids",
        "availability: always, because a lab does not see how people use their phones",
    ),
    needs_link=True,
    render_files=render,
    read_batch_ms=believed_ms,
)
