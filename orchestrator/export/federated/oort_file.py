"""Oort: the profile of each client, as its training loads it, and durations for its selector.

Its time of a round is 3 · batch · steps / compute_speed + model_size / bandwidth: the inverse of
FedScale's unit under the same name. The 3 stands for training against inference and cannot be set,
so three times the measured speed is written. Clients count from 1 and look up their number modulo
the length of the file, but never 0; so the file holds one entry more than there are phones.
"""

import json
from collections.abc import Mapping, Sequence

from orchestrator.export.federated import plain_pickle
from orchestrator.export.federated.consumer_files import Consumer, NetworkLink, batch_ms
from orchestrator.selection.client_types import ClientTable

FACTOR = 3.0
PROFILES, DURATIONS = "client_profiles.pickle", "client_durations.json"


def render(census: ClientTable, link: NetworkLink | None) -> Mapping[str, bytes]:
    """One file for --client_path, one for register_client and update_duration."""
    assert link is not None
    speeds = [
        [FACTOR * 1000 * census.batch / batch_ms(client, census.batch), link.both_ways_kbps / 2]
        for client in census.clients
    ]
    durations = {
        str(index + 1): {
            "phone": client.phone,
            "duration_s_per_sample": batch_ms(client, census.batch) / census.batch / 1000,
        }
        for index, client in enumerate(census.clients)
    }
    return {
        PROFILES: plain_pickle.dump(dict(enumerate([speeds[0], *speeds]))),
        DURATIONS: (json.dumps(durations, indent=1) + "\n").encode(),
    }


def believed_ms(contents: Mapping[str, bytes], batch: int) -> Sequence[float]:
    """Oort's own formula for one step of training, and its own way to look a client up."""
    profiles = plain_pickle.load(contents[PROFILES])
    clients = range(1, len(profiles))
    return [1000 * FACTOR * batch / profiles[max(1, k % len(profiles))][0] for k in clients]


OORT = Consumer(
    name="oort",
    title="Oort",
    conventions=(
        "client_profiles, for --client_path: compute_speed and bandwidth, by client from 1 on",
        "compute_speed: samples a second of training x 3, because Oort multiplies the work by 3",
        "bandwidth: kbit/s for there and back together, because Oort counts model_size once",
        "0 is never looked up; it is there so that the last client is not taken for the first",
        "client_durations: multiply by a client's samples of a round for update_duration",
    ),
    needs_link=True,
    render_files=render,
    read_batch_ms=believed_ms,
)
