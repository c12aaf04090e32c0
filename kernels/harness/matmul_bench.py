"""Times all variants of the matrix product for square products, next to numpy."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernels.autotuner import MatmulShape, TunedMatmul, nearest
from kernels.harness.local_runner import LocalRunner
from workloads.protocol.faults import InvalidRequest

VARIANTS = {
    "naive": "one value per work item; every operand is loaded again and again",
    "vector": "four values per work item (float4)",
    "tiled": "tiles in local memory",
    "tiled_vector": "local memory and float4: the best kernel of the study",
    "direct": "a tile in registers, nothing packed: for small products, and for Mali",
    "dots": "dot products of rows: for small products with B transposed",
    "packed": "a tile in registers over packed panels: for large products",
}
TUNER_ONLY = ("direct", "dots")  # a sweep selects these with `tuned`


@dataclass(frozen=True)
class VariantTime:
    """The times of one product, and what its kernels were built from."""

    wall_s: float  # with packing and launching, many products with one wait
    queued_s: float  # of a product alone, by the clock of the device
    executed_s: float
    launches: int
    error: float  # relative to the sum of the absolute terms
    files: str
    options: str
    digest: str


@dataclass(frozen=True)
class MatmulRow:
    """One size: the best turn of each variant, and of numpy."""

    shape: MatmulShape
    times: dict[str, VariantTime]
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
    runner: LocalRunner,
    shape: MatmulShape,
    rounds: int,
    launches: int,
    tuned: Sequence[TunedMatmul] = (),
) -> MatmulRow:
    """Time all variants with their usual parameters, and the best of a tuning file."""
    best = nearest(tuned, shape)
    contenders = {name: name for name in VARIANTS} | ({"tuned": best.label} if best else {})
    times = time_products(runner, shape, contenders, rounds, launches)
    return MatmulRow(shape, times, _numpy_seconds(shape, rounds), load_average())


def time_products(
    runner: LocalRunner, shape: MatmulShape, contenders: dict[str, str], rounds: int, launches: int
) -> dict[str, VariantTime]:
    """Time candidates in turns, by name."""
    lines = [f"{shape.candidate_prefix} {label}" for label in contenders.values()]
    times = {}
    for name, record in zip(contenders, runner.products(lines, rounds, launches), strict=True):
        if "fault" in record:
            raise InvalidRequest(f"{name}: {record['fault']}")
        times[name] = VariantTime(
            record["wall_ns"] / 1e9,
            record["queue_ns"] / 1e9,
            record["compute_ns"] / 1e9,
            record["launches"],
            record["error"],
            *(record[member] for member in ("files", "options", "digest")),
        )
    return times


def load_average() -> float:
    """Return the load of this computer over the last minute."""
    return os.getloadavg()[0]


def _numpy_seconds(shape: MatmulShape, rounds: int) -> float:
    generator = np.random.default_rng(0)
    a = generator.random((shape.m, shape.k), np.float32)
    b = generator.random((shape.k, shape.n), np.float32)
    out = np.empty((shape.m, shape.n), np.float32)
    best = float("inf")
    for _ in range(10 * rounds):
        start = time.perf_counter()
        np.matmul(a, b, out=out)
        best = min(best, time.perf_counter() - start)
    return best
