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


def questions(trials: Sequence[Trial], seed: int) -> list[dict[str, Any]]:
    """Runs to ask about."""
    known = [trial for trial in trials if trial.case.manifest is None]
    known = [trial for trial in known if workload_of(trial.case).on_phone]
    return [_run(trial) for trial in random.Random(seed).sample(known, min(len(known), ASKED_MAX))]


def answer(pairs: Sequence[tuple[float, float]]) -> Expected | None:
    """What the phone's trials take, by what the twin said."""
    return Expected(Basis.TWIN, tuple(pairs)) if pairs else None


def _run(trial: Trial) -> dict[str, Any]:
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
