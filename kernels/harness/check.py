"""Every way to multiply held against numpy in double precision, over random and ragged shapes."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kernels.harness.device import Device
from kernels.harness.products import WAYS, Way, make_bench, operands, reference
from kernels.tuning import Shape

# The smallest, the paper's multiples of 16, both sides of a tile's edge, and long thin ones.
_SIZES = ((1, 1, 1), (16, 16, 16), (33, 17, 5), (32, 256, 784), (65, 129, 31), (1, 300, 7))


@dataclass(frozen=True)
class Checked:
    """One product: its largest error, relative to the size of the terms."""

    way: str
    shape: Shape
    error: float
    tolerance: float

    @property
    def right(self) -> bool:
        """Whether the answer can be believed; not a number cannot."""
        return self.error <= self.tolerance


def shapes(seed: int, extra: int) -> Iterator[Shape]:
    """Fixed sizes and random ones, each in all four transposes."""
    dice = random.Random(seed)
    drawn = [tuple(dice.randint(1, 150) for _ in range(3)) for _ in range(extra)]
    for m, n, k in (*_SIZES, *drawn):
        for turned_a, turned_b in itertools.product((False, True), repeat=2):
            yield Shape(m, n, k, turned_a, turned_b)


def check(device: Device, way: Way, shape: Shape, seed: int) -> Checked:
    """Multiply once and compare every value."""
    a, b = operands(shape, seed)
    bench, launches = make_bench(device, shape, way, a, b)
    device.write(bench.c, np.full((shape.m, shape.n), np.nan, np.float32))
    for launch in launches:
        launch()
    right, size = reference(shape, a, b)
    error = np.abs(device.read(bench.c, (shape.m, shape.n)) - right) / size
    return Checked(way.name, shape, float(np.max(error)), way.tolerance)


def ways_for(device: Device) -> list[Way]:
    """The ways that a device can go."""
    return [way for way in WAYS.values() if device.facts.images or not way.needs_images]
