"""Chooses Flower nodes by the measured speed, heat and energy of their phones, on a virtual clock.

Needs flwr, numpy, round_clock.py and round_choice.py beside this file, and fleet.json. In the
server app:

    strategy = FleetStrategy("fleet.json", k=3)
    strategy.start(grid=grid, initial_arrays=arrays, num_rounds=5)

and in the client app, so that the server knows the client of every node:

    app.query()(report_partition)

A round asks more nodes than it needs, and ends when enough updates have arrived or at its deadline,
both on the virtual clock `clock_s`. Nodes that would be late are not trained at all; their phones
still spend time and energy. `rounds` lists seconds, joules, heat and charge of each selected phone.
"""

import json
import math
import time
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from fleet_app.round_choice import best_round, fair_weight, known_utility
from fleet_app.round_clock import (
    CONNECTED_W,
    duty_heat,
    heat_after_rest,
    heat_after_work,
    link_cost,
    work_cost,
)
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

GAP_S = 2.0  # between two rounds, for aggregation
WAIT_S = 600.0  # until the server looks again for available phones
BATTERY_FLOOR = 0.2


def report_partition(message: Message, context: Context) -> Message:
    """Reply to a query with the partition of this node."""
    partition = MetricRecord({"partition-id": int(context.node_config["partition-id"])})
    return Message(RecordDict({"node": partition}), reply_to=message)


def read_fleet(path: "str | Path") -> dict:
    """Read fleet.json, or fleet.simulated.json where the fleet is simulated."""
    file = Path(path)
    marked = file.with_name(f"{file.stem}.simulated{file.suffix}")
    return json.loads((file if file.exists() else marked).read_text())


class FleetStrategy(FedAvg):
    """Federated averaging over the nodes that a measured fleet recommends."""

    def __init__(
        self,
        fleet: "str | Path",
        k: int,
        samples: "float | None" = None,
        over_selection: float = 1.3,
        deadline_s: "float | None" = None,
        **more: object,
    ) -> None:
        super().__init__(**more)
        content = read_fleet(fleet)
        self.names = content["client"]
        self.phones = SimpleNamespace(
            cold_s=np.array(content["cold_ms_per_sample"]) / 1000,
            slowdown=np.array(content["slowdown"]),
            heating_s=np.array(content["heating_s"]),
            energy_j=np.array(content["energy_mj_per_sample"], dtype=float) / 1000,
        )
        self.samples = samples or content["samples"]
        self.link_s, self.link_j = np.zeros(len(self.names)), np.zeros(len(self.names))
        if content["down_kbps"]:
            kbit = content["model_kbit"]
            self.link_s, self.link_j = link_cost(kbit, content["down_kbps"], content["up_kbps"])
        self.windows, self.period_s = content["windows"], content["period_s"]
        self.margin = np.array(content["uncertainty_rel"])
        self.battery_j = np.array(content["battery_j"], dtype=float)
        self.k, self.over_selection, self.deadline_s = k, over_selection, deadline_s
        self.clock_s = 0.0
        self.rounds: list[list[dict]] = []  # by round: the asked phones
        self.heat = duty_heat(self.phones, self.samples, content["rest_s"])
        self.charge = np.ones(len(self.names))
        self.utility = np.full(len(self.names), np.nan)
        self.times_chosen = np.zeros(len(self.names))
        self._client_of: dict[int, int] = {}

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Choose the phones of a round, advance the clock, and send the model to those in time."""
        self._identify_nodes(grid)
        while len(self._client_of) < max(self.k, self.min_available_nodes):
            time.sleep(1)  # as Flower's own strategies wait for nodes to connect
            self._identify_nodes(grid)
        node_of = {self._client_of[node]: node for node in grid.get_node_ids()}
        present = np.array(sorted(node_of))
        present = self._wait_for_available(present[self.charge[present] > BATTERY_FLOOR])
        in_time = self._run_round(self._choose(present))
        config["server-round"] = server_round
        record = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: config})
        return self._construct_messages(
            record, [node_of[client] for client in in_time], MessageType.TRAIN
        )

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> "tuple[ArrayRecord | None, MetricRecord | None]":
        """Add the phones' figures to the metrics of their replies, and learn from the losses."""
        known = list(replies)
        figures = {row["client"]: row for row in self.rounds[-1]}
        for reply in known:
            if not reply.has_content():
                continue
            client = self._client_of[reply.metadata.src_node_id]
            metrics = next(iter(reply.content.metric_records.values()))
            row = figures[self.names[client]]
            metrics["train-time-s"], metrics["energy-j"] = row["seconds"], row["joules"]
            metrics["heat"], metrics["charge"] = row["heat"], row["charge"]
            if "loss" in metrics:
                self.utility[client] = math.sqrt(max(0.0, float(metrics["loss"])))
        return super().aggregate_train(server_round, known)

    def _wait_for_available(self, present: np.ndarray) -> np.ndarray:
        """Return the clients inside one of their windows; advance the clock if there is none."""
        for _ in range(math.ceil(self.period_s / WAIT_S)):
            now_s = self.clock_s % self.period_s
            available = [
                client
                for client in present
                if any(start <= now_s < end for start, end in self.windows[client])
            ]
            if available or not len(present):
                break
            self.clock_s += WAIT_S
            self.heat = heat_after_rest(self.phones, self.heat, WAIT_S)
        return np.array(available, dtype=int)

    def _choose(self, present: np.ndarray) -> np.ndarray:
        """Return the clients that are asked: the most valuable ones per second."""
        work_s = work_cost(self.phones, self.samples, self.heat).seconds
        ends_s = (work_s * (1 + self.margin) + self.link_s)[present]
        if self.deadline_s is not None:
            present, ends_s = present[ends_s <= self.deadline_s], ends_s[ends_s <= self.deadline_s]
        value = known_utility(self.utility[present]) * fair_weight(self.times_chosen[present])
        return present[best_round(value, ends_s, math.ceil(self.k * self.over_selection))]

    def _run_round(self, asked: np.ndarray) -> "list[int]":
        """Advance clock, heat and charge by a round; return the clients whose update is in time."""
        if not len(asked):
            self.clock_s += WAIT_S
            self.rounds.append([])
            return []
        cost = work_cost(self.phones, self.samples, self.heat)
        busy_s, ends_s = cost.seconds[asked], (cost.seconds + self.link_s)[asked]
        wanted = min(self.k, len(asked))
        round_s = min(float(np.sort(ends_s)[wanted - 1]), self.deadline_s or math.inf)
        worked_s = np.minimum(busy_s, round_s)
        joules = cost.joules[asked] * worked_s / busy_s + self.link_j[asked]
        joules += CONNECTED_W * np.maximum(0.0, round_s - ends_s)
        some = SimpleNamespace(heating_s=self.phones.heating_s[asked])
        hot = heat_after_work(some, self.heat[asked], worked_s)
        self.heat = heat_after_rest(self.phones, self.heat, round_s + GAP_S)
        self.heat[asked] = heat_after_rest(some, hot, round_s - worked_s + GAP_S)
        self.charge[asked] -= np.nan_to_num(joules / self.battery_j[asked])
        self.times_chosen[asked] += 1
        self.clock_s += round_s + GAP_S
        order = np.argsort(ends_s, kind="stable")
        in_time = [int(asked[i]) for i in order[:wanted] if ends_s[i] <= round_s]
        self.rounds.append(
            [
                {
                    "client": self.names[client],
                    "in_time": int(client) in in_time,
                    "seconds": float(ends_s[i]),
                    "joules": float(joules[i]),
                    "heat": float(self.heat[client]),
                    "charge": float(self.charge[client]),
                }
                for i, client in enumerate(asked)
            ]
        )
        return in_time

    def _identify_nodes(self, grid: Grid) -> None:
        """Query the partition of unknown nodes: it is the number of their client."""
        unknown = [node for node in grid.get_node_ids() if node not in self._client_of]
        queries = self._construct_messages(RecordDict(), unknown, MessageType.QUERY)
        for reply in grid.send_and_receive(queries) if unknown else ():
            if reply.has_content():
                client = int(reply.content.metric_records["node"]["partition-id"])
                if client >= len(self.names):
                    raise ValueError(
                        f"the fleet has {len(self.names)} clients, but a node has partition "
                        f"{client}; export it with --clients {client + 1} or more"
                    )
                self._client_of[reply.metadata.src_node_id] = client
