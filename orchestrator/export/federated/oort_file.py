"""Oort: the profile of each client for its training, and durations for its selector.

Oort computes the time of a round as 3 · batch · steps / compute_speed + model_size / bandwidth: the
inverse of FedScale's unit under the same name. The factor 3 turns inference into training and
cannot be set, so three times the measured speed is written. Clients are numbered from 1 and look up
their number modulo the length of the file, but never 0; so the file has one entry more than phones.
"""

import json
from collections.abc import Mapping, Sequence

from orchestrator.export.federated import plain_pickle
from orchestrator.export.federated.consumer_files import Consumer, NetworkLink, batch_ms
from orchestrator.selection.client_types import ClientTable

FACTOR = 3.0
PROFILES, DURATIONS = "client_profiles.pickle", "client_durations.json"


def render_files(table: ClientTable, link: NetworkLink | None) -> Mapping[str, bytes]:
    """Return the file for --client_path, and one for register_client and update_duration."""
    assert link is not None
    speeds = [
        [FACTOR * 1000 * table.batch / batch_ms(client, table.batch), link.harmonic_mean_kbps / 2]
        for client in table.clients
    ]
    durations = {
        str(index + 1): {
            "phone": client.phone,
            "duration_s_per_sample": batch_ms(client, table.batch) / table.batch / 1000,
        }
        for index, client in enumerate(table.clients)
    }
    return {
        PROFILES: plain_pickle.dump(dict(enumerate([speeds[0], *speeds]))),
        DURATIONS: (json.dumps(durations, indent=1) + "\n").encode(),
    }


def read_batch_ms(contents: Mapping[str, bytes], batch: int) -> Sequence[float]:
    """Apply Oort's formula for one training step, and its lookup of a client."""
    profiles = plain_pickle.load(contents[PROFILES])
    clients = range(1, len(profiles))
    return [1000 * FACTOR * batch / profiles[max(1, k % len(profiles))][0] for k in clients]


OORT = Consumer(
    name="oort",
    title="Oort",
    conventions=(
        "client_profiles, for --client_path: compute_speed and bandwidth, by client, from 1",
        "compute_speed: training samples per second x 3, because Oort multiplies the work by 3",
        "bandwidth: kbit/s of download and upload together, because Oort counts model_size once",
        "entry 0 is never looked up; without it the last client would get the first entry",
        "client_durations: multiply by a client's samples per round for update_duration",
    ),
    needs_link=True,
    render_files=render_files,
    read_batch_ms=read_batch_ms,
)
