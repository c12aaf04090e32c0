"""FedScale and FederatedScope: device capacity, the same pickle for both, and availability.

Both compute the time of a round as 3 · samples · computation / 1000 + 2 · model / communication.
The factor 3 turns inference into training and cannot be set, so a third of the measured time is
written. Both measure a model in units of 1024 bits, so kbit/s are converted. FedScale's k-th client
looks up id (k + 1) modulo the number of ids, in both files; so the ids are 0, 1, 2, ... without a
gap. FederatedScope draws ids at random.
"""

from collections.abc import Mapping

import numpy as np

from orchestrator.export.federated import plain_pickle
from orchestrator.export.federated.consumer_files import (
    MODEL_KBIT,
    Consumer,
    ConsumerRounds,
    FleetExport,
)
from orchestrator.selection.round_clock import Array

FACTOR, KIBIT = 3.0, 1.024
CAPACITY, AVAILABILITY = "device_capacity.pickle", "device_availability.pickle"


def render_capacity(export: FleetExport) -> Mapping[str, bytes]:
    """Return the file for --device_conf_file, or federate.resource_info_file."""
    computation = np.roll(export.sample_ms / FACTOR, 1).tolist()
    communication = np.roll(export.harmonic_kbps / KIBIT, 1).tolist()
    capacity = {
        index: {"computation": ms, "communication": kbps}
        for index, (ms, kbps) in enumerate(zip(computation, communication, strict=True))
    }
    return {CAPACITY: plain_pickle.dump(capacity)}


def render_files(export: FleetExport) -> Mapping[str, bytes]:
    """Return the files for --device_conf_file and --device_avail_file."""
    population = export.population
    period_s = population.availability.period_s
    models = [client.model for client in population.phones]
    rows = [
        {
            "active": [start for start, _ in windows],
            "inactive": [end for _, end in windows],
            "finish_time": period_s,
            "duration": sum(end - start for start, end in windows),
            "model": models[phone],
        }
        for windows, phone in zip(export.windows, population.phone_of.tolist(), strict=True)
    ]
    available = dict(enumerate([rows[-1], *rows[:-1]]))
    return {**render_capacity(export), AVAILABILITY: plain_pickle.dump(available)}


def read_capacity(contents: Mapping[str, bytes], samples: float, _: int) -> ConsumerRounds:
    """Apply FedScale's formula to every client."""
    capacity = plain_pickle.load(contents[CAPACITY])
    n = len(capacity)
    order = [capacity[(k + 1) % n] for k in range(n)]
    computation: Array = np.array([row["computation"] for row in order])
    communication: Array = np.array([row["communication"] for row in order])
    link_s = 2 * MODEL_KBIT / KIBIT / communication
    return ConsumerRounds(FACTOR * samples * computation / 1000, link_s)


_CONVENTIONS = (
    "computation: milliseconds per training sample / 3, because the time is multiplied by 3",
    "communication: the harmonic mean of both directions, in units of 1024 bits per second",
)
FEDSCALE = Consumer(
    name="fedscale",
    title="FedScale",
    conventions=(
        *_CONVENTIONS,
        "the k-th client reads id (k + 1) modulo the number of ids, in both files",
        "use --batch_size and --local_steps of the duty cycle; FedScale cannot check them",
    ),
    needs_link=True,
    render_files=render_files,
    read_rounds=read_capacity,
)
FEDERATEDSCOPE = Consumer(
    name="federatedscope",
    title="FederatedScope",
    conventions=(
        *_CONVENTIONS,
        "FederatedScope draws the entry of the server and of every client at random, with "
        "replacement if federate.client_num exceeds the number of entries - 1",
        "use the batch size and steps of the duty cycle; FederatedScope cannot check them",
    ),
    needs_link=True,
    render_files=render_capacity,
    read_rounds=read_capacity,
)
