"""Times the variants of the matrix product, in turns; the fastest turn of each counts."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from kernels.autotuner import MatmulShape
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

    def gflops(self, shape: MatmulShape) -> float:
        """Speed by wall time, with packing and launching."""
        return shape.flops / self.wall_s / 1e9

    def executed_gflops(self, shape: MatmulShape) -> float:
        """Speed by the clock of the device, execution only."""
        return shape.flops / max(self.executed_s, 1e-9) / 1e9


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


def bench_as_json(shape: MatmulShape, times: Mapping[str, VariantTime]) -> dict[str, object]:
    """Return the times of one size."""
    speeds = {
        name: {"gflops": one.gflops(shape), "executed_gflops": one.executed_gflops(shape)}
        for name, one in times.items()
    }
    return {
        "n": shape.n,
        "variants": {name: asdict(one) | speeds[name] for name, one in times.items()},
    }


def bench_table(rows: Mapping[MatmulShape, Mapping[str, VariantTime]]) -> Iterator[str]:
    """Yield a line per size, and what the kernels of the last one were built from."""
    *_, last = rows.values()
    yield f"   n{''.join(f'{name:>13}' for name in last)}{'best x':>8}"
    for shape, times in rows.items():
        speeds = "".join(
            f"{one.gflops(shape):>7.1f}/{one.executed_gflops(shape):<5.1f}"
            for one in times.values()
        )
        best = times["naive"].wall_s / min(one.wall_s for one in times.values())
        yield f"{shape.n:>4}{speeds}{best:>8.1f}"
    yield "GFLOPS by wall time / by the clock of the device, fastest of all turns."
    yield "'best x' is the fastest over naive by wall time."
    for name, built in last.items():
        yield f"{name}: {built.files} {built.options} {built.digest}"
