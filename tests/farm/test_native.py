"""Real training through the whole farm: this host as a phone, from a sweep file to figures."""

import json
import platform
from pathlib import Path

import pytest

from orchestrator.store.results import measured_runs, telemetry_blob
from orchestrator.supervisor.virtual_phones import NATIVE
from tests.farm.conftest import a_farm_of
from tests.kernels.pocl import need_pocl
from workloads.lab_settings import Lab
from workloads.protocol.telemetry import op_rows, read_telemetry
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
SWEEP = """\
farm: 1
name: really
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


@pytest.mark.skipif(platform.machine() != "x86_64", reason="no runner for such a host")
def test_a_native_phone_really_trains(lab: Lab, tmp_path: Path) -> None:
    """The loss falls, every gate is passed, and every figure says that a host made it."""
    with a_farm_of(lab, NATIVE, 1.0) as farm:
        (phone,) = farm.phones()
        assert phone.facts.control == "observed"
        file = tmp_path / "really.yaml"
        file.write_text(SWEEP)
        sweep = json.loads(farm.command("sweep", "submit", file, "--json").stdout)["sweep"]
        watched = farm.command("watch", sweep, "--exit-status")
        assert watched.returncode == 0, watched.stdout
        runs = measured_runs(farm.db, sweep)
        blobs = [telemetry_blob(farm.db, run.telemetry or "") for run in runs]
    assert {run.case.workload for run in runs} == {"mlp-4", "lenet"}
    for run, blob in zip(runs, blobs, strict=True):
        # Whatever else this host does beside the test makes a run suspect; only the work is ours.
        assert run.verdict.validity is not Validity.VOID, run.verdict.reasons
        assert not run.verdict.deterministic
        assert {metric.provenance.source.value for metric in run.metrics.values()} == {"host"}
        figures = {name: metric.value for name, metric in run.metrics.items()}
        assert figures["loss_last"] < figures["loss_first"] / 2
        phases = [figures[f"{phase}_ms"] for phase in ("load", "forward", "backward", "update")]
        assert all(ms > 0 for ms in phases)
        assert figures["peak_rss_mb"] > figures["parameter_mb"] > 0
        assert not {"start_temp_c", "pinned_clock_share", "energy_j"} & figures.keys()
        assert blob is not None
        ops = op_rows(read_telemetry(blob))
        assert pytest.approx(sum(op.share for op in ops)) == 1
        assert all(op.energy_mj is None and not op.clock_mhz for op in ops)


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="no runner for such a host")
def test_a_native_phone_trains_on_opencl(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the word in a sweep to figures of the device's own clock, with nothing fallen back."""
    need_pocl()
    monkeypatch.setenv("FARM_OPENCL", "pocl")
    with a_farm_of(lab, NATIVE, 1.0) as farm:
        file = tmp_path / "gpu.yaml"
        file.write_text(GPU_SWEEP)
        sweep = json.loads(farm.command("sweep", "submit", file, "--json").stdout)["sweep"]
        watched = farm.command("watch", sweep, "--exit-status")
        assert watched.returncode == 0, watched.stdout
        (run,) = measured_runs(farm.db, sweep)
    assert run.case.backend == "opencl"
    assert run.verdict.validity is not Validity.VOID, run.verdict.reasons
    figures = {name: metric.value for name, metric in run.metrics.items()}
    assert figures["loss_last"] < figures["loss_first"]
    assert all(figures[f"{what}_ms"] > 0 for what in ("build", "copy", "queue", "compute"))
    assert 0 < figures["copy_share"] < 0.5
