"""Numerics on the device: NaN, denormals, half precision, and repeatability."""

from dataclasses import replace

import numpy as np
import pytest

from kernels.autotuner import MatmulShape
from kernels.harness.matmul_check import check_matmul
from kernels.harness.matmul_variants import VARIANTS, operands, prepare_matmul
from kernels.harness.opencl_device import Device

# One set of parameters for all, so that the kernels are built once.
_PARAMS = {"TILE": 8, "MR": 4, "NR": 16, "NC": 3, "PANELS": 2, "PACK_A": 0}
SHAPE = MatmulShape(33, 17, 21)
EXACT = [name for name in VARIANTS if name != "half"]


def _product(device: Device, name: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    variant = replace(VARIANTS[name], params=_PARAMS)
    setup, launches = prepare_matmul(device, SHAPE, variant, a, b)
    for launch in launches:
        launch()
    return device.read(setup.c, (SHAPE.m, SHAPE.n))


@pytest.mark.parametrize("name", VARIANTS)
def test_values_that_are_not_finite_stay_in_their_row_and_column(device: Device, name: str) -> None:
    a, b = operands(SHAPE, seed=2)
    a[3, 5], b[7, 4] = np.nan, np.inf
    seen = _product(device, name, a, b)
    assert np.isnan(seen[3]).all(), "a row of A with a NaN"
    assert not np.isfinite(seen[:, 4]).any(), "a column of B with an infinity"
    rest = np.delete(np.delete(seen, 3, 0), 4, 1)
    assert np.isfinite(rest).all(), "other values are finite"


@pytest.mark.parametrize("name", EXACT)
def test_denormals_are_kept_or_become_zero(device: Device, name: str) -> None:
    """OpenCL leaves denormals to the device; PoCL on a processor keeps them."""
    a, b = np.zeros((33, 21), np.float32), np.zeros((21, 17), np.float32)
    a[:, 0], b[0] = 1e-30, 1e-10
    seen = set(_product(device, name, a, b).ravel())
    assert seen <= {np.float32(0.0), np.float32(1e-30) * np.float32(1e-10)}


@pytest.mark.parametrize("name", VARIANTS)
def test_the_same_product_has_the_same_bits(device: Device, name: str) -> None:
    a, b = operands(SHAPE, seed=4)
    assert np.array_equal(_product(device, name, a, b), _product(device, name, a, b))


def test_half_precision_rounds_only_when_stored(device: Device) -> None:
    deep = MatmulShape(8, 16, 4096)
    variant = replace(VARIANTS["half"], params=_PARAMS)
    a, b = operands(deep, seed=5)
    kept_a, kept_b = (values.astype(np.float16).astype(np.float32) for values in (a, b))
    setup, launches = prepare_matmul(device, deep, variant, a, b)
    for launch in launches:
        launch()
    seen = device.read(setup.c, (8, 16))
    right = kept_a.astype(np.float64) @ kept_b.astype(np.float64)
    size = np.abs(kept_a) @ np.abs(kept_b)
    assert float(np.max(np.abs(seen - right) / size)) < 1e-5


@pytest.mark.parametrize("depth", [1, 64, 1000])
def test_the_error_is_within_its_bound_for_the_depth(device: Device, depth: int) -> None:
    """The bound is half a unit in the last place per term, relative to the absolute terms."""
    variant = replace(VARIANTS["direct"], params=_PARAMS)
    found = check_matmul(device, variant, MatmulShape(33, 17, depth), seed=6)
    assert found.error <= min(1e-5, depth * 2.0**-24 + 2.0**-24)
