"""Predicts run times of simulated phones with their digital twin, in a subprocess of agent code.

Only a sample of a phone's trials is sent to the twin; the other trials of the same protocol are
assumed to take as long.
"""

import json
import math
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from statistics import fmean, pstdev
from typing import Any

from orchestrator.planning.estimate import CalculatedRun
from orchestrator.planning.trials import Trial
from workloads.catalogue import launch_for, workload_of
from workloads.protocol.condition import REST
from workloads.protocol.metrics import Source
from workloads.protocol.phone_facts import PhoneFacts

TWIN_TIMEOUT_S = 60.0
TRIALS_MAX = 12
TWIN_OPTIONS = ("kernel", "feed")  # that a twin knows

Pair = tuple[float, float]  # seconds of measuring and of cooling
LikelyPairs = tuple[Pair, ...]


def is_simulated(facts: PhoneFacts) -> bool:
    """Return whether a phone's times are simulated, so that its twin can predict them."""
    time = facts.provenance.time if facts.provenance else None
    return time is not None and time.source is Source.SIMULATED


def sample_trials(trials: Sequence[Trial], seed: int) -> list[Trial]:
    """Draw the trials to send to the twin, some of every protocol."""
    by_protocol: dict[str, list[Trial]] = {}
    for trial in trials:
        if trial.case.manifest is None and workload_of(trial.case).on_phone:
            by_protocol.setdefault(trial.condition.protocol, []).append(trial)
    rng = random.Random(seed)
    share = TRIALS_MAX // max(1, len(by_protocol))
    return [
        trial
        for _, group in sorted(by_protocol.items())
        for trial in rng.sample(group, min(len(group), share))
    ]


def twin_predictions(
    requested: Sequence[Trial], runs: Sequence[LikelyPairs | None]
) -> dict[str, CalculatedRun]:
    """Convert the twin's answers into predictions by protocol, with the spread of its answers."""
    by_protocol: dict[str, list[Pair]] = {}
    for trial, pairs in zip(requested, runs, strict=True):
        if pairs is not None:
            by_protocol.setdefault(trial.condition.protocol.value, []).extend(pairs)
    return {protocol: _calculated(pairs) for protocol, pairs in by_protocol.items()}


def _calculated(pairs: Sequence[Pair]) -> CalculatedRun:
    measuring_s, cooling_s = fmean(pair[0] for pair in pairs), fmean(pair[1] for pair in pairs)
    spread = pstdev(math.log(max(sum(pair), 0.001)) for pair in pairs)
    return CalculatedRun(measuring_s, cooling_s, spread)


def to_request(trial: Trial) -> dict[str, Any]:
    """Describe a run in the keys that a twin reads."""
    condition = trial.condition
    launch = launch_for(trial.case, condition.launch)
    by_rest = condition.start_temp_max_c == REST
    return {
        "workload": trial.case.workload,
        "parameters": trial.case.parameters,
        "cores": condition.cores,
        "freq": condition.freq,
        "warmup": launch.warmup,
        "steps": launch.steps,
        "seconds": launch.seconds,
        "max_seconds": launch.max_seconds,
        "start_c": condition.start_limit_c(None),
        "above_rest_k": condition.above_rest_k if by_rest else None,
        "wait_s": condition.cool_wait_max_s,
        "backend": trial.case.backend,
        **{name: trial.case.options[name] for name in TWIN_OPTIONS if name in trial.case.options},
    }


def estimate_with_twin(
    runs_of: Mapping[str, Sequence[dict[str, Any]]],
) -> dict[str, list[LikelyPairs | None]]:
    """Return the seconds of measuring and cooling per run, by model; None where unknown.

    The pairs of a run are equally likely; they differ as much as the error of its condition says.
    """
    requests = [{"model": model, "runs": list(runs)} for model, runs in runs_of.items()]
    if not requests:
        return {}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator", "virtual", "estimate-durations"],
            input=json.dumps(requests),
            capture_output=True,
            text=True,
            timeout=TWIN_TIMEOUT_S,
            check=True,
        )
        answers = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return {}  # the plan names the weaker basis of its estimate
    return {
        model: [tuple((s, run[1]) for s in run[0]) if run else None for run in runs]
        for model, runs in zip(runs_of, answers, strict=True)
    }
