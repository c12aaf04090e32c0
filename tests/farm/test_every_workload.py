"""Every workload through the whole farm: really trained on this host, and simulated.

What is meant to fail has to fail as it is meant to: with a reason, as a finding, and only once.
"""

import json
import platform
from pathlib import Path

import pytest

from orchestrator.lab.virtual import NATIVE
from orchestrator.nouns import MeasuredRun, RunOutcome, RunState
from orchestrator.plan.sweep import read_sweep
from orchestrator.store.queries import measured_runs, run_outcomes
from tests.farm.conftest import ROOT, SPEED, Farm, a_farm_of, run_farm
from workloads.catalogue import CATALOGUE, work_of
from workloads.fit import Fit
from workloads.lab import Lab
from workloads.measure import Standing

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
    assert set(CATALOGUE) == {case.workload for case in read_sweep(EVERY.read_text()).cases}


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="no runner for such a host")
def test_every_workload_really_runs_on_a_native_phone(lab: Lab, tmp_path: Path) -> None:
    larger = tmp_path / "too_large.yaml"
    larger.write_text(TOO_LARGE)
    with a_farm_of(lab, NATIVE, 1.0) as farm:
        outcomes, runs = swept(farm, EVERY)
        refused, none = swept(farm, larger)
    assert set(CATALOGUE) == {outcome.case.workload for outcome in outcomes}
    for outcome in outcomes:
        what = f"{outcome.case.label}: {outcome.state}, {outcome.verdict}, {outcome.why}"
        name = outcome.case.workload
        if name in NEVER_LEARN:
            assert RunState.FAILED is outcome.state, what
            assert outcome.verdict in {None, Standing.VOID}, what  # None: the runner gave up itself
            assert NEVER_LEARN[name] in outcome.why
        elif outcome.fit is Fit.TOO_LARGE:  # this host has less memory than others
            assert name.removesuffix("-inference") in INFEASIBLE, what
        else:
            # Whatever else this host does beside the test makes a run suspect.
            assert RunState.DONE is outcome.state, what
            assert Standing.VOID is not outcome.verdict, what
            assert Fit.FITS is outcome.fit, what
    for run in runs:
        assert {"host"} >= sources(run)
        if work_of(run.case).training and run.case.workload not in NEVER_LEARN:
            assert run.metrics["loss_last"].value < run.metrics["loss_first"].value, run.case.label
    assert not none
    assert INFEASIBLE == {outcome.case.workload for outcome in refused}
    for outcome in refused:
        assert (RunState.FAILED, Fit.TOO_LARGE) == (outcome.state, outcome.fit)
        assert "predicted not to fit, and not tried" in outcome.why


@pytest.mark.slow
def test_every_workload_runs_on_a_simulated_phone(lab: Lab) -> None:
    with a_farm_of(lab, ("meizu-16t",), SPEED) as farm:
        outcomes, runs = swept(farm, EVERY)
    fits = {outcome.case.workload: outcome.fit for outcome in outcomes}
    assert set(CATALOGUE) == fits.keys()
    # Of the phone's 6 GB, about half is free.
    assert {"seq2seq"} == {name for name, fit in fits.items() if fit is not Fit.FITS}
    assert Fit.TOO_LARGE is fits["seq2seq"]
    for outcome in outcomes:
        if outcome.case.workload != "seq2seq":
            assert (RunState.DONE, Standing.VALID) == (outcome.state, outcome.verdict), outcome.why
    assert all({"simulated"} >= sources(run) for run in runs)


def swept(farm: Farm, file: Path) -> tuple[list[RunOutcome], list[MeasuredRun]]:
    """Carry a sweep out; what became of every run, and what was measured, void or not."""
    sweep = json.loads(farm.command("sweep", "submit", file, "--json").stdout)["sweep"]
    watched = run_farm("watch", sweep, "--lab", farm.lab.root, timeout=PATIENCE_S)
    assert 0 == watched.returncode, watched.stdout + watched.stderr
    return run_outcomes(farm.db, sweep), measured_runs(farm.db, sweep, void=True)


def sources(run: MeasuredRun) -> set[str]:
    """Where the figures of a run come from; nothing at all has none."""
    return {metric.provenance.source.value for metric in run.metrics.values()}
