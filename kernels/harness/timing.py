"""Timing on a device: contenders take turns, the least wall time of each counts.

Wall time per launch is taken over many launches with one wait at the end; what the device's own
clock says stands beside it, since execution alone hides what launching and waiting cost.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kernels.harness.device import Device, timing_of
from kernels.harness.products import Launches

LAUNCHES_MIN = 50
TURN_S = 0.02  # a turn is at least so long, and at least LAUNCHES_MIN launches


@dataclass(frozen=True)
class Timed:
    """The best turn of one contender, per product."""

    wall_s: float
    executed_s: float
    queued_s: float
    waited_s: float
    launches: int
    last_s: float  # executed by the last kernel alone: the product, without what prepared it


@dataclass(frozen=True)
class Roofs:
    """What a device can do at most."""

    gflops: float
    gbytes_per_s: float


def take_turns(
    device: Device, contenders: Mapping[str, Launches], rounds: int, launches: int = LAUNCHES_MIN
) -> dict[str, Timed]:
    """Time contenders one after another, round after round, after a first launch of each."""
    best: dict[str, Timed] = {}
    counts = {name: _enough(device, one, launches) for name, one in contenders.items()}
    for _ in range(rounds):
        for name, one in contenders.items():
            timed = _turn(device, one, counts[name])
            if name not in best or timed.wall_s < best[name].wall_s:
                best[name] = timed
    return best


def load_average() -> float:
    """How busy this computer is, besides us: the last minute's load."""
    return os.getloadavg()[0]


def roofs_of(device: Device) -> Roofs:
    """Measure both roofs; each is the best of several turns."""
    program = device.program("peak.cl")
    items, rounds, eights = 8 * device.facts.units, 20_000, 256 * 1024
    out = device.empty(4 * items)
    memory = device.buffer(np.ones(8 * eights * items, np.float32))
    adding = program.bind("multiply_add", (items,), (1,), rounds, 0.5, out)
    fetching = program.bind("fetch", (items,), (1,), eights, memory, out)
    timed = take_turns(device, {"adding": [adding], "fetching": [fetching]}, 5, launches=4)
    flops = items * rounds * 12 * 8 * 2
    return Roofs(
        flops / timed["adding"].executed_s / 1e9,
        4 * 8 * eights * items / timed["fetching"].executed_s / 1e9,
    )


def _enough(device: Device, one: Launches, least: int) -> int:
    """The first launches warm everything up, and tell how many fill a turn."""
    for launch in one:
        launch()
    device.finish()
    began = time.perf_counter()
    for launch in one:
        launch()
    device.finish()
    return max(least, int(TURN_S / max(time.perf_counter() - began, 1e-6)))


def _turn(device: Device, one: Launches, launches: int) -> Timed:
    began = time.perf_counter()
    for _ in range(launches - 1):
        for launch in one:
            launch()
    events = [launch() for launch in one]
    device.finish()
    wall_s = (time.perf_counter() - began) / launches
    parts = [timing_of(event) for event in events]
    return Timed(
        wall_s=wall_s,
        executed_s=sum(part.executed_s for part in parts),
        queued_s=sum(part.queued_s for part in parts),
        waited_s=sum(part.waited_s for part in parts),
        launches=launches,
        last_s=parts[-1].executed_s,
    )
