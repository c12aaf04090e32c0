"""The study's table on this device: every way, every size, beside numpy on the same processor."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kernels.harness.check import ways_for
from kernels.harness.device import Device
from kernels.harness.products import WAYS, make_bench, operands
from kernels.harness.timing import Timed, load_average, take_turns
from kernels.tuning import Shape, Tuned, nearest


@dataclass(frozen=True)
class Row:
    """One size: each way's best turn, and numpy's."""

    shape: Shape
    timed: dict[str, Timed]
    numpy_s: float
    load: float

    def gflops(self, way: str) -> float:
        """By wall time, everything included."""
        return self.shape.flops / self.timed[way].wall_s / 1e9

    def executed_gflops(self, way: str) -> float:
        """By the device's own clock, execution alone."""
        return self.shape.flops / max(self.timed[way].executed_s, 1e-9) / 1e9

    @property
    def numpy_gflops(self) -> float:
        """numpy with the threads it takes by itself."""
        return self.shape.flops / self.numpy_s / 1e9

    @property
    def best(self) -> str:
        """The fastest way."""
        return min(self.timed, key=lambda way: self.timed[way].wall_s)

    @property
    def study_gain(self) -> float:
        """The study's ratio: tiles and vectors over naive."""
        return self.timed["naive"].wall_s / self.timed["tiled_vector"].wall_s

    @property
    def best_gain(self) -> float:
        """The fastest over naive."""
        return self.timed["naive"].wall_s / self.timed[self.best].wall_s


def bench(
    device: Device,
    sizes: Sequence[int],
    rounds: int,
    launches: int,
    tuned: Sequence[Tuned] = (),
    step: Callable[[], None] = lambda: None,
) -> list[Row]:
    """Time all ways on square products; `step` is called after each size."""
    rows = []
    for n in sizes:
        shape = Shape(n, n, n)
        a, b = operands(shape, seed=n)
        ways = {way.name: way for way in ways_for(device)}
        if (best := nearest(tuned, shape)) is not None:
            ways["tuned"] = replace(WAYS[best.way], defines=dict(best.numbers))
        ready = {name: make_bench(device, shape, way, a, b)[1] for name, way in ways.items()}
        timed = take_turns(device, ready, rounds, launches)
        rows.append(Row(shape, timed, _numpy_s(a, b, rounds), load_average()))
        step()
    return rows


def _numpy_s(a: np.ndarray, b: np.ndarray, rounds: int) -> float:
    out = np.empty((a.shape[0], b.shape[1]), np.float32)
    best = float("inf")
    for _ in range(10 * rounds):
        began = time.perf_counter()
        np.matmul(a, b, out=out)
        best = min(best, time.perf_counter() - began)
    return best
