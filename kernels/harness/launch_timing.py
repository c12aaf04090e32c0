"""Times launches on a device: contenders take turns, and the fastest wall time of each counts.

Wall time per product is taken over many launches with one wait at the end. The time by the clock
of the device is reported with it, since execution time hides the cost of launching and waiting.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kernels.harness.matmul_variants import Launches
from kernels.harness.opencl_device import Device, timing_of

LAUNCHES_MIN = 50
TURN_S = 0.02  # a turn takes at least this long and at least LAUNCHES_MIN launches


@dataclass(frozen=True)
class MatmulTime:
    """The best turn of one contender, per product."""

    wall_s: float
    executed_s: float
    queued_s: float
    waited_s: float
    launches: int
    last_s: float  # executed by the last kernel only: the product without its packing


@dataclass(frozen=True)
class DevicePeaks:
    """The measured limits of a device."""

    gflops: float
    gbytes_per_s: float


def time_in_turns(
    device: Device, contenders: Mapping[str, Launches], rounds: int, launches: int = LAUNCHES_MIN
) -> dict[str, MatmulTime]:
    """Time contenders in turns for this many rounds, after a warm-up of each."""
    best: dict[str, MatmulTime] = {}
    counts = {name: _launches_per_turn(device, one, launches) for name, one in contenders.items()}
    for _ in range(rounds):
        for name, one in contenders.items():
            turn = _time_turn(device, one, counts[name])
            if name not in best or turn.wall_s < best[name].wall_s:
                best[name] = turn
    return best


def load_average() -> float:
    """Return the load of this computer over the last minute."""
    return os.getloadavg()[0]


def measure_peaks(device: Device) -> DevicePeaks:
    """Measure arithmetic and memory limits; each is the best of several turns."""
    program = device.program("peak.cl")
    items, rounds, vectors = 8 * device.facts.units, 20_000, 256 * 1024
    out = device.empty(4 * items)
    memory = device.buffer(np.ones(8 * vectors * items, np.float32))
    arithmetic = program.bind("multiply_add", (items,), (1,), rounds, 0.5, out)
    reading = program.bind("read_memory", (items,), (1,), vectors, memory, out)
    contenders = {"arithmetic": [arithmetic], "reading": [reading]}
    times = time_in_turns(device, contenders, 5, launches=4)
    flops = items * rounds * 12 * 8 * 2
    return DevicePeaks(
        flops / times["arithmetic"].executed_s / 1e9,
        4 * 8 * vectors * items / times["reading"].executed_s / 1e9,
    )


def _launches_per_turn(device: Device, launches: Launches, minimum: int) -> int:
    """Warm up, then count how many products fill a turn."""
    for launch in launches:
        launch()
    device.finish()
    start = time.perf_counter()
    for launch in launches:
        launch()
    device.finish()
    return max(minimum, int(TURN_S / max(time.perf_counter() - start, 1e-6)))


def _time_turn(device: Device, launches: Launches, count: int) -> MatmulTime:
    start = time.perf_counter()
    for _ in range(count - 1):
        for launch in launches:
            launch()
    events = [launch() for launch in launches]
    device.finish()
    wall_s = (time.perf_counter() - start) / count
    timings = [timing_of(event) for event in events]
    return MatmulTime(
        wall_s=wall_s,
        executed_s=sum(timing.executed_s for timing in timings),
        queued_s=sum(timing.queued_s for timing in timings),
        waited_s=sum(timing.waited_s for timing in timings),
        launches=count,
        last_s=timings[-1].executed_s,
    )
