"""One sweep through the whole farm, by the command line: submitted, watched, shown, exported."""

import csv
import io
import json
from pathlib import Path

import pytest

from orchestrator.store.results import measured_runs, telemetry_blob
from tests.conftest import new_database
from tests.farm.conftest import ROOT, Farm, start_farm
from workloads.lab.settings import Lab

SWEEP = """\
farm: 1
name: complete
workload: mlp-4
phones: all
matrix:
  batch_size: [32, 128]
conditions:
  cores: big2
  freq: mid
repeat: 2
"""


def test_a_sweep_is_submitted_run_shown_and_exported(farm: Farm, tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(SWEEP)
    before = {serial: len(farm.jobs(serial)) for serial in farm.idle_phones()}
    submission = json.loads(farm.command("sweep", "submit", file, "--json").stdout)
    assert (submission["new_trials"], submission["new_runs"]) == (12, 24)

    watch = farm.command("watch", submission["sweep"], "--exit-status")
    assert (watch.returncode, watch.stderr) == (0, "")
    assert watch.stdout.strip().endswith("done=24 failed=0 left=0 total=24")

    runs = measured_runs(farm.db, submission["sweep"])
    assert len({(run.trial, run.repeat) for run in runs}) == len(runs) == 24
    assert {run.verdict.validity.value for run in runs} == {"valid"}
    assert {metric.provenance.source.value for run in runs for metric in run.metrics.values()} == {
        "simulated"
    }
    for serial, jobs in before.items():
        assert len(farm.jobs(serial)) - jobs == 4, "a phone repeated a job or missed one"

    _check_blocks(runs)
    _check_commands(farm, submission["sweep"])
    _check_export(farm, submission["sweep"])
    for run in runs:
        assert run.telemetry is not None
        assert telemetry_blob(farm.db, run.telemetry) is not None

    second = json.loads(farm.command("sweep", "submit", file, "--json").stdout)
    assert (second["new_trials"], second["new_runs"]) == (0, 0), "runs were queued twice"


def _check_blocks(runs: list) -> None:  # type: ignore[type-arg]
    for phone in {run.phone for run in runs}:
        for block in (0, 1):
            trials = [run.trial for run in runs if run.phone == phone and run.block == block]
            assert len(set(trials)) == len(trials) == 2


def _check_commands(farm: Farm, sweep: str) -> None:
    status = json.loads(farm.command("status", "--json").stdout)
    assert set(status["hosts"]) == {"host-a", "host-b"}
    assert status["phones"] == {"idle": 6}
    phones = json.loads(farm.command("phone", "list", "--json").stdout)
    assert len(phones) == 6
    assert {phone["facts"]["control"] for phone in phones} == {"controlled"}
    shown = farm.command("sweep", "show", sweep[:8]).stdout
    assert "24 done" in shown
    assert "simulated" in shown
    assert sweep in farm.command("sweep", "list").stdout


def _check_export(farm: Farm, sweep: str) -> None:
    exported = farm.command("export", sweep, "--format", "csv", "-o", "-").stdout
    rows = list(csv.DictReader(io.StringIO(exported, newline="")))
    steps = [row for row in rows if row["metric"] == "step_ms"]
    assert len(steps) == 24
    assert all(float(row["value"]) > 0 for row in steps)
    assert {row["source"] for row in rows} == {"simulated"}
    path = farm.command("export", sweep, "-o", farm.lab.root / "figures.csv").stdout.strip()
    assert path.endswith("figures.csv")
    path = farm.command("export", sweep, "-o", farm.lab.root).stdout.strip()
    assert path.endswith(".simulated.csv")
    exported = farm.command("export", sweep, "--table", "ops", "-o", "-").stdout
    ops = list(csv.DictReader(io.StringIO(exported, newline="")))
    one_run = [op for op in ops if (op["trial"], op["repeat"]) == (ops[0]["trial"], "0")]
    assert one_run[0]["operation"] == "fc1.forward"
    assert sum(float(op["share"]) for op in one_run) == pytest.approx(1, abs=1e-4)
    assert all(float(op["time_ms"]) > 0 and float(op["util_pct"]) > 50 for op in ops)
    assert all(":" in op["clock_mhz"] for op in ops)


@pytest.mark.slow
def test_a_lab_with_an_external_broker_and_postgresql(
    lab: Lab, broker_url: str, postgres: str, tmp_path: Path
) -> None:
    store = new_database(postgres, tmp_path.name)
    elsewhere = Lab.read(tmp_path / "elsewhere", {})
    with start_farm(
        elsewhere, f'[broker]\nurl = "{broker_url}"\n[store]\nurl = "{store}"\n'
    ) as farm:
        assert "broker" not in farm.processes
        result = farm.command("sweep", "submit", ROOT / "examples" / "smoke.yaml", "--json")
        sweep = json.loads(result.stdout)["sweep"]
        assert farm.command("watch", sweep, "--exit-status").returncode == 0
        assert len(measured_runs(farm.db, sweep)) == 6
