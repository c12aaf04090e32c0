"""Numerics of the matrix product on the device: NaN, denormals, repeatability, bounds."""

import platform
from pathlib import Path

import numpy as np
import pytest

from kernels.autotuner import MatmulShape
from kernels.harness.local_runner import open_runner
from kernels.harness.opencl_device import Device
from kernels.reference import Array
from tests.kernels.opencl_runs import dump_tensors
from tests.kernels.plans import a_body
from tests.kernels.pocl import shared_pocl
from tests.kernels.test_data_sets import a_file
from workloads.run_options import KERNELS

M, N, K = 33, 17, 21
pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="there is no runner for this computer"
)
every_kernel = pytest.mark.parametrize("kernel", KERNELS)


@pytest.fixture(scope="module")
def pocl(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return shared_pocl(tmp_path_factory)


def product(folder: Path, pocl: dict[str, str], kernel: str, a: np.ndarray, b: np.ndarray) -> Array:
    """Return A B by a kernel, of matrices that the runner reads from a data file."""
    lists = (
        f"stream 0 float {M} 1 {K} file 0 0 |\nstream 1 float {K} 1 {N} file 1 0 |\n"
        f"tensor 0 float input 0 2 {M} {K} none\ntensor 1 float input 8192 2 {K} {N} none\n"
        f"tensor 2 float activation 0 2 {M} {N} none\n"
        f"op load -1 load : 0 : 0 0 {M} : 1 0\nop load -1 load : 1 : 1 0 {K} : 1 0\n"
        "op forward 0 sgemm 0 1 : 2 : 0 0 :\n"
    )
    body = a_body(lists).replace("backend cpu", "backend opencl")
    (folder / "data").write_bytes(a_file(("float", a), ("float", b)))
    words = ["--data", folder / "data", "--kernel", kernel]
    return dump_tensors(body, folder, pocl, 1, *words)[1][2]


def operands(seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    a, b = generator.random((M, K), np.float32), generator.random((K, N), np.float32)
    return a - np.float32(0.5), b - np.float32(0.5)


@every_kernel
def test_values_that_are_not_finite_stay_in_their_row_and_column(
    pocl: dict[str, str], tmp_path: Path, kernel: str
) -> None:
    a, b = operands(seed=2)
    a[3, 5], b[7, 4] = np.nan, np.inf
    seen = product(tmp_path, pocl, kernel, a, b)
    assert np.isnan(seen[3]).all(), "a row of A with a NaN"
    assert not np.isfinite(seen[:, 4]).any(), "a column of B with an infinity"
    rest = np.delete(np.delete(seen, 3, 0), 4, 1)
    assert np.isfinite(rest).all(), "other values are finite"


@every_kernel
def test_denormals_are_kept_or_become_zero(
    pocl: dict[str, str], tmp_path: Path, kernel: str
) -> None:
    """OpenCL leaves denormals to the device; PoCL on a processor keeps them."""
    a, b = np.zeros((M, K), np.float32), np.zeros((K, N), np.float32)
    a[:, 0], b[0] = 1e-30, 1e-10
    seen = set(product(tmp_path, pocl, kernel, a, b).ravel())
    assert seen <= {np.float32(0.0), np.float32(1e-30) * np.float32(1e-10)}


@every_kernel
def test_the_same_product_has_the_same_bits(
    pocl: dict[str, str], tmp_path: Path, kernel: str
) -> None:
    pair = operands(seed=4)
    first, second = (product(tmp_path, pocl, kernel, *pair) for _ in range(2))
    assert np.array_equal(first, second)


def test_the_error_is_within_its_bound_for_the_depth(device: Device) -> None:
    """The bound is half a unit in the last place per term, relative to the absolute terms."""
    depths = (1, 64, 1000)
    lines = [f"{MatmulShape(M, N, depth).candidate_prefix} direct" for depth in depths]
    with open_runner(device.facts.identity) as runner:
        errors = [record["error"] for record in runner.products(lines, 1, 1)]
    for depth, error in zip(depths, errors, strict=True):
        assert error <= min(1e-5, depth * 2.0**-24 + 2.0**-24)
