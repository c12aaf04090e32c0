"""FLASH: the time of a batch as mean and deviation by device, and its network file in kB/s.

FLASH has three devices written into its program, so a small one of ours goes with the table and
answers in their place.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator.export.federated.consumer_files import Consumer, NetworkLink, batch_ms
from orchestrator.selection.client_types import Client, ClientTable

TIMES, SPEEDS, PHONES = "train_time.json", "speed_distri.json", "measured_phones.py"
P90_OF_A_NORMAL = 1.2816  # standard deviations above the mean


def render(census: ClientTable, link: NetworkLink | None) -> Mapping[str, bytes]:
    """The table of training times, what reads it, and the network of every client."""
    assert link is not None
    devices = {
        client.phone: {
            "model": client.model,
            "mean_ms": batch_ms(client, census.batch),
            "sd_ms": _deviation_ms(client, census.batch),
        }
        for client in census.clients
    }
    network = {
        "down_u": link.down_kbps / 8,
        "down_sigma": 0.0,
        "up_u": link.up_kbps / 8,
        "up_sigma": 0.0,
    }
    speeds = {client.phone: network for client in census.clients}
    return {
        TIMES: (json.dumps({"batch": census.batch, "devices": devices}, indent=1) + "\n").encode(),
        SPEEDS: (json.dumps(speeds, indent=1) + "\n").encode(),
        PHONES: Path(__file__).with_name(PHONES).read_bytes(),
    }


def _deviation_ms(client: Client, batch: int) -> float:
    """From where nine of ten cold batches stay under, if times are about normal."""
    if client.batch_p90_ms is None:
        return 0.0
    cold_ms = client.cold_ms.value * batch
    share = max(0.0, client.batch_p90_ms / cold_ms - 1) / P90_OF_A_NORMAL
    return share * batch_ms(client, batch)


def believed_ms(contents: Mapping[str, bytes], _: int) -> Sequence[float]:
    """FLASH draws a batch's time around its mean."""
    return [row["mean_ms"] for row in json.loads(contents[TIMES])["devices"].values()]


FLASH = Consumer(
    name="flash",
    title="FLASH",
    conventions=(
        "measured_phones.py stands in for FLASH's Device_Util; its first lines say how",
        "mean_ms, sd_ms: of one batch; the deviation from the 90 % quantile of cold batches",
        "down_u, up_u: kB/s (kbit/s / 8), as said with --link-kbps; nothing known of its spread",
    ),
    needs_link=True,
    render_files=render,
    read_batch_ms=believed_ms,
)
