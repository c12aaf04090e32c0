"""Flower: a fleet file keyed by partition, and a strategy for its message API that reads it.

Flower has no model of devices: node ids are random, and a simulated node knows only its partition.
So the strategy queries the partition of every node once, and then trains on the nodes that the
fleet file prefers.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator.export.federated.consumer_files import Consumer, NetworkLink, batch_ms
from orchestrator.selection.client_types import ClientTable
from orchestrator.selection.round_fleet import HEATING_S

FLEET, STRATEGY, NODES = "fleet.json", "fleet_strategy.py", "nodes.sh"


def render_files(table: ClientTable, link: NetworkLink | None) -> Mapping[str, bytes]:
    """Return the fleet, the strategy, and the commands that start real nodes."""
    rows = {
        str(index): {
            "phone": client.phone,
            "train_ms_per_sample": batch_ms(client, table.batch) / table.batch,
            "cold_ms_per_sample": client.cold_ms.value,
            "uncertainty_rel": (client.sustained_ms or client.cold_ms).uncertainty,
            "slowdown": client.slowdown,
            "heating_s": client.heating_s or HEATING_S,
            "energy_mj_per_sample": client.energy_mj.value if client.energy_mj else None,
            "peak_rss_mb": client.peak_mb,
            "link_kbps": link.harmonic_mean_kbps if link else None,
            "provenance": str(client.cold_ms.provenance),
        }
        for index, client in enumerate(table.clients)
    }
    n = len(table.clients)
    nodes = [
        f"flower-supernode --node-config 'partition-id={index} num-partitions={n}'"
        for index in range(n)
    ]
    return {
        FLEET: (json.dumps(rows, indent=1) + "\n").encode(),
        STRATEGY: Path(__file__).with_name(STRATEGY).read_bytes(),
        NODES: ("\n".join(nodes) + "\n").encode(),
    }


def read_batch_ms(contents: Mapping[str, bytes], batch: int) -> Sequence[float]:
    """Apply the formula of the strategy."""
    rows = json.loads(contents[FLEET])
    return [batch * rows[str(k)]["train_ms_per_sample"] for k in range(len(rows))]


FLOWER = Consumer(
    name="flower",
    title="Flower",
    conventions=(
        "fleet.json is keyed by partition-id; train_ms_per_sample is sustained where measured",
        "uncertainty_rel: upper margin of a time; heating_s: time constant of the slowdown",
        "fleet_strategy.py: FleetStrategy(fleet=..., k=...) for flwr's message API",
        "nodes.sh: the commands that start real nodes, each with the partition of its phone",
        "Flower has no virtual clock: FleetStrategy.clock_s is the estimated time of all rounds",
    ),
    needs_link=False,
    render_files=render_files,
    read_batch_ms=read_batch_ms,
)
