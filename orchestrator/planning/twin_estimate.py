"""What a simulated phone's twin is asked, and what its answer is worth. Pure.

Some of a phone's trials are drawn and asked about; the others will take what these take.
"""

import random
from collections.abc import Sequence
from typing import Any

from orchestrator.nouns import Trial
from orchestrator.plan.estimate import Basis, Expected
from workloads.catalogue import launch_of, workload_of
from workloads.measure import Source
from workloads.phone import PhoneFacts

ASKED_MAX = 12


def has_twin(facts: PhoneFacts) -> bool:
    """Whether a phone's times are simulated, so that its twin can tell them beforehand."""
    time = facts.provenance.time if facts.provenance else None
    return time is not None and time.source is Source.SIMULATED


def asked_about(trials: Sequence[Trial], seed: int) -> list[Trial]:
    """The trials that are drawn, some of every protocol."""
    known = [trial for trial in trials if trial.case.manifest is None]
    by_protocol: dict[str, list[Trial]] = {}
    for trial in known:
        if workload_of(trial.case).on_phone:
            by_protocol.setdefault(trial.condition.protocol, []).append(trial)
    source = random.Random(seed)
    share = ASKED_MAX // max(1, len(by_protocol))
    return [
        trial
        for _, group in sorted(by_protocol.items())
        for trial in source.sample(group, min(len(group), share))
    ]


def answer(
    asked: Sequence[Trial], pairs: Sequence[tuple[float, float] | None]
) -> dict[str, Expected]:
    """What the phone's trials take, by protocol, after what the twin said of some."""
    found: dict[str, list[tuple[float, float]]] = {}
    for trial, pair in zip(asked, pairs, strict=True):
        if pair is not None:
            found.setdefault(trial.condition.protocol.value, []).append(pair)
    return {protocol: Expected(Basis.TWIN, tuple(group)) for protocol, group in found.items()}


def question(trial: Trial) -> dict[str, Any]:
    """A run, in the words that a twin understands."""
    condition = trial.condition
    launch = launch_of(trial.case, condition.launch)
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
    }
