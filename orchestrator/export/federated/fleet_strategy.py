"""Chooses Flower nodes by the measured speed and energy of their phones.

This file needs only flwr and fleet.json beside it. In the server app:

    strategy = FleetStrategy("fleet.json", k=3, samples=1000)
    strategy.start(grid=grid, initial_arrays=arrays, num_rounds=5)

and in the client app, so that the server knows the phone of every node:

    app.query()(report_partition)

Each round trains on the k nodes with the lowest cost: the time at the phone's estimated temperature
(upper end of the interval), weighted by energy and by how often the phone was chosen. Flower has no
clock for phones: `clock_s` is the estimated time of all rounds so far.
"""

import json
import math
import time
from collections.abc import Iterable
from pathlib import Path

from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

ENERGY, FAIRNESS = 0.25, 2.0


def report_partition(message: Message, context: Context) -> Message:
    """Reply to a query with the partition of this node."""
    partition = MetricRecord({"partition-id": int(context.node_config["partition-id"])})
    return Message(RecordDict({"node": partition}), reply_to=message)


class FleetStrategy(FedAvg):
    """Federated averaging over the nodes that a measured fleet recommends."""

    def __init__(self, fleet: str | Path, k: int, samples: float, **more: object) -> None:
        super().__init__(**more)
        self.fleet = json.loads(Path(fleet).read_text())
        self.k = k
        self.samples = samples
        self.clock_s = 0.0
        self.chosen_phones: list[list[str]] = []  # by round
        self._phone_of: dict[int, str] = {}
        self._times_chosen: dict[str, int] = dict.fromkeys(self.fleet, 0)
        self._heat: dict[str, float] = dict.fromkeys(self.fleet, 0.0)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Choose the phones of a round, and send them the model."""
        self._identify_nodes(grid)
        while len(self._phone_of) < max(self.k, self.min_available_nodes):
            time.sleep(1)  # as Flower's own strategies wait for nodes to connect
            self._identify_nodes(grid)
        present = [node for node in grid.get_node_ids() if node in self._phone_of]
        chosen = sorted(present, key=self._cost)[: self.k]
        partitions = [self._phone_of[node] for node in chosen]
        self.chosen_phones.append([self.fleet[partition]["phone"] for partition in partitions])
        self._advance_clock(partitions)
        config["server-round"] = server_round
        record = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: config})
        return self._construct_messages(record, chosen, MessageType.TRAIN)

    def _cost(self, node: int) -> float:
        partition = self._phone_of[node]
        row = self.fleet[partition]
        mean_times = max(1.0, sum(self._times_chosen.values()) / len(self._times_chosen))
        unfairness = 1 + self._times_chosen[partition] / mean_times
        upper_s = self._round_s(partition) * (1 + row["uncertainty_rel"])
        energy = (row["energy_mj_per_sample"] or 1.0) ** ENERGY
        return float(upper_s * energy * unfairness**FAIRNESS)

    def _round_s(self, partition: str) -> float:
        """Return how long a round takes a phone at its estimated heat."""
        row = self.fleet[partition]
        slowdown = 1 + self._heat[partition] * (row["slowdown"] - 1)
        return float(row["cold_ms_per_sample"]) * slowdown * self.samples / 1000

    def _advance_clock(self, partitions: list[str]) -> None:
        """Advance the clock by a round: phones that work heat up, the others cool down."""
        busy = {partition: self._round_s(partition) for partition in partitions}
        seconds = max(busy.values(), default=0.0)
        self.clock_s += seconds
        for partition in busy:
            self._times_chosen[partition] += 1
        for partition, row in self.fleet.items():
            busy_s = busy.get(partition, 0.0)
            hot = 1 - (1 - self._heat[partition]) * math.exp(-busy_s / row["heating_s"])
            self._heat[partition] = hot * math.exp(-(seconds - busy_s) / row["heating_s"])

    def _identify_nodes(self, grid: Grid) -> None:
        """Query the partition of unknown nodes: it identifies the phone."""
        unknown = [node for node in grid.get_node_ids() if node not in self._phone_of]
        queries = self._construct_messages(RecordDict(), unknown, MessageType.QUERY)
        for reply in grid.send_and_receive(queries) if unknown else ():
            if reply.has_content():
                partition = str(reply.content.metric_records["node"]["partition-id"])
                if partition in self.fleet:
                    self._phone_of[reply.metadata.src_node_id] = partition
