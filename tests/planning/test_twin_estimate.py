"""A simulated phone's twin says beforehand how long its runs take, and how long they cool."""

import subprocess
import sys

from orchestrator.lab.twin import ask_twins
from orchestrator.plan.estimate import Basis, Past, estimate
from orchestrator.plan.expand import expand
from orchestrator.plan.sweep import read_sweep
from orchestrator.plan.twin import answer, asked_about, has_twin, question
from tests.analysis.builders import FITTED, phone
from workloads.measure import Provenances

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


def test_a_long_run_is_foreseen_to_be_long_and_to_cool_for_long() -> None:
    sweep = read_sweep(TEXT)
    trials = expand(sweep, [MEIZU]).trials
    asked = asked_about(trials, sweep.seed)
    runs = [question(trial) for trial in asked]
    pairs = ask_twins({MEIZU.model: runs, "Xiaomi MI 9": runs, "Abacus 1": runs})
    assert {"Meizu 16T": 0, "Xiaomi MI 9": 0, "Abacus 1": 2} == {
        model: each.count(None) for model, each in pairs.items()
    }
    said = answer(asked, pairs["Meizu 16T"])
    (cold_s, soon_s), (hot_s, late_s) = said["cold"].pairs[0], said["endurance"].pairs[0]
    assert (8, 600) == (round(cold_s), round(hot_s))
    assert soon_s < 60 < late_s < 2400
    found = estimate(sweep, trials, MEIZU, Past([]), said)
    assert {Basis.TWIN: 2} == found.bases


def test_only_a_simulated_phone_has_a_twin_and_no_answer_is_no_guess() -> None:
    assert has_twin(MEIZU)
    assert not has_twin(phone("real"))
    trials = expand(read_sweep(TEXT), [MEIZU]).trials
    assert {} == answer(trials, [None, None])


def test_a_question_that_is_none_is_refused_in_a_sentence() -> None:
    command = [sys.executable, "-m", "orchestrator", "virtual", "foresee"]
    made = subprocess.run(command, input="[1]", capture_output=True, text=True, check=False)
    assert (2, False) == (made.returncode, "Traceback" in made.stderr)
