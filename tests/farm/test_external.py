"""A foreign program through every room: kept by digest, named by a sweep, compared like others."""

import json
from pathlib import Path

from orchestrator.store.results import measured_runs
from tests.farm.conftest import ROOT, Farm

EXAMPLE = ROOT / "examples" / "external"
SWEEP = f"""\
farm: 1
name: foreign
phones: ["meizu*"]
workload: external:{EXAMPLE / "llama-bench.yaml"}
conditions: {{cores: big2}}
repeat: 1
"""


def test_a_foreign_program_flows_through_every_room(farm: Farm, tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(SWEEP)
    kept = farm.command("workload", "keep", EXAMPLE / "bench.sh", EXAMPLE / "recorded.json")
    manifest = (EXAMPLE / "llama-bench.yaml").read_text()
    assert kept.returncode == 0
    assert all(line in manifest for line in kept.stdout.splitlines())

    sent = json.loads(farm.command("sweep", "submit", file, "--json").stdout)
    watched = farm.command("watch", sent["sweep"], "--exit-status")
    assert watched.returncode == 0, farm.command("sweep", "show", sent["sweep"]).stdout
    runs = measured_runs(farm.db, sent["sweep"])
    assert sent["new_runs"] == len(runs) > 0
    assert {run.case.label for run in runs} == {"llama-bench-replayed tokens=32"}
    # It does nothing but sleep, so a CPU zone may stand still, and is doubted for that.
    assert not [run for run in runs if run.verdict.validity.value == "void"]
    assert {run.metrics["step_ms"].value for run in runs} == {499.5}
    shown = json.loads(farm.command("sweep", "show", sent["sweep"], "--json").stdout)
    assert {each["case"] for each in shown["figures"]} == {"llama-bench-replayed tokens=32"}


def test_keeping_what_is_not_there_is_one_sentence(farm: Farm) -> None:
    made = farm.command("workload", "keep", "nowhere")
    assert made.returncode == 2
    assert made.stderr == "farm: nowhere cannot be kept: No such file or directory\n"
