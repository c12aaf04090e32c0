"""The twin of a simulated phone, asked through the command line: rooms do not import each other.

Some of a phone's trials are drawn and asked about; the others will take what these take.
"""

import json
import random
import subprocess
from collections.abc import Sequence
from typing import Any

from orchestrator.lab.children import service_command
from orchestrator.nouns import Trial
from orchestrator.plan.estimate import Basis, Expected
from workloads.catalogue import launch_of, workload_of
from workloads.measure import Source
from workloads.phone import PhoneFacts

ASKED_MAX = 12
WAIT_S = 60.0


def has_twin(facts: PhoneFacts) -> bool:
    """Whether a phone's times are simulated, so that its twin can tell them beforehand."""
    time = facts.provenance.time if facts.provenance else None
    return time is not None and time.source is Source.SIMULATED


def ask_twin(facts: PhoneFacts, trials: Sequence[Trial], seed: int) -> Expected | None:
    """What runs of a phone take by its twin; None when that cannot say."""
    known = [trial for trial in trials if trial.case.manifest is None]
    known = [trial for trial in known if workload_of(trial.case).on_phone]
    some = random.Random(seed).sample(known, min(len(known), ASKED_MAX))
    if not some:
        return None
    question = {"model": facts.model, "runs": [_run(trial) for trial in some]}
    command = [str(part) for part in service_command("virtual", "foresee")]
    try:
        made = subprocess.run(
            command,
            input=json.dumps(question),
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=True,
        )
        pairs = tuple((pair[0], pair[1]) for pair in json.loads(made.stdout) if pair)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None  # the plan then says that it rests on less
    return Expected(Basis.TWIN, pairs) if pairs else None


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
