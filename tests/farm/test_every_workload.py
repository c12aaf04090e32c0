"""Every workload through the whole farm: trained on this host, and simulated.

Workloads that are expected to fail must fail once, with the expected reason.
"""

import json
import platform
from pathlib import Path

import pytest

from orchestrator.analysis.measurements import MeasuredRun, RunOutcome
from orchestrator.planning.states import RunState
from orchestrator.store.results import measured_runs, run_outcomes
from orchestrator.supervisor.virtual_phones import NATIVE
from orchestrator.sweepfile.sweep_file import read_sweep
from tests.farm.conftest import ROOT, SPEED, Farm, run_farm, start_farm_with
from workloads.catalogue import CATALOGUE, cost_of
from workloads.lab.settings import Lab
from workloads.protocol.memory_outcome import MemoryOutcome
from workloads.protocol.verdict import ReasonCode, Validity
from workloads.workload_table import OWN

EVERY = ROOT / "examples" / "every.yaml"
INFEASIBLE = {"vgg19", "resnet101", "resnet152", "bert", "densenet100", "seq2seq"}
# These do not learn as the study coded them; the first may already stop the runner.
NEVER_LEARN = {
    "emdl-squeezenet": ReasonCode.LOSS_NOT_FINITE,
    "emdl-googlenet": ReasonCode.TENSORS_UNCHANGED,
    "emdl-mobilenetv2": ReasonCode.TENSORS_UNCHANGED,
}
# Too large for the memory of any host: predicted, and not tried.
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
    shipped = {name for name, workload in CATALOGUE.items() if workload.study != OWN}
    assert {case.workload for case in read_sweep(EVERY.read_text()).cases} == shipped


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the native runner is for x86_64")
def test_every_workload_runs_on_a_native_phone(lab: Lab, tmp_path: Path) -> None:
    larger = tmp_path / "too_large.yaml"
    larger.write_text(TOO_LARGE)
    with start_farm_with(lab, NATIVE, 1.0) as farm:
        outcomes, runs = run_sweep(farm, EVERY)
        refused, refused_runs = run_sweep(farm, larger)
    assert {outcome.case.workload for outcome in outcomes} == set(CATALOGUE)
    for outcome in outcomes:
        text = f"{outcome.case.label}: {outcome.state}, {outcome.validity}, {outcome.note}"
        name = outcome.case.workload
        if name in NEVER_LEARN:
            assert outcome.state is RunState.FAILED, text
            if outcome.fault is not None:
                assert (name, outcome.validity) == ("emdl-squeezenet", None), text
                assert "is not finite" in outcome.fault.text
            else:
                (run,) = [run for run in runs if run.trial == outcome.trial]
                assert run.verdict.validity is Validity.VOID, text
                assert NEVER_LEARN[name] in {reason.code for reason in run.verdict.reasons}, text
        elif outcome.memory_outcome is MemoryOutcome.TOO_LARGE:  # for this host
            assert name.removesuffix("-inference") in INFEASIBLE, text
        else:
            # Other work on this host may make a run suspect.
            assert outcome.state is RunState.DONE, text
            assert outcome.validity is not Validity.VOID, text
            assert outcome.memory_outcome is MemoryOutcome.FITS, text
    for run in runs:
        assert sources(run) <= {"host"}
        if cost_of(run.case).training and run.case.workload not in NEVER_LEARN:
            assert run.metrics["loss_last"].value < run.metrics["loss_first"].value, run.case.label
    assert not refused_runs
    assert {outcome.case.workload for outcome in refused} == INFEASIBLE
    for outcome in refused:
        assert (outcome.state, outcome.memory_outcome) == (RunState.FAILED, MemoryOutcome.TOO_LARGE)
        assert "predicted not to fit" in outcome.note


@pytest.mark.slow
def test_every_workload_runs_on_a_simulated_phone(lab: Lab) -> None:
    with start_farm_with(lab, ("meizu-16t",), SPEED) as farm:
        outcomes, runs = run_sweep(farm, EVERY)
    fits = {outcome.case.workload: outcome.memory_outcome for outcome in outcomes}
    assert fits.keys() == set(CATALOGUE)
    # Of the phone's 6 GB, about half is free.
    assert {name for name, fit in fits.items() if fit is not MemoryOutcome.FITS} == {"seq2seq"}
    assert fits["seq2seq"] is MemoryOutcome.TOO_LARGE
    for outcome in outcomes:
        if outcome.case.workload != "seq2seq":
            assert (outcome.state, outcome.validity) == (RunState.DONE, Validity.VALID), (
                outcome.note
            )
    assert all(sources(run) <= {"simulated"} for run in runs)


def run_sweep(farm: Farm, file: Path) -> tuple[list[RunOutcome], list[MeasuredRun]]:
    """Run a sweep; return the outcome of every run, and the measured runs with the void ones."""
    sweep = json.loads(farm.command("sweep", "submit", file, "--json").stdout)["sweep"]
    watch = run_farm("watch", sweep, "--lab", farm.lab.root)
    assert watch.returncode == 0, watch.stdout + watch.stderr
    return run_outcomes(farm.db, sweep), measured_runs(farm.db, sweep, include_void=True)


def sources(run: MeasuredRun) -> set[str]:
    """Return the sources of the metrics of a run."""
    return {metric.provenance.source.value for metric in run.metrics.values()}
