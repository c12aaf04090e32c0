"""Flower: an app for `flwr run` whose nodes are the clients of the fleet.

Flower has no model of devices: node ids are random, and a simulated node knows only its partition.
So the strategy queries the partition of every node once, keeps a virtual clock, and trains on the
nodes that the fleet prefers.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from orchestrator.export.federated.consumer_files import (
    MODEL_KBIT,
    Consumer,
    ConsumerRounds,
    FleetExport,
    or_null,
)
from orchestrator.selection import round_choice, round_clock
from orchestrator.selection.round_clock import duty_heat, link_cost, work_cost

FLEET, NODES, PROJECT, APP = "fleet.json", "nodes.sh", "pyproject.toml", "fleet_app"
PROGRAMS = ("__init__.py", "fleet_strategy.py", "client_app.py", "server_app.py")
NODES_MAX = 1000  # simulated nodes that the app asks Flower for; more can be set in its file
_PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "fleet-app"
version = "1.0.0"
description = "Federated averaging over a measured fleet of phones"
license = "Apache-2.0"
dependencies = ["flwr[simulation]", "numpy"]

[tool.hatch.build.targets.wheel]
packages = ["fleet_app"]

[tool.flwr.app]
publisher = "farmhand"

[tool.flwr.app.components]
serverapp = "fleet_app.server_app:app"
clientapp = "fleet_app.client_app:app"

[tool.flwr.app.config]
num-server-rounds = 3
clients-per-round = {k}
over-selection = 1.3
deadline-s = 0.0                 # of a round on the virtual clock; 0.0: none
fleet = "fleet.json"             # pass an absolute path

[tool.flwr.federations]
default = "phones"

[tool.flwr.federations.phones]
options.num-supernodes = {nodes}
"""


def render_files(export: FleetExport) -> Mapping[str, bytes]:
    """Return the fleet, the app, and the commands that start real nodes."""
    n = len(export.population)
    nodes = [
        f"flower-supernode --node-config 'partition-id={index} num-partitions={n}'"
        for index in range(min(n, NODES_MAX))
    ]
    here = Path(__file__).with_name(APP)
    clock = {
        f"{APP}/{Path(module.__file__ or '').name}": Path(module.__file__ or "").read_bytes()
        for module in (round_clock, round_choice)
    }
    project = _PROJECT.format(k=min(10, max(1, n // 2)), nodes=min(n, NODES_MAX))
    return {
        FLEET: (json.dumps(_columns(export)) + "\n").encode(),
        PROJECT: project.encode(),
        NODES: ("\n".join(nodes) + "\n").encode(),
        **{f"{APP}/{name}": (here / name).read_bytes() for name in PROGRAMS},
        **clock,
    }


def _columns(export: FleetExport) -> dict[str, object]:
    population, fleet = export.population, export.population.fleet
    down, up = population.link_kbps or (np.zeros(0), np.zeros(0))
    return {
        "batch": export.batch,
        "samples": export.samples,
        "rest_s": export.rest_s,
        "model_kbit": MODEL_KBIT,
        "client": export.names,
        "cold_ms_per_sample": (fleet.cold_s * 1000).tolist(),
        "slowdown": fleet.slowdown.tolist(),
        "heating_s": fleet.heating_s.tolist(),
        "uncertainty_rel": fleet.uncertainty.tolist(),
        "energy_mj_per_sample": or_null(fleet.energy_j * 1000),
        "battery_j": or_null(fleet.battery_j),
        "down_kbps": down.tolist(),
        "up_kbps": up.tolist(),
        "period_s": population.availability.period_s,
        "windows": export.windows,
    }


def read_rounds(contents: Mapping[str, bytes], samples: float, _: int) -> ConsumerRounds:
    """Compute a round as the strategy does."""
    columns = json.loads(contents[FLEET])
    phones = SimpleNamespace(
        cold_s=np.array(columns["cold_ms_per_sample"]) / 1000,
        slowdown=np.array(columns["slowdown"]),
        heating_s=np.array(columns["heating_s"]),
        energy_j=0.0,
    )
    heat = duty_heat(phones, samples, columns["rest_s"])
    link_s = None
    if columns["down_kbps"]:
        link_s, _joules = link_cost(
            MODEL_KBIT, np.array(columns["down_kbps"]), np.array(columns["up_kbps"])
        )
    return ConsumerRounds(work_cost(phones, samples, heat).seconds, link_s)


FLOWER = Consumer(
    name="flower",
    title="Flower",
    conventions=(
        "start it with: flwr run . --run-config \"fleet='$PWD/fleet.json'\"",
        "fleet.json has one entry per client in every column; the n-th partition is the n-th "
        "client, and a node beyond the last client is refused",
        "the strategy uses the clock of 'farm select' (round_clock.py), so any number of "
        "samples is valid; another batch size is not",
        "the strategy uses connected nodes inside their windows of availability; the clock starts "
        "at midnight",
        "nodes.sh: the commands that start real nodes, each with the partition of its phone",
    ),
    needs_link=False,
    render_files=render_files,
    read_rounds=read_rounds,
)
