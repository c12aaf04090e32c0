"""The kernels under oclgrind, which watches every access of every work item for races."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernels.harness.products import WAYS

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
from kernels.harness.device import choose_device
device = choose_device("Oclgrind")
program = device.program_from({_RACY!r}, "racy.cl")
program.bind("racy", (4,), (4,), device.buffer(np.zeros(4, np.int32)))()
device.finish()
"""
_ALL = """
from dataclasses import replace
from kernels.harness.check import check, ways_for
from kernels.harness.device import choose_device
from kernels.harness.operations import trials
from kernels.harness.trial import TOLERANCE, run_trial
from kernels.tuning import Shape
device = choose_device("Oclgrind")
small = {"TILE": 8, "MR": 4, "NR": 16, "NC": 3, "STRIPS": 2, "PACK_A": 1, "GX": 2, "GY": 2}
ways = ways_for(device)
for shape in (Shape(9, 17, 11), Shape(7, 18, 9, True, True)):
    for way in ways:
        one = check(device, replace(way, defines=small), shape, seed=1)
        assert one.right, one
for trial in trials(seed=1):
    error = run_trial(device, trial)
    assert error <= TOLERANCE, (trial.name, error)
print("all", len(ways))
"""


def _under_oclgrind(program: str, log: Path) -> tuple[subprocess.CompletedProcess[str], str]:
    if shutil.which("oclgrind") is None:
        pytest.skip("oclgrind is not here (Debian: apt install oclgrind)")
    words = ["oclgrind", "--data-races", "--log", str(log), sys.executable, "-c", program]
    here = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        words, env=here, cwd=ROOT, capture_output=True, text=True, check=False, timeout=1500
    )
    return ended, log.read_text() if log.exists() else ""


@pytest.mark.slow
def test_a_race_that_was_planted_is_found(tmp_path: Path) -> None:
    ended, log = _under_oclgrind(_PLANTED, tmp_path / "log")
    assert "data race" in log, ended.stderr


@pytest.mark.slow
def test_no_kernel_has_a_race_or_reads_beyond_its_memory(tmp_path: Path) -> None:
    ended, log = _under_oclgrind(_ALL, tmp_path / "log")
    assert (0, "") == (ended.returncode, log), ended.stderr[-2000:] + log[-2000:]
    assert f"all {len(WAYS)}\n" == ended.stdout
