"""CPU against GPU, feeds and kernels through the whole lab, on phones with and without a GPU."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.analysis.measurements import MeasuredRun
from orchestrator.store.results import measured_runs
from tests.farm.conftest import SPEED, Farm, start_farm_with
from workloads.lab.settings import Lab

PROFILES = ("nvidia-tx2", "meizu-16t", "oneplus-6", "redmi-note-9-pro:no_opencl")
BOARD, MEIZU, ONEPLUS, NO_GPU = "VTX20001", "VM16T0001", "VOP60001", "VRN9P0001"
PROCESSORS = """\
farm: 1
name: processors
phones: all
matrix:
  workload: [densenet40, char-lstm]
  backend: [cpu, opencl]
  batch_size: [4]
conditions: {cores: all4, freq: free}
repeat: 1
"""
OPTIONS = """\
farm: 1
name: options
workload: {use: mlp-4, backend: opencl}
phones: all
matrix:
  feed: [copied, resident]
  kernel: [naive, tuned]
conditions: {cores: all4, freq: free}
repeat: 1
"""
REASON = "its runner found no OpenCL device; use backend: cpu"
Values = dict[str, float]


@pytest.fixture(scope="module")
def gpu_farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    lab = Lab.read(tmp_path_factory.mktemp("gpu") / "lab", {})
    with start_farm_with(lab, PROFILES, SPEED) as farm:
        yield farm


def run_sweep(farm: Farm, folder: Path, text: str) -> tuple[dict[str, Any], list[MeasuredRun]]:
    """Submit a sweep and wait for it; return the submission and the runs."""
    file = folder / "sweep.yaml"
    file.write_text(text)
    submission = json.loads(farm.command("sweep", "submit", file, "--json").stdout)
    watch = farm.command("watch", submission["sweep"], "--exit-status")
    assert watch.returncode == 0, watch.stdout
    runs = measured_runs(farm.db, submission["sweep"])
    assert len(runs) == submission["new_runs"]
    assert {run.verdict.validity.value for run in runs} == {"valid"}
    sources = {metric.provenance.source for run in runs for metric in run.metrics.values()}
    assert {source.value for source in sources} == {"simulated"}
    return submission, list(runs)


def values_by(runs: list[MeasuredRun], *settings: str) -> dict[tuple[str, ...], Values]:
    """Return the metrics of runs by phone and settings."""
    rows = {}
    for run in runs:
        named = {**run.case.settings, "workload": run.case.workload, "backend": run.case.backend}
        key = (run.phone, *(str(named[name]) for name in settings))
        rows[key] = {name: metric.value for name, metric in run.metrics.items()}
    return rows


def test_a_plan_skips_the_gpu_of_a_phone_that_has_none(gpu_farm: Farm, tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(PROCESSORS)
    plan = json.loads(gpu_farm.command("sweep", "plan", file, "--json").stdout)
    (skipped,) = plan["cells_left_out"]
    assert (skipped["phone"], skipped["code"]) == (NO_GPU, "no_backend")
    assert (skipped["reason"], len(skipped["cells"])) == (REASON, 2)
    assert plan["runs_at_most"] == 3 * 4 + 2
    assert REASON in gpu_farm.command("sweep", "plan", file).stdout
    file.write_text(OPTIONS)
    plan = json.loads(gpu_farm.command("sweep", "plan", file, "--json").stdout)
    assert [(each["phone"], each["reason"]) for each in plan["not_matched"]] == [(NO_GPU, REASON)]


def test_the_cpu_and_the_gpu_of_each_phone_are_compared(gpu_farm: Farm, tmp_path: Path) -> None:
    _, runs = run_sweep(gpu_farm, tmp_path, PROCESSORS)
    rows = values_by(runs, "workload", "backend")
    assert (NO_GPU, "densenet40", "cpu") in rows
    assert not [key for key in rows if key[0] == NO_GPU and "opencl" in key]
    for phone in (BOARD, MEIZU, ONEPLUS):
        cnn, lstm = (rows[phone, name, "opencl"] for name in ("densenet40", "char-lstm"))
        cores = rows[phone, "densenet40", "cpu"]
        names = {"build_ms", "copy_ms", "queue_ms", "compute_ms", "copy_share", "gpu_util_pct"}
        assert names <= cnn.keys()
        assert 0 < lstm["gpu_util_pct"] < cnn["gpu_util_pct"] <= 100
        assert 0 < cnn["cpu_util_pct"] < cores["cpu_util_pct"] <= 100
        assert cores["gpu_util_pct"] == 0
        assert cnn["copy_ms"] + cnn["queue_ms"] + cnn["compute_ms"] < 1.05 * cnn["step_ms"]
    board_cnn, board_cpu = (rows[BOARD, "densenet40", name] for name in ("opencl", "cpu"))
    # TX2 study: 81.6 % with DenseNet40 and batch 4, 25 % with an LSTM.
    assert 60 < board_cnn["gpu_util_pct"] < 95
    assert rows[BOARD, "char-lstm", "opencl"]["gpu_util_pct"] < 35
    assert board_cnn["step_ms"] < board_cpu["step_ms"]
    gpu, whole = (board_cnn[f"rail_power_w.{rail}"] for rail in ("VDD_SYS_GPU", "VDD_IN"))
    assert 2 < gpu < whole
    assert board_cpu["rail_power_w.VDD_SYS_GPU"] == 0


@pytest.mark.slow
def test_feeds_and_kernels_are_compared(gpu_farm: Farm, tmp_path: Path) -> None:
    submission, runs = run_sweep(gpu_farm, tmp_path, OPTIONS)
    assert submission["new_runs"] == 3 * 4
    rows = values_by(runs, "feed", "kernel")
    for phone in (BOARD, MEIZU, ONEPLUS):
        copied, resident = (rows[phone, feed, "tuned"] for feed in ("copied", "resident"))
        assert copied["step_ms"] > 1.5 * resident["step_ms"]
        assert copied["copy_share"] > 2 * resident["copy_share"] > 0
        assert copied["gpu_util_pct"] < resident["gpu_util_pct"]
        naive = rows[phone, "resident", "naive"]
        assert naive["compute_ms"] > 1.5 * resident["compute_ms"]
        if phone != BOARD:  # whose fast GPU waits for its CPU with either kernel
            assert naive["step_ms"] > 1.1 * resident["step_ms"]
    # Cambridge: with copies around every operation, kernels are 9 % of a step on a OnePlus 6.
    copied = rows[ONEPLUS, "copied", "tuned"]
    assert copied["compute_ms"] / copied["step_ms"] == pytest.approx(0.09, abs=0.02)
