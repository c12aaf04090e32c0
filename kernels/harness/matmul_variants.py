"""The variants of the matrix product: the kernel of each, with the launches that it needs.

A sweep and the runner's --kernel name those of workloads/run_options.py. The others (TUNER_ONLY)
are for tuning files: the tuner chooses among them, and a sweep selects them with `tuned`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from kernels.autotuner import COMMON_FILE, MatmulShape
from kernels.harness.opencl_device import Device, Floats, KernelLaunch, KernelProgram
from workloads.protocol.faults import InvalidRequest

NEEDS_LOCAL = ("tiled", "tiled_vector")  # variants with tiles in local memory
TUNER_ONLY = ("direct", "dots", "image", "half")
GROUP_PARAMS = ("GX", "GY")  # the shape of a work group: a property of the launch, not the program
Launches = Sequence[KernelLaunch]  # of one product, in order


@dataclass(frozen=True)
class MatmulVariant:
    """One way to compute a product, and the parameters that its kernel is built with."""

    name: str
    file: str
    text: str
    prepare: Callable[["MatmulSetup"], Launches]
    params: Mapping[str, int] = field(default_factory=dict)
    needs_images: bool = False
    batched: bool = True  # computes many products in one launch as well
    tolerance: float = 1e-5  # error relative to the sum of the absolute terms


class MatmulBatch(NamedTuple):
    """Many products of one shape: their number, and where the matrices of each begin.

    A place is (first, outer, step): matrix i begins at first + i // inner * outer + i % inner *
    step, in floats.
    """

    products: int
    inner: int
    strides: tuple[int, int, int]  # the row lengths of A, B and C
    a: tuple[int, int, int]
    b: tuple[int, int, int]
    c: tuple[int, int, int]


@dataclass(frozen=True)
class MatmulSetup:
    """A product on a device: its matrices and the variant that computes it."""

    device: Device
    shape: MatmulShape
    variant: MatmulVariant
    a: Any
    b: Any
    c: Any
    batch: MatmulBatch | None = None

    def program(self) -> KernelProgram:
        """Build the kernels for the transposes of this shape and the parameters of this variant."""
        defines = {"TA": int(self.shape.transposed_a), "TB": int(self.shape.transposed_b)}
        defines |= {"BATCHED": 1} if self.batch else {}
        params = self.variant.params.items()
        defines |= {name: value for name, value in params if name not in GROUP_PARAMS}
        options = [f"-D{name}={value}" for name, value in defines.items()]
        return self.device.program(f"{COMMON_FILE} {self.variant.file}", options)

    def bind(
        self,
        entry: str,
        size: tuple[int, int],
        group: tuple[int, int] | None,
        arguments: Sequence[object],
        matrices: str,
    ) -> KernelLaunch:
        """Bind a kernel; of a batch, with the places of these matrices."""
        if self.batch is None:
            return self.program().bind(entry, size, group, *arguments)
        places = [
            np.array([*getattr(self.batch, name), self.batch.inner], np.int32) for name in matrices
        ]
        items = (*size, self.batch.products)
        groups = None if group is None else (*group, 1)
        return self.program().bind(entry, items, groups, *arguments, *places)

    @property
    def strides(self) -> tuple[int, int, int]:
        """The row lengths of A, B and C."""
        if self.batch is not None:
            return self.batch.strides
        shape = self.shape
        return (
            shape.m if shape.transposed_a else shape.k,
            shape.k if shape.transposed_b else shape.n,
            shape.n,
        )


def prepare_matmul(
    device: Device, shape: MatmulShape, variant: MatmulVariant, a: Floats, b: Floats
) -> tuple[MatmulSetup, Launches]:
    """Copy the matrices to the device and prepare the launches."""
    if variant.needs_images and not device.facts.images:
        raise InvalidRequest(f"{variant.name} needs images, and {device.facts.label} has none")
    needed = 2 * 4 * variant.params.get("TILE", 0) ** 2 if variant.name in NEEDS_LOCAL else 0
    if needed > device.facts.local_bytes:
        raise InvalidRequest(
            f"{variant.name} needs {needed} bytes of local memory, and {device.facts.label} has "
            f"{device.facts.local_bytes}; choose another device with --device"
        )
    c = device.empty(4 * shape.m * shape.n)
    setup = MatmulSetup(device, shape, variant, device.buffer(a), device.buffer(b), c)
    return setup, variant.prepare(setup)


def operands(shape: MatmulShape, seed: int) -> tuple[Floats, Floats]:
    """Draw A and B as they are stored, transposed where the shape requires it."""
    generator = np.random.default_rng(seed)
    size_a = (shape.k, shape.m) if shape.transposed_a else (shape.m, shape.k)
    size_b = (shape.n, shape.k) if shape.transposed_b else (shape.k, shape.n)
    a, b = generator.random(size_a, np.float32), generator.random(size_b, np.float32)
    return a - np.float32(0.5), b - np.float32(0.5)


def reference(shape: MatmulShape, a: Floats, b: Floats) -> tuple[np.ndarray, np.ndarray]:
    """Compute the product in double precision, and the sums of its absolute terms."""
    left = (a.T if shape.transposed_a else a).astype(np.float64)
    right = (b.T if shape.transposed_b else b).astype(np.float64)
    return left @ right, np.abs(left) @ np.abs(right)


def _plain(entry: str, columns: int = 1, tiled: bool = False) -> Callable[[MatmulSetup], Launches]:
    """Prepare a kernel over rows and columns, this many columns per work item."""

    def prepare(setup: MatmulSetup) -> Launches:
        shape = setup.shape
        across, down, group = _div_up(shape.n, columns), shape.m, None
        if tiled:
            side = setup.variant.params["TILE"]
            group = (side // columns, side)
            across, down = _round_up(across, group[0]), _round_up(down, group[1])
        return [setup.bind(entry, (across, down), group, _matrices(setup), "abc")]

    return prepare


def _register_tile(entry: str, columns: str) -> Callable[[MatmulSetup], Launches]:
    """Prepare a kernel whose work item computes MR rows and this parameter's number of columns."""

    def prepare(setup: MatmulSetup) -> Launches:
        shape, params = setup.shape, setup.variant.params
        size = (_div_up(shape.n, params[columns]), _div_up(shape.m, params["MR"]))
        return [setup.bind(entry, *_grouped(size, params), _matrices(setup), "abc")]

    return prepare


def _matrices(setup: MatmulSetup) -> tuple[object, ...]:
    """Return the arguments of a kernel that reads A and B where they are."""
    shape, (lda, ldb, ldc) = setup.shape, setup.strides
    return (shape.m, shape.n, shape.k, setup.a, lda, setup.b, ldb, setup.c, ldc)


def _packed(setup: MatmulSetup) -> Launches:
    m, n, k = setup.shape.m, setup.shape.n, setup.shape.k
    (lda, ldb, ldc), params = setup.strides, setup.variant.params
    row_panels, column_panels = _div_up(m, params["MR"]), _div_up(n, params["NR"])
    products = setup.batch.products if setup.batch else 1
    packed_b = setup.device.empty(4 * column_panels * params["NR"] * k * products)
    arguments: tuple[object, ...] = (n, k, setup.b, ldb, packed_b)
    launches = [setup.bind("pack_b", (k, column_panels), None, arguments, "b")]
    a = setup.a
    if params["PACK_A"]:
        a = setup.device.empty(4 * row_panels * params["MR"] * k * products)
        arguments = (m, k, setup.a, lda, a)
        launches.append(setup.bind("pack_a", (k, row_panels), None, arguments, "a"))
    size = (_div_up(row_panels, params["PANELS"]), column_panels)
    arguments = (m, n, k, a, lda, packed_b, setup.c, ldc)
    return [*launches, setup.bind("sgemm_packed", *_grouped(size, params), arguments, "ac")]


def _half(setup: MatmulSetup) -> Launches:
    m, n, k = setup.shape.m, setup.shape.n, setup.shape.k
    (lda, ldb, ldc), params, program = setup.strides, setup.variant.params, setup.program()
    row_panels, column_panels = _div_up(m, params["MR"]), _div_up(n, params["NR"])
    packed_a = setup.device.empty(2 * row_panels * params["MR"] * k)
    packed_b = setup.device.empty(2 * column_panels * params["NR"] * k)
    arguments = (m, n, k, packed_a, packed_b, setup.c, ldc)
    return [
        program.bind("pack_a_half", (k, row_panels), None, m, k, setup.a, lda, packed_a),
        program.bind("pack_b_half", (k, column_panels), None, n, k, setup.b, ldb, packed_b),
        program.bind("sgemm_half", *_grouped((row_panels, column_panels), params), *arguments),
    ]


def _image(setup: MatmulSetup) -> Launches:
    m, n, k = setup.shape.m, setup.shape.n, setup.shape.k
    (lda, ldb, ldc), params, program = setup.strides, setup.variant.params, setup.program()
    image = setup.device.image(_div_up(n, 4), k)
    size = (_div_up(n, 4), _div_up(m, params["MR"]))
    arguments = (m, n, k, setup.a, lda, image, setup.c, ldc)
    return [
        program.bind("image_of_b", (_div_up(n, 4), k), None, n, k, setup.b, ldb, image),
        program.bind("sgemm_image", *_grouped(size, params), *arguments),
    ]


def _grouped(
    size: tuple[int, int], params: Mapping[str, int]
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Round a size up to whole work groups; work items beyond the matrix do nothing."""
    group = (params.get("GX", 1), params.get("GY", 1))
    return (_round_up(size[0], group[0]), _round_up(size[1], group[1])), group


def _div_up(count: int, step: int) -> int:
    return -(-count // step)


def _round_up(count: int, step: int) -> int:
    return _div_up(count, step) * step


VARIANTS: dict[str, MatmulVariant] = {
    variant.name: variant
    for variant in (
        MatmulVariant(
            "naive",
            "sgemm_1_naive.cl",
            "one value per work item; every operand is loaded again and again",
            _plain("sgemm_naive"),
        ),
        MatmulVariant(
            "vector",
            "sgemm_2_vector.cl",
            "four values per work item (float4)",
            _plain("sgemm_vector", 4),
        ),
        MatmulVariant(
            "tiled",
            "sgemm_3_tiled.cl",
            "tiles in local memory",
            _plain("sgemm_tiled", tiled=True),
            {"TILE": 16},
        ),
        MatmulVariant(
            "tiled_vector",
            "sgemm_4_tiled_vector.cl",
            "local memory and float4: the best kernel of the study",
            _plain("sgemm_tiled_vector", 4, tiled=True),
            {"TILE": 32},
        ),
        MatmulVariant(
            "direct",
            "sgemm_5_direct.cl",
            "a tile in registers, nothing packed: for small products, and for Mali",
            _register_tile("sgemm_direct", "NR"),
            {"MR": 4, "NR": 16},
        ),
        MatmulVariant(
            "dots",
            "sgemm_6_dots.cl",
            "dot products of rows: for small products with B transposed",
            _register_tile("sgemm_dots", "NC"),
            {"MR": 3, "NC": 4},
        ),
        MatmulVariant(
            "packed",
            "sgemm_7_packed.cl",
            "a tile in registers over packed panels: for large products",
            _packed,
            {"MR": 6, "NR": 16, "PANELS": 4, "PACK_A": 0},
        ),
        MatmulVariant(
            "half",
            "sgemm_8_half.cl",
            "panels stored as half, summed as float: for Adreno",
            _half,
            {"MR": 6, "NR": 16},
            batched=False,
            tolerance=2e-3,
        ),
        MatmulVariant(
            "image",
            "sgemm_9_image.cl",
            "B as an image: for Adreno",
            _image,
            {"MR": 8, "GX": 8, "GY": 1},
            needs_images=True,
            batched=False,
        ),
    )
}
