"""Oort: the profile of each client for its training, and durations for its selector.

Oort computes the time of a round as 3 · batch · steps / compute_speed + model_size / bandwidth: the
inverse of FedScale's unit under the same name. The factor 3 turns inference into training and
cannot be set, so three times the measured speed is written. Clients are numbered from 1 and look up
their number modulo the length of the file, but 1 instead of 0. So the file has twice as many
entries as clients, less one of the first client: however far the numbers go, all count equally.
"""

import json
from collections.abc import Mapping

import numpy as np

from orchestrator.export.federated import plain_pickle
from orchestrator.export.federated.consumer_files import (
    MODEL_KBIT,
    Consumer,
    ConsumerRounds,
    FleetExport,
)
from orchestrator.export.federated.fedscale import FACTOR, KIBIT

PROFILES, DURATIONS = "client_profiles.pickle", "client_durations.json"


def render_files(export: FleetExport) -> Mapping[str, bytes]:
    """Return the file for --client_path, and one for register_client and update_duration."""
    speed = (FACTOR * 1000 / export.sample_ms).tolist()
    bandwidth = (export.harmonic_kbps / KIBIT / 2).tolist()
    profiles = [list(pair) for pair in zip(speed, bandwidth, strict=True)]
    entries = [profiles[0], *profiles, *profiles[1:]]  # entry 0 is never looked up
    durations = {
        "samples": export.samples,
        "batch": export.batch,
        "clients": {
            str(number + 1): round_s for number, round_s in enumerate(export.round_s.tolist())
        },
    }
    return {
        PROFILES: plain_pickle.dump(dict(enumerate(entries))),
        DURATIONS: (json.dumps(durations) + "\n").encode(),
    }


def read_rounds(contents: Mapping[str, bytes], samples: float, _: int) -> ConsumerRounds:
    """Apply Oort's formula, and its lookup of a client."""
    profiles = plain_pickle.load(contents[PROFILES])
    n = len(json.loads(contents[DURATIONS])["clients"])
    rows = np.array([profiles[max(1, k % len(profiles))] for k in range(1, n + 1)])
    return ConsumerRounds(FACTOR * samples / rows[:, 0], MODEL_KBIT / KIBIT / rows[:, 1])


OORT = Consumer(
    name="oort",
    title="Oort",
    conventions=(
        "client_profiles, for --client_path: compute_speed and bandwidth, by client, from 1",
        "compute_speed: training samples per second x 3, because Oort multiplies the work by 3",
        "bandwidth: of download and upload together, in units of 1024 bits per second, because "
        "Oort counts model_size once",
        "every client has two entries, the first has one more that is never looked up: so "
        "numbers beyond the length of the file use all clients equally often",
        "client_durations: seconds of a round of the stated samples, for update_duration",
        "use the batch size and steps of the duty cycle; Oort cannot check them",
    ),
    needs_link=True,
    render_files=render_files,
    read_rounds=read_rounds,
)
