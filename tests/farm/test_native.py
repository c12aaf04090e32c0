"""Real training through the whole farm, with this host as the phone."""

import json
import platform
from pathlib import Path

import pytest

from orchestrator.analysis.op_telemetry import op_rows
from orchestrator.store.results import measured_runs, telemetry_blob
from orchestrator.supervisor.virtual_phones import NATIVE
from tests.farm.conftest import start_farm_on_one_host
from tests.kernels.pocl import need_pocl
from tests.linux_boards import laptop, live_board
from workloads.lab_settings import Lab
from workloads.protocol.telemetry import read_telemetry
from workloads.protocol.verdict import Validity

GPU_SWEEP = """\
farm: 1
name: on-the-gpu
phones: all
workload: {use: lenet, with: {batch_size: 4}, backend: opencl}
conditions:
  cores: all1
  freq: free
  start_temp_max_c: any
  time_min: 1s
repeat: 1
"""
PINNED_SWEEP = """\
farm: 1
name: pinned
phones: all
workload: {use: lenet, with: {batch_size: 16}}
matrix:
  freq: [low, free]
conditions:
  cores: all1
  start_temp_max_c: 55
  start_slope_max_c_per_min: 30
  time_min: 2s
repeat: 1
"""
SWEEP = """\
farm: 1
name: native
phones: all
matrix:
  workload: [mlp-4, lenet]
conditions:
  cores: all1
  freq: free
  start_temp_max_c: any
  time_min: 1s
repeat: 1
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the native runner is for x86_64")
def test_a_native_phone_trains(lab: Lab, tmp_path: Path) -> None:
    with start_farm_on_one_host(lab, NATIVE, 1.0) as farm:
        (phone,) = farm.phones()
        offered = phone.facts.provenance
        assert phone.facts.control in {"observed", "partial"}
        file = tmp_path / "native.yaml"
        file.write_text(SWEEP)
        sweep = json.loads(farm.command("sweep", "submit", file, "--json").stdout)["sweep"]
        watch = farm.command("watch", sweep, "--exit-status")
        assert watch.returncode == 0, watch.stdout
        runs = measured_runs(farm.db, sweep)
        blobs = [telemetry_blob(farm.db, run.telemetry or "") for run in runs]
    assert {run.case.workload for run in runs} == {"mlp-4", "lenet"}
    for run, blob in zip(runs, blobs, strict=True):
        # Other work on this host may make a run suspect.
        assert run.verdict.validity is not Validity.VOID, run.verdict.reasons
        assert not run.verdict.deterministic
        assert {metric.provenance.source.value for metric in run.metrics.values()} == {"host"}
        figures = {name: metric.value for name, metric in run.metrics.items()}
        assert figures["loss_last"] < figures["loss_first"] / 2
        phases = [figures[f"{phase}_ms"] for phase in ("load", "forward", "backward", "update")]
        assert all(ms > 0 for ms in phases)
        assert figures["peak_rss_mb"] > figures["parameter_mb"] > 0
        assert "pinned_clock_share" not in figures
        assert offered is not None
        if offered.heat is None:
            assert "start_temp_c" not in figures
        if offered.energy is None:
            assert "energy_j" not in figures
        assert blob is not None
        ops = op_rows(read_telemetry(blob))
        assert sum(op.share for op in ops) == pytest.approx(1)
        if offered.clock is None:
            assert not any(op.clock_mhz for op in ops)
        if offered.energy is None:
            assert all(op.energy_mj is None for op in ops)


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the native runner is for x86_64")
def test_a_laptop_trains_with_pinned_clocks(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with live_board(laptop) as board:
        monkeypatch.setenv("FARM_NATIVE_SYSFS", str(board.sysfs))
        before = board.limits()
        with start_farm_on_one_host(lab, NATIVE, 1.0) as farm:
            file = tmp_path / "pinned.yaml"
            file.write_text(PINNED_SWEEP)
            sweep = json.loads(farm.command("sweep", "submit", file, "--json").stdout)["sweep"]
            watch = farm.command("watch", sweep, "--exit-status")
            assert watch.returncode == 0, watch.stdout
            runs = {run.condition.freq: run for run in measured_runs(farm.db, sweep)}
            shown = farm.command("phone", "show", "NATIVE0001").stdout
        assert board.limits() == before
    assert "yes  energy of the processor alone" in shown
    assert "no   no GPU clock was found" in shown
    assert runs["low"].metrics["pinned_clock_share"].value > 0.98
    energy = {freq: run.metrics["energy_j"] for freq, run in runs.items()}
    assert {metric.grade for metric in energy.values()} == {"rapl"}
    assert runs["low"].metrics["idle_power_w"].value == pytest.approx(3, rel=0.2)


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the native runner is for x86_64")
def test_a_native_phone_trains_on_opencl(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_pocl()
    monkeypatch.setenv("FARM_OPENCL", "pocl")
    with start_farm_on_one_host(lab, NATIVE, 1.0) as farm:
        file = tmp_path / "gpu.yaml"
        file.write_text(GPU_SWEEP)
        sweep = json.loads(farm.command("sweep", "submit", file, "--json").stdout)["sweep"]
        watch = farm.command("watch", sweep, "--exit-status")
        assert watch.returncode == 0, watch.stdout
        (run,) = measured_runs(farm.db, sweep)
    assert run.case.backend == "opencl"
    assert run.verdict.validity is not Validity.VOID, run.verdict.reasons
    figures = {name: metric.value for name, metric in run.metrics.items()}
    assert figures["loss_last"] < figures["loss_first"]
    assert all(figures[f"{phase}_ms"] > 0 for phase in ("build", "copy", "queue", "compute"))
    assert 0 < figures["copy_share"] < 0.5
