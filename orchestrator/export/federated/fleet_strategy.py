"""Choose Flower nodes by what their phones were measured to do.

This file stands alone beside fleet.json; it needs flwr and nothing else. In the server app:

    strategy = FleetStrategy("fleet.json", k=3, samples=1000)
    strategy.start(grid=grid, initial_arrays=arrays, num_rounds=5)

and in the client app, so that the server learns which node is which phone:

    app.query()(tell_partition)

Each round asks the k nodes that are quickest as hot as their phones would be by now, at the upper
end of what was measured, and less often the dearer they are in energy and the more they have
served. Flower has no clock for phones: `clock_s` adds up what the rounds would take on them.
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


def tell_partition(message: Message, context: Context) -> Message:
    """Answer a query with the partition of this node."""
    partition = MetricRecord({"partition-id": int(context.node_config["partition-id"])})
    return Message(RecordDict({"who": partition}), reply_to=message)


class FleetStrategy(FedAvg):
    """Federated averaging over the nodes that a measured fleet recommends."""

    def __init__(self, fleet: str | Path, k: int, samples: float, **more: object) -> None:
        super().__init__(**more)
        self.fleet = json.loads(Path(fleet).read_text())
        self.k = k
        self.samples = samples
        self.clock_s = 0.0
        self.asked: list[list[str]] = []  # phones, by round
        self._phone_of: dict[int, str] = {}
        self._served: dict[str, int] = dict.fromkeys(self.fleet, 0)
        self._heat: dict[str, float] = dict.fromkeys(self.fleet, 0.0)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask those phones whose round would end first."""
        self._meet(grid)
        while len(self._phone_of) < max(self.k, self.min_available_nodes):
            time.sleep(1)  # as Flower's own strategies wait for nodes to connect
            self._meet(grid)
        present = [node for node in grid.get_node_ids() if node in self._phone_of]
        chosen = sorted(present, key=self._cost)[: self.k]
        partitions = [self._phone_of[node] for node in chosen]
        self.asked.append([self.fleet[partition]["phone"] for partition in partitions])
        self._pass(partitions)
        config["server-round"] = server_round
        record = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: config})
        return self._construct_messages(record, chosen, MessageType.TRAIN)

    def _cost(self, node: int) -> float:
        partition = self._phone_of[node]
        row = self.fleet[partition]
        typical = max(1.0, sum(self._served.values()) / len(self._served))
        served = 1 + self._served[partition] / typical
        upper_s = self._round_s(partition) * (1 + row["uncertainty_rel"])
        energy = (row["energy_mj_per_sample"] or 1.0) ** ENERGY
        return float(upper_s * energy * served**FAIRNESS)

    def _round_s(self, partition: str) -> float:
        """How long a round takes a phone that is as hot as this one would be."""
        row = self.fleet[partition]
        slower = 1 + self._heat[partition] * (row["slowdown"] - 1)
        return float(row["cold_ms_per_sample"]) * slower * self.samples / 1000

    def _pass(self, partitions: list[str]) -> None:
        """Let the phones' clock go on by a round: who works grows hot, who rests cools."""
        busy = {partition: self._round_s(partition) for partition in partitions}
        seconds = max(busy.values(), default=0.0)
        self.clock_s += seconds
        for partition in busy:
            self._served[partition] += 1
        for partition, row in self.fleet.items():
            worked = busy.get(partition, 0.0)
            hot = 1 - (1 - self._heat[partition]) * math.exp(-worked / row["heating_s"])
            self._heat[partition] = hot * math.exp(-(seconds - worked) / row["heating_s"])

    def _meet(self, grid: Grid) -> None:
        """Ask nodes that were never met which partition, and so which phone, they are."""
        strangers = [node for node in grid.get_node_ids() if node not in self._phone_of]
        asked = self._construct_messages(RecordDict(), strangers, MessageType.QUERY)
        for reply in grid.send_and_receive(asked) if strangers else ():
            if reply.has_content():
                partition = str(reply.content.metric_records["who"]["partition-id"])
                if partition in self.fleet:
                    self._phone_of[reply.metadata.src_node_id] = partition
