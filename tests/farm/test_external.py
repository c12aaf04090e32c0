"""An external program through the whole farm: added by digest, named by a sweep, measured."""

import json
from pathlib import Path

from orchestrator.store.results import measured_runs
from tests.farm.conftest import ROOT, Farm

EXAMPLE = ROOT / "examples" / "external"
SWEEP = f"""\
farm: 1
name: external
phones: ["meizu*"]
workload: external:{EXAMPLE / "llama-bench.yaml"}
conditions: {{cores: big2}}
repeat: 1
"""


def test_an_external_program_is_added_run_and_measured(farm: Farm, tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(SWEEP)
    added = farm.command("workload", "add", EXAMPLE / "bench.sh", EXAMPLE / "recorded.json")
    manifest = (EXAMPLE / "llama-bench.yaml").read_text()
    assert added.returncode == 0, added.stderr
    assert len(added.stdout.splitlines()) == 2
    assert all(line in manifest for line in added.stdout.splitlines())

    submission = json.loads(farm.command("sweep", "submit", file, "--json").stdout)
    watch = farm.command("watch", submission["sweep"], "--exit-status")
    assert watch.returncode == 0, farm.command("sweep", "show", submission["sweep"]).stdout
    runs = measured_runs(farm.db, submission["sweep"])
    assert submission["new_runs"] == len(runs) > 0
    assert {run.case.label for run in runs} == {"llama-bench-replayed tokens=32"}
    # The program only sleeps; a run is suspect if a CPU zone does not change during the run.
    assert not [run for run in runs if run.verdict.validity.value == "void"]
    assert {run.metrics["step_ms"].value for run in runs} == {499.5}
    shown = json.loads(farm.command("sweep", "show", submission["sweep"], "--json").stdout)
    assert {figure["case"] for figure in shown["figures"]} == {"llama-bench-replayed tokens=32"}


def test_adding_a_missing_file_is_refused(farm: Farm) -> None:
    result = farm.command("workload", "add", "nowhere")
    assert result.returncode == 2
    assert result.stderr == "farm: nowhere cannot be read: No such file or directory\n"
