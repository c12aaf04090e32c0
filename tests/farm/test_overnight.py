"""Which phones can fine-tune a model overnight: one sweep, one table, also after a kill."""

import json
import platform
from pathlib import Path

import pytest

from orchestrator.store.results import measured_runs
from orchestrator.supervisor.virtual_phones import NATIVE
from tests.farm.conftest import ROOT, start_farm_with
from tests.farm.farm_command import run_in_process
from workloads.lab.settings import Lab

PROFILES = ("redmi-note-9-pro", "meizu-16t", "huawei-honor-8")
KILL = '[[mischief]]\nkind = "low_memory"\nphones = ["VM16T*"]\nat = "run@50%"\n'
TRAINED = """\
farm: 1
name: trained
phones: all
workload: {use: decoder-1m, with: {batch_size: 4, text_length: 32}}
conditions:
  cores: all1
  freq: free
  start_temp_max_c: any
  steps_min: 150
  time_min: 0s
  token_budget: 12800
  target_loss: 2.0
repeat: 1
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the native runner is for x86_64")
def test_a_decoder_reaches_a_loss_and_a_token_budget(lab: Lab, tmp_path: Path) -> None:
    file = tmp_path / "trained.yaml"
    file.write_text(TRAINED)
    with start_farm_with(lab, NATIVE, 1.0) as farm:
        assert farm.command("sweep", "submit", file).returncode == 0
        assert farm.command("watch", "trained").returncode == 0
        summary = json.loads(farm.command("sweep", "list", "--json").stdout)[0]
        (run,) = measured_runs(farm.db, summary["id"], include_void=True)
        answer = farm.command("sweep", "feasible", "trained", "--json")
    figures = {name: metric.value for name, metric in run.metrics.items()}
    assert figures["tokens_trained"] >= 150 * 4 * 32
    assert figures["loss_last"] < figures["loss_at_budget"] < figures["loss_first"]
    assert 0 < figures["time_to_loss_s"] < 60
    assert {run.metrics[name].provenance.source for name in figures} == {"host"}
    (row,) = json.loads(answer.stdout)["forecasts"]
    if run.valid:  # other work on this computer makes a run suspect
        assert row["loss"] == figures["loss_at_budget"]
        assert row["feasibility"] == "yes"


@pytest.mark.slow
def test_one_sweep_says_which_phones_can_train_overnight(lab: Lab, tmp_path: Path) -> None:
    mischief = tmp_path / "kill.toml"
    mischief.write_text(KILL)
    with start_farm_with(lab, PROFILES, 200.0, mischief):
        where = ("--lab", str(lab.root))
        sweep = str(ROOT / "examples" / "overnight.yaml")
        assert run_in_process("sweep", "submit", sweep, *where)[0] == 0
        assert run_in_process("watch", "overnight", *where)[0] == 0
        code, out, err = run_in_process("sweep", "feasible", "overnight", "--json", *where)
    assert code == 0, err
    rows = json.loads(out)["forecasts"]
    assert {(row["phone"][:4], "lora" in row["case"]) for row in rows} == {
        (prefix, lora) for prefix in ("VRN9", "VM16", "VHON") for lora in (False, True)
    }
    for row in rows:
        assert 0 < row["memory_share"] < 1, row
        assert row["hours"] == pytest.approx(1e7 / row["tokens_per_s"] / 3600)
        assert row["energy_j"] > 0
        assert row["feasibility"] == ("yes" if row["hours"] <= 8 else "too_slow")
    killed = [row for row in rows if row["interruptions"]]
    assert {row["phone"][:5] for row in killed} == {"VM16T"}
    assert all(row["lost_s"] > 0 for row in killed)
