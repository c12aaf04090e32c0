"""Oort: what its training selector is told of each client, and what its 2021 client divides by.

The same name means the inverse of FedScale's unit there: compute_speed is samples a second.
"""

import json
from collections.abc import Mapping, Sequence

from orchestrator.export.federated.consumer import Consumer, Link, batch_ms
from orchestrator.selection.client import Census

CLIENTS = "oort_clients.json"


def render(census: Census, link: Link | None) -> Mapping[str, bytes]:
    """One record a client: for register_client, update_duration and the 2021 helper."""
    assert link is not None
    rows = {
        str(index): {
            "duration_s_per_sample": batch_ms(client, census.batch) / census.batch / 1000,
            "compute_speed": census.batch * 1000 / batch_ms(client, census.batch),
            "communication_kbps": min(link.down_kbps, link.up_kbps),
            "phone": client.phone,
        }
        for index, client in enumerate(census.clients)
    }
    return {CLIENTS: (json.dumps(rows, indent=1) + "\n").encode()}


def believed_ms(contents: Mapping[str, bytes], batch: int) -> Sequence[float]:
    """The 2021 client's formula: samples divided by compute_speed."""
    rows = json.loads(contents[CLIENTS])
    return [1000 * batch / rows[str(k)]["compute_speed"] for k in range(len(rows))]


OORT = Consumer(
    name="oort",
    title="Oort",
    conventions=(
        "duration_s_per_sample: multiply by a client's samples of a round for update_duration",
        "compute_speed: samples a second; Oort's client of 2021 divides by it",
        "communication_kbps: as said with --link-kbps, the slower direction",
    ),
    needs_link=True,
    render=render,
    batch_ms=believed_ms,
)
