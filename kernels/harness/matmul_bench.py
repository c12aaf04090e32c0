"""Times all matmul variants for square products, next to numpy on the same processor."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kernels.autotuner import MatmulShape, TunedMatmul, nearest
from kernels.harness.launch_timing import MatmulTime, load_average, time_in_turns
from kernels.harness.matmul_check import variants_for
from kernels.harness.matmul_variants import VARIANTS, operands, prepare_matmul
from kernels.harness.opencl_device import Device


@dataclass(frozen=True)
class MatmulRow:
    """One size: the best turn of each variant, and of numpy."""

    shape: MatmulShape
    times: dict[str, MatmulTime]
    numpy_s: float
    load: float

    def gflops(self, variant: str) -> float:
        """Speed by wall time, with packing and launching."""
        return self.shape.flops / self.times[variant].wall_s / 1e9

    def executed_gflops(self, variant: str) -> float:
        """Speed by the clock of the device, execution only."""
        return self.shape.flops / max(self.times[variant].executed_s, 1e-9) / 1e9

    @property
    def numpy_gflops(self) -> float:
        """Speed of numpy with its default number of threads."""
        return self.shape.flops / self.numpy_s / 1e9

    @property
    def fastest(self) -> str:
        """The variant with the shortest wall time."""
        return min(self.times, key=lambda variant: self.times[variant].wall_s)

    @property
    def study_ratio(self) -> float:
        """The ratio of the study: tiled_vector over naive."""
        return self.times["naive"].wall_s / self.times["tiled_vector"].wall_s

    @property
    def best_ratio(self) -> float:
        """The fastest variant over naive."""
        return self.times["naive"].wall_s / self.times[self.fastest].wall_s


def bench_matmul(
    device: Device,
    sizes: Sequence[int],
    rounds: int,
    launches: int,
    tuned: Sequence[TunedMatmul] = (),
    on_size: Callable[[], None] = lambda: None,
) -> list[MatmulRow]:
    """Time all variants on square products; `on_size` is called after each size."""
    rows = []
    for n in sizes:
        shape = MatmulShape(n, n, n)
        a, b = operands(shape, seed=n)
        variants = {variant.name: variant for variant in variants_for(device)}
        if (best := nearest(tuned, shape)) is not None:
            variants["tuned"] = replace(VARIANTS[best.variant], params=dict(best.params))
        launches_by_name = {
            name: prepare_matmul(device, shape, variant, a, b)[1]
            for name, variant in variants.items()
        }
        times = time_in_turns(device, launches_by_name, rounds, launches)
        rows.append(MatmulRow(shape, times, _numpy_seconds(a, b, rounds), load_average()))
        on_size()
    return rows


def _numpy_seconds(a: np.ndarray, b: np.ndarray, rounds: int) -> float:
    out = np.empty((a.shape[0], b.shape[1]), np.float32)
    best = float("inf")
    for _ in range(10 * rounds):
        start = time.perf_counter()
        np.matmul(a, b, out=out)
        best = min(best, time.perf_counter() - start)
    return best
