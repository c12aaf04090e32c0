"""Real training through the whole farm, with this host as the phone."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.analysis.measurements import MeasuredRun
from orchestrator.analysis.op_telemetry import op_rows
from orchestrator.store.results import measured_runs, telemetry_blob
from orchestrator.supervisor.virtual_phones import NATIVE
from tests.busy_computer import assert_accepted, needs_two_cores, needs_x86
from tests.farm.conftest import ROOT, Farm, start_farm_with
from tests.kernels.pocl import need_pocl
from tests.linux_boards import laptop, live_board
from workloads.lab.settings import Lab
from workloads.protocol.telemetry import read_telemetry

CORES_SWEEP = """\
farm: 1
name: cores
workload: mlp-4
phones: all
matrix:
  backend: [opencl]
  cores: CORES
conditions:
  freq: free
  start_temp_max_c: any
  time_min: 1s
repeat: 1
"""
LONG_SWEEP = """\
farm: 1
name: endurance
workload: mlp-4
phones: all
matrix:
  cores: [all1, all2]
conditions:
  protocol: endurance
  freq: free
  start_temp_max_c: any
  time_min: 20s
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


@pytest.fixture(scope="module")
def native_farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    """A lab whose phone is this computer; its tests share what the canaries learned."""
    lab = Lab.read(tmp_path_factory.mktemp("native") / "lab", {})
    with pytest.MonkeyPatch.context() as patch:
        need_pocl()
        patch.setenv("FARM_OPENCL", "pocl")
        with start_farm_with(lab, NATIVE, 1.0) as farm:
            yield farm


def run_sweep(farm: Farm, file: Path) -> list[MeasuredRun]:
    """Submit a sweep, wait for its end, and return the last attempt of each run.

    All attempts have to be accepted; those that other work disturbed are repeated.
    """
    sweep = json.loads(farm.command("sweep", "submit", file, "--json").stdout)["sweep"]
    watch = farm.command("watch", sweep, "--exit-status")
    runs = measured_runs(farm.db, sweep, include_void=True)
    for run in runs:
        assert_accepted(run.verdict)
    assert watch.returncode == 0, watch.stdout
    attempts = sorted(runs, key=lambda run: run.attempt)
    return list({(run.trial, run.repeat): run for run in attempts}.values())


@needs_x86
def test_a_native_phone_trains(native_farm: Farm, tmp_path: Path) -> None:
    (phone,) = native_farm.phones()
    offered = phone.facts.provenance
    assert phone.facts.control in {"observed", "partial"}
    file = tmp_path / "native.yaml"
    file.write_text(SWEEP)
    runs = run_sweep(native_farm, file)
    blobs = [telemetry_blob(native_farm.db, run.telemetry or "") for run in runs]
    assert {run.case.workload for run in runs} == {"mlp-4", "lenet"}
    for run, blob in zip(runs, blobs, strict=True):
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
@needs_x86
def test_a_laptop_trains_with_pinned_clocks(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with live_board(laptop) as board:
        monkeypatch.setenv("FARM_NATIVE_SYSFS", str(board.sysfs))
        before = board.limits()
        with start_farm_with(lab, NATIVE, 1.0) as farm:
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


@needs_x86
@needs_two_cores
@pytest.mark.parametrize("repeats", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_the_first_sweep_of_the_readme_is_accepted(
    native_farm: Farm, tmp_path: Path, repeats: int
) -> None:
    shipped = (ROOT / "examples" / "first-run.yaml").read_text()
    file = tmp_path / "first-run.yaml"
    file.write_text(shipped.replace("repeat: 4", f"repeat: {repeats}"))
    runs = run_sweep(native_farm, file)
    assert [run.condition.cores for run in runs] == repeats * ["all2"]


@needs_x86
@needs_two_cores
@pytest.mark.parametrize("cores", ["[all2]", pytest.param("[all1, all2]", marks=pytest.mark.slow)])
def test_opencl_training_is_accepted(native_farm: Farm, tmp_path: Path, cores: str) -> None:
    file = tmp_path / "cores.yaml"
    file.write_text(CORES_SWEEP.replace("CORES", cores))
    runs = run_sweep(native_farm, file)
    assert len(runs) == len(cores.split(","))
    for run in runs:
        figures = {name: metric.value for name, metric in run.metrics.items()}
        assert figures["loss_last"] < figures["loss_first"]
        times = (figures[f"{phase}_ms"] for phase in ("build", "copy", "queue", "compute"))
        assert all(ms > 0 for ms in times)
        assert 0 < figures["copy_share"] < 0.5


@pytest.mark.slow
@needs_x86
@needs_two_cores
def test_a_computer_is_commissioned_and_endures_on_one_and_two_cores(
    lab: Lab, tmp_path: Path
) -> None:
    with start_farm_with(lab, NATIVE, 1.0) as farm:
        done = farm.command("phone", "commission", "NATIVE0001", "--quick")
        # Only other work on this computer may disturb it, and then the message gives the reason.
        disturbed = done.returncode == 5 and "a run was disturbed" in done.stderr
        assert disturbed or "is commissioned" in done.stdout, done.stderr
        assert "threads were pinned" not in done.stderr
        assert "other cores" not in done.stderr
        file = tmp_path / "endurance.yaml"
        file.write_text(LONG_SWEEP)
        runs = run_sweep(farm, file)
    assert {run.condition.cores for run in runs} == {"all1", "all2"}
