"""Compares every matmul variant with numpy in double precision, for fixed and random shapes."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kernels.autotuner import MatmulShape
from kernels.harness.matmul_variants import (
    VARIANTS,
    MatmulVariant,
    operands,
    prepare_matmul,
    reference,
)
from kernels.harness.opencl_device import Device

# The smallest, the study's multiples of 16, both sides of a tile's edge, and long thin ones.
_SIZES = ((1, 1, 1), (16, 16, 16), (33, 17, 5), (32, 256, 784), (65, 129, 31), (1, 300, 7))


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
        for transposed_a, transposed_b in itertools.product((False, True), repeat=2):
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


def variants_for(device: Device) -> list[MatmulVariant]:
    """List the variants that a device supports."""
    images = device.facts.images
    return [variant for variant in VARIANTS.values() if images or not variant.needs_images]
