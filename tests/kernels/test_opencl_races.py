"""The kernels under oclgrind, which checks every memory access of every work item."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernels.harness.matmul_variants import VARIANTS

ROOT = Path(__file__).resolve().parents[2]
_RACY = """
kernel void racy(global int *out) {
    local int shared[4];
    int mine = (int)get_local_id(0);
    shared[mine] = mine;
    out[get_global_id(0)] = shared[(mine + 1) % 4];
}
"""
_PLANTED = f"""
import numpy as np
from kernels.harness.opencl_device import choose_device
device = choose_device("Oclgrind")
program = device.program_from({_RACY!r}, "racy.cl")
program.bind("racy", (4,), (4,), device.buffer(np.zeros(4, np.int32)))()
device.finish()
"""
_ALL = """
from dataclasses import replace
from kernels.harness.matmul_check import check_batch, check_matmul, variants_for
from kernels.harness.opencl_device import choose_device
from kernels.harness.training_checks import training_checks
from kernels.harness.kernel_check import TOLERANCE, run_check
from kernels.autotuner import MatmulShape
device = choose_device("Oclgrind")
small = {"TILE": 8, "MR": 4, "NR": 16, "NC": 3, "PANELS": 2, "PACK_A": 1, "GX": 2, "GY": 2}
variants = variants_for(device)
for shape in (MatmulShape(9, 17, 11), MatmulShape(7, 18, 9, True, True)):
    for variant in variants:
        one = check_matmul(device, replace(variant, params=small), shape, seed=1)
        assert one.passed, one
        if variant.batched:
            many = check_batch(device, replace(variant, params=small), shape, seed=1)
            assert many.passed, many
for check in training_checks(seed=1):
    error = run_check(device, check)
    assert error <= TOLERANCE, (check.name, error)
print("all", len(variants))
"""


def _under_oclgrind(program: str, log: Path) -> tuple[subprocess.CompletedProcess[str], str]:
    if shutil.which("oclgrind") is None:
        pytest.skip("oclgrind is not installed (Debian: apt install oclgrind)")
    words = ["oclgrind", "--data-races", "--log", str(log), sys.executable, "-c", program]
    here = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        words, env=here, cwd=ROOT, capture_output=True, text=True, check=False, timeout=1500
    )
    return ended, log.read_text() if log.exists() else ""


@pytest.mark.slow
def test_an_injected_race_is_found(tmp_path: Path) -> None:
    ended, log = _under_oclgrind(_PLANTED, tmp_path / "log")
    assert "data race" in log, ended.stderr


@pytest.mark.slow
def test_no_kernel_has_a_race_or_an_invalid_access(tmp_path: Path) -> None:
    ended, log = _under_oclgrind(_ALL, tmp_path / "log")
    assert (ended.returncode, log) == (0, ""), ended.stderr[-2000:] + log[-2000:]
    assert f"all {len(VARIANTS)}\n" == ended.stdout
