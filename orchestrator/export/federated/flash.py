"""FLASH: mean and deviation of the batch time per device, and a network file in kB/s.

FLASH has the times of three devices in its source code, so the export includes a small program that
replaces that part and reads the table.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator.export.federated.consumer_files import Consumer, NetworkLink, batch_ms
from orchestrator.selection.client_types import Client, ClientTable

TIMES, SPEEDS, PHONES = "train_time.json", "speed_distri.json", "measured_phones.py"
P90_DEVIATIONS = 1.2816  # of a normal distribution: standard deviations above the mean


def render_files(table: ClientTable, link: NetworkLink | None) -> Mapping[str, bytes]:
    """Return the table of training times, the program that reads it, and the network speeds."""
    assert link is not None
    devices = {
        client.phone: {
            "model": client.model,
            "mean_ms": batch_ms(client, table.batch),
            "sd_ms": _deviation_ms(client, table.batch),
        }
        for client in table.clients
    }
    network = {
        "down_u": link.down_kbps / 8,
        "down_sigma": 0.0,
        "up_u": link.up_kbps / 8,
        "up_sigma": 0.0,
    }
    speeds = {client.phone: network for client in table.clients}
    return {
        TIMES: (json.dumps({"batch": table.batch, "devices": devices}, indent=1) + "\n").encode(),
        SPEEDS: (json.dumps(speeds, indent=1) + "\n").encode(),
        PHONES: Path(__file__).with_name(PHONES).read_bytes(),
    }


def _deviation_ms(client: Client, batch: int) -> float:
    """Derive the deviation from the 90th percentile of cold batches, assumed to be normal."""
    if client.batch_p90_ms is None:
        return 0.0
    cold_ms = client.cold_ms.value * batch
    share = max(0.0, client.batch_p90_ms / cold_ms - 1) / P90_DEVIATIONS
    return share * batch_ms(client, batch)


def read_batch_ms(contents: Mapping[str, bytes], _: int) -> Sequence[float]:
    """Return the means, around which FLASH draws the time of a batch."""
    return [row["mean_ms"] for row in json.loads(contents[TIMES])["devices"].values()]


FLASH = Consumer(
    name="flash",
    title="FLASH",
    conventions=(
        "measured_phones.py replaces FLASH's Device_Util; its first lines explain how",
        "mean_ms, sd_ms: of one batch; the deviation is that of the 90 % quantile of cold batches",
        "down_u, up_u: kB/s (kbit/s / 8) from --link-kbps; their spread is unknown, so it is 0",
    ),
    needs_link=True,
    render_files=render_files,
    read_batch_ms=read_batch_ms,
)
