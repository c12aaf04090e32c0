"""FLASH: the batch time of every client, a behaviour trace, and a network file in kB/s.

FLASH has the times of three devices in its source code, so the export includes a small program that
replaces that part and reads the table. The trace names the clients of the table as its device
models, so that every user of the trace gets the times of its client.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from orchestrator.export.federated.consumer_files import (
    MODEL_KBIT,
    Consumer,
    ConsumerRounds,
    FleetExport,
)
from orchestrator.selection.client_types import Client

TIMES, SPEEDS, TRACES = "train_time.json", "speed_distri.json", "state_traces.json"
PHONES = "measured_phones.py"
P90_DEVIATIONS = 1.2816  # of a normal distribution: standard deviations above the mean
TRACE_START = datetime(2020, 1, 2, tzinfo=UTC)  # the reference time of FLASH
KB_PER_KBIT, KIB = 1 / 8, 1.024


def render_files(export: FleetExport) -> Mapping[str, bytes]:
    """Return the training times, the program that reads them, the trace and the speeds."""
    population, names = export.population, export.names
    batch_ms = export.sample_ms * export.batch
    spread = np.array([_relative_deviation(client, export.batch) for client in population.phones])
    sd_ms = batch_ms * spread[population.phone_of]
    models = [client.model for client in population.phones]
    rows = zip(names, population.phone_of.tolist(), batch_ms.tolist(), sd_ms.tolist(), strict=True)
    times = {
        "batch": export.batch,
        "samples": export.samples,
        "clients": {name: [models[phone], mean, sd] for name, phone, mean, sd in rows},
    }
    down, up = export.links
    speeds = {
        name: {"down_u": d, "down_sigma": 0.0, "up_u": u, "up_sigma": 0.0}
        for name, d, u in zip(
            names, (down * KB_PER_KBIT / KIB).tolist(), (up * KB_PER_KBIT).tolist(), strict=True
        )
    }
    return {
        TIMES: (json.dumps(times) + "\n").encode(),
        SPEEDS: (json.dumps(speeds) + "\n").encode(),
        TRACES: (json.dumps(_traces(export, names)) + "\n").encode(),
        PHONES: Path(__file__).with_name(PHONES).read_bytes(),
    }


def _traces(export: FleetExport, names: list[str]) -> dict[str, dict[str, str]]:
    """Return the events of every client: FLASH's users are ready while charging and locked."""
    end = _stamp(export.population.availability.period_s)
    begin = f"{_stamp(0.0)}\twifi\n{_stamp(0.0)}\tscreen_lock\n"
    return {
        str(number): {
            "guid": name,
            "model": name,
            "messages": begin
            + "".join(
                f"{_stamp(start)}\tbattery_charged_on\n{_stamp(stop)}\tbattery_charged_off\n"
                for start, stop in windows
            )
            + f"{end}\tscreen_off\n",
        }
        for number, (name, windows) in enumerate(zip(names, export.windows, strict=True))
    }


def _stamp(seconds: float) -> str:
    moment = TRACE_START + timedelta(seconds=round(seconds))
    return moment.replace(tzinfo=None).isoformat(" ")


def _relative_deviation(client: Client, batch: int) -> float:
    """Derive the deviation from the 90th percentile of cold batches, assumed to be normal."""
    if client.batch_p90_ms is None:
        return 0.0
    return max(0.0, client.batch_p90_ms / (client.cold_ms.value * batch) - 1) / P90_DEVIATIONS


def read_rounds(contents: Mapping[str, bytes], samples: float, batch: int) -> ConsumerRounds:
    """Use the means, around which FLASH draws the time of a batch, and its formula for links."""
    rows = json.loads(contents[TIMES])["clients"].values()
    speeds = json.loads(contents[SPEEDS]).values()
    down, up = (np.array([row[side] for row in speeds]) for side in ("down_u", "up_u"))
    model_bytes = MODEL_KBIT * 1000 / 8
    return ConsumerRounds(
        np.array([mean for _, mean, _ in rows]) * samples / batch / 1000,
        model_bytes / 1024 / down + model_bytes / up / 1000,
    )


FLASH = Consumer(
    name="flash",
    title="FLASH",
    conventions=(
        "measured_phones.py replaces FLASH's Device_Util; its first lines say where files belong",
        "mean, deviation: ms of one batch; the deviation is that of the 90 % quantile of cold "
        "batches",
        "state_traces: every window of availability is written as a time on the charger, on "
        "Wi-Fi and locked, which is when FLASH lets a user take part",
        "down_u, up_u: kB/s; FLASH draws the link of a user at random from this file, so links "
        "do not stay with their clients",
    ),
    needs_link=True,
    render_files=render_files,
    read_rounds=read_rounds,
)
