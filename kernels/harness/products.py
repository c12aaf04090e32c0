"""The ways to multiply on a device: each entry point of sgemm.cl with what it needs around it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernels.harness.device import Device, Floats, Launch
from kernels.tuning import FILE, Shape
from workloads.fault import Refused

LOCAL = ("tiled", "tiled_vector")  # ways with tiles in local memory
GROUPS = ("GX", "GY")  # the shape of a work group: a number of the launch, not of the program
Launches = Sequence[Launch]  # of one product, in order


@dataclass(frozen=True)
class Way:
    """One way to multiply, and the numbers it is built with."""

    name: str
    text: str
    prepare: Callable[["Bench"], Launches]
    defines: Mapping[str, int] = field(default_factory=dict)
    needs_images: bool = False
    tolerance: float = 1e-5  # error relative to the size of the terms


@dataclass(frozen=True)
class Bench:
    """A product laid out on a device, ready to be launched in one way."""

    device: Device
    shape: Shape
    way: Way
    a: Any
    b: Any
    c: Any

    def program(self) -> Any:
        """The kernels, built for this shape's transposes and this way's numbers."""
        defines = {"TA": int(self.shape.transposed_a), "TB": int(self.shape.transposed_b)}
        defines |= {name: value for name, value in self.way.defines.items() if name not in GROUPS}
        return self.device.program(FILE, [f"-D{name}={value}" for name, value in defines.items()])

    @property
    def strides(self) -> tuple[int, int, int]:
        """The lengths of the rows of A, B and C."""
        shape = self.shape
        return (
            shape.m if shape.transposed_a else shape.k,
            shape.k if shape.transposed_b else shape.n,
            shape.n,
        )


def make_bench(
    device: Device, shape: Shape, way: Way, a: Floats, b: Floats
) -> tuple[Bench, Launches]:
    """The product on the device, and what launches it."""
    if way.needs_images and not device.facts.images:
        raise Refused(f"{way.name} needs images, and {device.facts.label} has none")
    needed = 2 * 4 * way.defines.get("TILE", 0) ** 2 if way.name in LOCAL else 0
    if needed > device.facts.local_bytes:
        raise Refused(
            f"{way.name} needs {needed} bytes of local memory, and {device.facts.label} has "
            f"{device.facts.local_bytes}; choose another with --device"
        )
    c = device.empty(4 * shape.m * shape.n)
    bench = Bench(device, shape, way, device.buffer(a), device.buffer(b), c)
    return bench, way.prepare(bench)


def operands(shape: Shape, seed: int) -> tuple[Floats, Floats]:
    """A and B as they lie in memory, transposed where the shape says so."""
    dice = np.random.default_rng(seed)
    size_a = (shape.k, shape.m) if shape.transposed_a else (shape.m, shape.k)
    size_b = (shape.n, shape.k) if shape.transposed_b else (shape.k, shape.n)
    a, b = dice.random(size_a, np.float32), dice.random(size_b, np.float32)
    return a - np.float32(0.5), b - np.float32(0.5)


def reference(shape: Shape, a: Floats, b: Floats) -> tuple[np.ndarray, np.ndarray]:
    """The product in double precision, and the sum of the sizes of its terms."""
    left = (a.T if shape.transposed_a else a).astype(np.float64)
    right = (b.T if shape.transposed_b else b).astype(np.float64)
    return left @ right, np.abs(left) @ np.abs(right)


def _plain(entry: str, wide: int = 1, tiled: bool = False) -> Callable[[Bench], Launches]:
    """A kernel over (columns, rows), so many columns an item, that reads A and B as they lie."""

    def prepare(bench: Bench) -> Launches:
        shape, (lda, ldb, ldc) = bench.shape, bench.strides
        program = bench.program()
        across, down, group = _ceil(shape.n, wide), shape.m, None
        if tiled:
            side = bench.way.defines["TILE"]
            group = (side // wide, side)
            across, down = _up(across, group[0]), _up(down, group[1])
        words = (shape.m, shape.n, shape.k, bench.a, lda, bench.b, ldb, bench.c, ldc)
        return [program.bind(entry, (across, down), group, *words)]

    return prepare


def _tile(entry: str, wide: str) -> Callable[[Bench], Launches]:
    """A kernel whose item makes MR rows and so many columns out of A and B as they lie."""

    def prepare(bench: Bench) -> Launches:
        shape, (lda, ldb, ldc), numbers = bench.shape, bench.strides, bench.way.defines
        size = (_ceil(shape.n, numbers[wide]), _ceil(shape.m, numbers["MR"]))
        words = (shape.m, shape.n, shape.k, bench.a, lda, bench.b, ldb, bench.c, ldc)
        return [bench.program().bind(entry, *_grouped(size, numbers), *words)]

    return prepare


def _packed(bench: Bench) -> Launches:
    m, n, k = bench.shape.m, bench.shape.n, bench.shape.k
    (lda, ldb, ldc), numbers, program = bench.strides, bench.way.defines, bench.program()
    down, across = _ceil(m, numbers["MR"]), _ceil(n, numbers["NR"])
    strips_b = bench.device.empty(4 * across * numbers["NR"] * k)
    launches = [program.bind("pack_b", (k, across), None, n, k, bench.b, ldb, strips_b)]
    from_a = bench.a
    if numbers["PACK_A"]:
        from_a = bench.device.empty(4 * down * numbers["MR"] * k)
        launches.append(program.bind("pack_a", (k, down), None, m, k, bench.a, lda, from_a))
    size = (_ceil(down, numbers["STRIPS"]), across)
    words = (m, n, k, from_a, lda, strips_b, bench.c, ldc)
    return [*launches, program.bind("sgemm_packed", *_grouped(size, numbers), *words)]


def _half(bench: Bench) -> Launches:
    m, n, k = bench.shape.m, bench.shape.n, bench.shape.k
    (lda, ldb, ldc), numbers, program = bench.strides, bench.way.defines, bench.program()
    down, across = _ceil(m, numbers["MR"]), _ceil(n, numbers["NR"])
    strips_a = bench.device.empty(2 * down * numbers["MR"] * k)
    strips_b = bench.device.empty(2 * across * numbers["NR"] * k)
    words = (m, n, k, strips_a, strips_b, bench.c, ldc)
    return [
        program.bind("pack_a_half", (k, down), None, m, k, bench.a, lda, strips_a),
        program.bind("pack_b_half", (k, across), None, n, k, bench.b, ldb, strips_b),
        program.bind("sgemm_half", *_grouped((down, across), numbers), *words),
    ]


def _image(bench: Bench) -> Launches:
    m, n, k = bench.shape.m, bench.shape.n, bench.shape.k
    (lda, ldb, ldc), numbers, program = bench.strides, bench.way.defines, bench.program()
    image = bench.device.image(_ceil(n, 4), k)
    size = (_ceil(n, 4), _ceil(m, numbers["MR"]))
    words = (m, n, k, bench.a, lda, image, bench.c, ldc)
    return [
        program.bind("image_of_b", (_ceil(n, 4), k), None, n, k, bench.b, ldb, image),
        program.bind("sgemm_image", *_grouped(size, numbers), *words),
    ]


def _grouped(
    size: tuple[int, int], numbers: Mapping[str, int]
) -> tuple[tuple[int, int], tuple[int, int]]:
    """A size rounded up to the work group, and the group; items beyond the matrix do nothing."""
    group = (numbers.get("GX", 1), numbers.get("GY", 1))
    return (_up(size[0], group[0]), _up(size[1], group[1])), group


def _ceil(count: int, step: int) -> int:
    return -(-count // step)


def _up(count: int, step: int) -> int:
    return _ceil(count, step) * step


WAYS: dict[str, Way] = {
    way.name: way
    for way in (
        Way(
            "naive",
            "one item a value; everything is fetched again and again",
            _plain("sgemm_naive"),
        ),
        Way("vector", "one item four values: float4", _plain("sgemm_vector", 4)),
        Way("tiled", "tiles in local memory", _plain("sgemm_tiled", tiled=True), {"TILE": 16}),
        Way(
            "tiled_vector",
            "both: the optimum of the study",
            _plain("sgemm_tiled_vector", 4, tiled=True),
            {"TILE": 32},
        ),
        Way(
            "direct",
            "a tile in registers, nothing prepared: small products, and Mali",
            _tile("sgemm_direct", "NR"),
            {"MR": 4, "NR": 16},
        ),
        Way(
            "dots",
            "rows of A along rows of B: small products with B transposed",
            _tile("sgemm_dots", "NC"),
            {"MR": 3, "NC": 4},
        ),
        Way(
            "packed",
            "a tile in registers over packed strips: large products",
            _packed,
            {"MR": 6, "NR": 16, "STRIPS": 4, "PACK_A": 0},
        ),
        Way(
            "image",
            "B as an image: meant for Adreno",
            _image,
            {"MR": 8, "GX": 8, "GY": 1},
            needs_images=True,
        ),
        Way(
            "half",
            "strips stored as half, added up as float: meant for Adreno",
            _half,
            {"MR": 6, "NR": 16},
            tolerance=2e-3,
        ),
    )
}
