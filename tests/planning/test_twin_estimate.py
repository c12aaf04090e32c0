"""A simulated phone's twin predicts run and cooldown times."""

import subprocess
import sys

from orchestrator.app.twin_estimate import (
    estimate_with_twin,
    is_simulated,
    sample_trials,
    to_request,
    twin_predictions,
)
from orchestrator.planning.estimate import TimingHistory, estimate_phone
from orchestrator.planning.expand import expand_sweep
from orchestrator.planning.run_durations import Durations, EstimateBasis
from orchestrator.sweepfile.sweep_file import read_sweep
from tests.analysis.builders import FITTED, phone
from workloads.protocol.metrics import Provenances

SIMULATED = Provenances(time=FITTED, clock=FITTED, heat=FITTED, energy=FITTED)
MEIZU = phone("m", model="Meizu 16T", provenance=SIMULATED)
TEXT = """\
farm: 1
name: heat
workload: mlp-4
phones: all
matrix: {protocol: [cold, endurance]}
conditions: {cores: all8, freq: high}
repeat: 1
"""


def test_a_long_run_is_predicted_to_be_long_and_to_cool_for_long() -> None:
    sweep = read_sweep(TEXT)
    trials = expand_sweep(sweep, [MEIZU]).trials
    requested = sample_trials(trials, sweep.seed)
    runs = [to_request(trial) for trial in requested]
    pairs = estimate_with_twin({MEIZU.model: runs, "Xiaomi MI 9": runs, "Abacus 1": runs})
    assert {model: each.count(None) for model, each in pairs.items()} == {
        "Meizu 16T": 0,
        "Xiaomi MI 9": 0,
        "Abacus 1": 2,
    }
    estimates = twin_predictions(requested, pairs["Meizu 16T"])
    cold, hot = estimates["cold"], estimates["endurance"]
    assert (round(cold.measuring_s), round(hot.measuring_s)) == (8, 600)
    assert cold.cooling_s < 60 < hot.cooling_s < 2400
    found = estimate_phone(sweep, trials, MEIZU, TimingHistory(Durations([]), {}), estimates)
    assert found.bases == {EstimateBasis.TWIN: 2}


def test_a_plan_is_as_uncertain_as_the_condition() -> None:
    """A run that ends after a number of steps is spread by the error of their time."""

    def spread(workload: str, cores: str) -> float:
        text = TEXT.replace("mlp-4", workload).replace("all8, freq: high", f"{cores}, freq: free")
        trials = expand_sweep(
            read_sweep(text.replace("[cold, endurance]", "[cold]")), [MEIZU]
        ).trials
        request = {**to_request(trials[0]), "seconds": 0.0, "steps": 1000}
        (run,) = estimate_with_twin({MEIZU.model: [request]})[MEIZU.model]
        assert run is not None
        times = [measuring_s for measuring_s, _ in run]
        return max(times) / min(times)

    assert spread("emdl-lenet", "big4") > 1.3  # an error of a tenth
    assert spread("emdl-lenet", "big1") > spread("emdl-lenet", "big4")  # another core set
    assert spread("mlp-4", "big4") == 1.0  # the farm's own engine: extrapolated


def test_only_a_simulated_phone_has_a_twin_and_an_empty_response_gives_no_estimate() -> None:
    assert is_simulated(MEIZU)
    assert not is_simulated(phone("real"))
    trials = expand_sweep(read_sweep(TEXT), [MEIZU]).trials
    assert twin_predictions(trials, [None, None]) == {}


def test_a_malformed_request_is_refused_without_a_traceback() -> None:
    command = [sys.executable, "-m", "orchestrator", "virtual", "estimate-durations"]
    result = subprocess.run(command, input="[1]", capture_output=True, text=True, check=False)
    assert (result.returncode, "Traceback" in result.stderr) == (2, False)
