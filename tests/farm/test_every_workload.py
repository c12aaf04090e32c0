"""Every workload through the whole farm: really trained on this host, and simulated.

What is meant to fail has to fail as it is meant to: with a reason, as a finding, and only once.
"""

import json
import platform
from pathlib import Path

import pytest

from orchestrator.analysis.measurements import MeasuredRun, RunOutcome
from orchestrator.decisions.states import RunState
from orchestrator.store.results import measured_runs, run_outcomes
from orchestrator.supervisor.virtual_phones import NATIVE
from orchestrator.sweepfile.sweep_file import read_sweep
from tests.farm.conftest import ROOT, SPEED, Farm, a_farm_of, run_farm
from workloads.catalogue import CATALOGUE, cost_of
from workloads.lab_settings import Lab
from workloads.protocol.memory_outcome import MemoryOutcome
from workloads.protocol.verdict import Validity

PATIENCE_S = 1800.0
EVERY = ROOT / "examples" / "every.yaml"
INFEASIBLE = {"vgg19", "resnet101", "resnet152", "bert", "densenet100", "seq2seq"}
# Void wherever it is really trained, and why.
NEVER_LEARN = {
    "emdl-squeezenet": "not finite",
    "emdl-googlenet": "did not",
    "emdl-mobilenetv2": "did not move",
}
# So large that no host will have the memory: predicted, and not tried.
TOO_LARGE = """\
farm: 1
name: too-large
phones: all
matrix:
  workload: [vgg19, resnet101, resnet152, bert, densenet100, seq2seq]
  batch_size: [512]
conditions:
  cores: all1
  freq: free
  start_temp_max_c: any
repeat: 1
"""


def test_the_example_has_every_workload() -> None:
    assert {case.workload for case in read_sweep(EVERY.read_text()).cases} == set(CATALOGUE)


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="no runner for such a host")
def test_every_workload_really_runs_on_a_native_phone(lab: Lab, tmp_path: Path) -> None:
    larger = tmp_path / "too_large.yaml"
    larger.write_text(TOO_LARGE)
    with a_farm_of(lab, NATIVE, 1.0) as farm:
        outcomes, runs = swept(farm, EVERY)
        refused, none = swept(farm, larger)
    assert {outcome.case.workload for outcome in outcomes} == set(CATALOGUE)
    for outcome in outcomes:
        what = f"{outcome.case.label}: {outcome.state}, {outcome.validity}, {outcome.note}"
        name = outcome.case.workload
        if name in NEVER_LEARN:
            assert RunState.FAILED is outcome.state, what
            assert outcome.validity in {None, Validity.VOID}, (
                what
            )  # None: the runner gave up itself
            assert NEVER_LEARN[name] in outcome.note
        elif (
            outcome.memory_outcome is MemoryOutcome.TOO_LARGE
        ):  # this host has less memory than others
            assert name.removesuffix("-inference") in INFEASIBLE, what
        else:
            # Whatever else this host does beside the test makes a run suspect.
            assert RunState.DONE is outcome.state, what
            assert Validity.VOID is not outcome.validity, what
            assert MemoryOutcome.FITS is outcome.memory_outcome, what
    for run in runs:
        assert {"host"} >= sources(run)
        if cost_of(run.case).training and run.case.workload not in NEVER_LEARN:
            assert run.metrics["loss_last"].value < run.metrics["loss_first"].value, run.case.label
    assert not none
    assert {outcome.case.workload for outcome in refused} == INFEASIBLE
    for outcome in refused:
        assert (outcome.state, outcome.memory_outcome) == (RunState.FAILED, MemoryOutcome.TOO_LARGE)
        assert "predicted not to fit, and not tried" in outcome.note


@pytest.mark.slow
def test_every_workload_runs_on_a_simulated_phone(lab: Lab) -> None:
    with a_farm_of(lab, ("meizu-16t",), SPEED) as farm:
        outcomes, runs = swept(farm, EVERY)
    fits = {outcome.case.workload: outcome.memory_outcome for outcome in outcomes}
    assert fits.keys() == set(CATALOGUE)
    # Of the phone's 6 GB, about half is free.
    assert {name for name, fit in fits.items() if fit is not MemoryOutcome.FITS} == {"seq2seq"}
    assert MemoryOutcome.TOO_LARGE is fits["seq2seq"]
    for outcome in outcomes:
        if outcome.case.workload != "seq2seq":
            assert (outcome.state, outcome.validity) == (RunState.DONE, Validity.VALID), (
                outcome.note
            )
    assert all({"simulated"} >= sources(run) for run in runs)


def swept(farm: Farm, file: Path) -> tuple[list[RunOutcome], list[MeasuredRun]]:
    """Carry a sweep out; what became of every run, and what was measured, void or not."""
    sweep = json.loads(farm.command("sweep", "submit", file, "--json").stdout)["sweep"]
    watched = run_farm("watch", sweep, "--lab", farm.lab.root, timeout=PATIENCE_S)
    assert watched.returncode == 0, watched.stdout + watched.stderr
    return run_outcomes(farm.db, sweep), measured_runs(farm.db, sweep, void=True)


def sources(run: MeasuredRun) -> set[str]:
    """Where the figures of a run come from; nothing at all has none."""
    return {metric.provenance.source.value for metric in run.metrics.values()}
