"""Requests to a simulated phone's digital twin for run durations, and their conversion. Pure.

Only a sample of a phone's trials is sent to the twin; the other trials of the same protocol are
assumed to take as long.
"""

import random
from collections.abc import Sequence
from typing import Any

from orchestrator.planning.estimate import EstimateBasis, RunEstimate
from orchestrator.planning.trials import Trial
from workloads.catalogue import launch_for, workload_of
from workloads.protocol.metrics import Source
from workloads.protocol.phone_facts import PhoneFacts

TRIALS_MAX = 12
TWIN_OPTIONS = ("kernel", "feed")  # that a twin knows


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


def from_response(
    requested: Sequence[Trial], runs: Sequence[tuple[tuple[float, float], ...] | None]
) -> dict[str, RunEstimate]:
    """Convert the twin's answers, equally likely pairs per run, into estimates by protocol."""
    by_protocol: dict[str, list[tuple[float, float]]] = {}
    for trial, pairs in zip(requested, runs, strict=True):
        if pairs is not None:
            by_protocol.setdefault(trial.condition.protocol.value, []).extend(pairs)
    return {
        protocol: RunEstimate(EstimateBasis.TWIN, tuple(group))
        for protocol, group in by_protocol.items()
    }


def to_request(trial: Trial) -> dict[str, Any]:
    """Describe a run in the keys that a twin reads."""
    condition = trial.condition
    launch = launch_for(trial.case, condition.launch)
    return {
        "workload": trial.case.workload,
        "parameters": trial.case.parameters,
        "cores": condition.cores,
        "freq": condition.freq,
        "warmup": launch.warmup,
        "steps": launch.steps,
        "seconds": launch.seconds,
        "max_seconds": launch.max_seconds,
        "start_c": condition.start_temp_max_c,
        "wait_s": condition.cool_wait_max_s,
        "backend": trial.case.backend,
        **{name: trial.case.options[name] for name in TWIN_OPTIONS if name in trial.case.options},
    }
