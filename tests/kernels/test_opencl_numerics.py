"""What a number means on the device: none at all, a tiny one, a half, and the same one twice."""

from dataclasses import replace

import numpy as np
import pytest

from kernels.harness.check import check
from kernels.harness.device import Device
from kernels.harness.products import WAYS, make_bench, operands
from kernels.tuning import Shape

# One set of numbers for all, so that the kernels are built once.
_NUMBERS = {"TILE": 8, "MR": 4, "NR": 16, "NC": 3, "STRIPS": 2, "PACK_A": 0}
SHAPE = Shape(33, 17, 21)
EXACT = [name for name in WAYS if name != "half"]


def _product(device: Device, name: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    way = replace(WAYS[name], defines=_NUMBERS)
    bench, launches = make_bench(device, SHAPE, way, a, b)
    for launch in launches:
        launch()
    return device.read(bench.c, (SHAPE.m, SHAPE.n))


@pytest.mark.parametrize("name", WAYS)
def test_what_is_no_number_stays_in_its_row_and_column(device: Device, name: str) -> None:
    a, b = operands(SHAPE, seed=2)
    a[3, 5], b[7, 4] = np.nan, np.inf
    seen = _product(device, name, a, b)
    assert np.isnan(seen[3]).all(), "a row of A that has no number in it"
    assert not np.isfinite(seen[:, 4]).any(), "a column of B that is beyond all numbers"
    rest = np.delete(np.delete(seen, 3, 0), 4, 1)
    assert np.isfinite(rest).all(), "ragged edges bring nothing else in"


@pytest.mark.parametrize("name", EXACT)
def test_tiny_values_are_kept_or_become_zero_and_nothing_else(device: Device, name: str) -> None:
    """OpenCL leaves it to the device; PoCL on a processor keeps them."""
    a, b = np.zeros((33, 21), np.float32), np.zeros((21, 17), np.float32)
    a[:, 0], b[0] = 1e-30, 1e-10
    seen = set(_product(device, name, a, b).ravel())
    assert seen <= {np.float32(0.0), np.float32(1e-30) * np.float32(1e-10)}


@pytest.mark.parametrize("name", WAYS)
def test_the_same_product_has_the_same_bits(device: Device, name: str) -> None:
    a, b = operands(SHAPE, seed=4)
    assert np.array_equal(_product(device, name, a, b), _product(device, name, a, b))


def test_halves_lose_digits_when_stored_and_none_when_added(device: Device) -> None:
    deep = Shape(8, 16, 4096)
    way = replace(WAYS["half"], defines=_NUMBERS)
    a, b = operands(deep, seed=5)
    kept_a, kept_b = (values.astype(np.float16).astype(np.float32) for values in (a, b))
    bench, launches = make_bench(device, deep, way, a, b)
    for launch in launches:
        launch()
    seen = device.read(bench.c, (8, 16))
    right = kept_a.astype(np.float64) @ kept_b.astype(np.float64)
    size = np.abs(kept_a) @ np.abs(kept_b)
    assert float(np.max(np.abs(seen - right) / size)) < 1e-5


@pytest.mark.parametrize("depth", [1, 64, 1000])
def test_the_error_stays_within_what_the_depth_allows(device: Device, depth: int) -> None:
    """Relative to the size of the terms; half of the last digit a term at worst."""
    way = replace(WAYS["direct"], defines=_NUMBERS)
    found = check(device, way, Shape(33, 17, depth), seed=6)
    assert found.error <= min(1e-5, depth * 2.0**-24 + 2.0**-24)
