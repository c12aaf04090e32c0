"""Compares every matmul variant with numpy in double precision, for fixed and random shapes."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kernels.autotuner import MatmulShape
from kernels.harness.matmul_variants import (
    VARIANTS,
    MatmulBatch,
    MatmulSetup,
    MatmulVariant,
    operands,
    prepare_matmul,
    reference,
)
from kernels.harness.opencl_device import Device

# The smallest, the study's multiples of 16, both sides of a tile's edge, and long thin ones.
_SIZES = ((1, 1, 1), (16, 16, 16), (33, 17, 5), (32, 256, 784), (65, 129, 31), (1, 300, 7))

_TRANSPOSES = tuple(itertools.product((False, True), repeat=2))
BATCH_SHAPES = tuple(MatmulShape(33, 17, 5, *transposes) for transposes in _TRANSPOSES)


@dataclass(frozen=True)
class MatmulCheck:
    """One product: its largest error, relative to the sum of the absolute terms."""

    variant: str
    shape: MatmulShape
    error: float
    tolerance: float

    @property
    def passed(self) -> bool:
        """Whether the error is within the tolerance; NaN is not."""
        return self.error <= self.tolerance


def check_shapes(seed: int, extra: int) -> Iterator[MatmulShape]:
    """Yield fixed and random sizes, each in all four transposes."""
    generator = random.Random(seed)
    drawn = [tuple(generator.randint(1, 150) for _ in range(3)) for _ in range(extra)]
    for m, n, k in (*_SIZES, *drawn):
        for transposed_a, transposed_b in _TRANSPOSES:
            yield MatmulShape(m, n, k, transposed_a, transposed_b)


def check_matmul(
    device: Device, variant: MatmulVariant, shape: MatmulShape, seed: int
) -> MatmulCheck:
    """Multiply once and compare every value."""
    a, b = operands(shape, seed)
    setup, launches = prepare_matmul(device, shape, variant, a, b)
    device.write(setup.c, np.full((shape.m, shape.n), np.nan, np.float32))
    for launch in launches:
        launch()
    expected, magnitude = reference(shape, a, b)
    error = np.abs(device.read(setup.c, (shape.m, shape.n)) - expected) / magnitude
    return MatmulCheck(variant.name, shape, float(np.max(error)), variant.tolerance)


def check_batch(
    device: Device, variant: MatmulVariant, shape: MatmulShape, seed: int
) -> MatmulCheck:
    """Compute the products of two samples with three heads in one launch.

    The matrices of the heads lie side by side in the rows of a sample, as those of an attention.
    """
    samples, heads = 2, 3
    generator = np.random.default_rng(seed)
    sizes = [values.shape for values in operands(shape, seed)]
    a, b = (
        generator.standard_normal((samples, rows, heads, columns), np.float32)
        for rows, columns in sizes
    )
    c = np.full((samples, shape.m, heads, shape.n), np.nan, np.float32)
    strides = tuple(heads * values.shape[3] for values in (a, b, c))
    places = [(0, values[0].size, values.shape[3]) for values in (a, b, c)]
    batch = MatmulBatch(samples * heads, heads, strides, *places)
    on_device = device.buffer(a), device.buffer(b), device.buffer(c)
    setup = MatmulSetup(device, shape, variant, *on_device, batch=batch)
    for launch in variant.prepare(setup):
        launch()
    actual = device.read(setup.c, c.shape)
    errors = []
    for sample, head in itertools.product(range(samples), range(heads)):
        expected, magnitude = reference(shape, a[sample, :, head], b[sample, :, head])
        errors.append(np.max(np.abs(actual[sample, :, head] - expected) / magnitude))
    return MatmulCheck(f"{variant.name} batched", shape, float(np.max(errors)), variant.tolerance)


def variants_for(device: Device) -> list[MatmulVariant]:
    """List the variants that a device supports."""
    images = device.facts.images
    return [variant for variant in VARIANTS.values() if images or not variant.needs_images]
