"""FedScale: a pickle with the capacity of every device, and one with its availability.

FedScale computes the time of a round as 3 · samples · computation / 1000 + 2 · model /
communication. The factor 3 turns inference into training and cannot be set, so a third of the
measured time is written. It measures a model in units of 1024 bits, so kbit/s are converted. The
k-th client looks up id (k + 1) modulo the number of ids, in both files; so the ids are 0, 1, 2, ...
without a gap.
"""

import io
import pickle
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from orchestrator.export.federated.consumer_files import (
    MODEL_KBIT,
    Consumer,
    ConsumerRounds,
    FleetExport,
)
from orchestrator.selection.round_clock import Array
from workloads.protocol.faults import InvalidRequest

FACTOR, KIBIT = 3.0, 1.024
CAPACITY, AVAILABILITY = "device_capacity.pickle", "device_availability.pickle"


def render_files(export: FleetExport) -> Mapping[str, bytes]:
    """Return the files for --device_conf_file and --device_avail_file."""
    computation = np.roll(export.sample_ms / FACTOR, 1).tolist()
    down, up = export.links
    communication = np.roll(2 / (1 / down + 1 / up) / KIBIT, 1).tolist()
    capacity = {
        index: {"computation": ms, "communication": kbps}
        for index, (ms, kbps) in enumerate(zip(computation, communication, strict=True))
    }
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
    # Every version of Python 3 reads protocol 2.
    return {
        CAPACITY: pickle.dumps(capacity, protocol=2),
        AVAILABILITY: pickle.dumps(available, protocol=2),
    }


def read_rounds(contents: Mapping[str, bytes], samples: float, _: int) -> ConsumerRounds:
    """Apply FedScale's formula to every client."""
    capacity = load_plain(contents[CAPACITY])
    n = len(capacity)
    order = [capacity[(k + 1) % n] for k in range(n)]
    computation: Array = np.array([row["computation"] for row in order])
    communication: Array = np.array([row["communication"] for row in order])
    link_s = 2 * MODEL_KBIT / KIBIT / communication
    return ConsumerRounds(FACTOR * samples * computation / 1000, link_s)


class _PlainUnpickler(pickle.Unpickler):
    """Reads numbers, texts, lists and dicts; refuses anything that names a class."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise InvalidRequest(
            f"the pickle would run {module}.{name}; it is not a file of 'farm select export'"
        )


def load_plain(data: bytes) -> Any:
    """Unpickle plain values only: reading a file of someone else never executes code."""
    try:
        return _PlainUnpickler(io.BytesIO(data)).load()
    except (pickle.UnpicklingError, EOFError, ValueError) as error:
        raise InvalidRequest(f"not a pickle: {error}") from error


FEDSCALE = Consumer(
    name="fedscale",
    title="FedScale",
    conventions=(
        "computation: milliseconds per training sample / 3, because the time is multiplied by 3",
        "communication: the harmonic mean of both directions, in units of 1024 bits per second",
        "the k-th client reads id (k + 1) modulo the number of ids, in both files",
        "use --batch_size and --local_steps of the duty cycle; FedScale cannot check them",
    ),
    needs_link=True,
    render_files=render_files,
    read_rounds=read_rounds,
)
