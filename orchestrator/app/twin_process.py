"""Predicts run times with a virtual phone's model, in a subprocess of agent code."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

TWIN_TIMEOUT_S = 60.0

Pair = tuple[float, float]
LikelyPairs = tuple[Pair, ...]


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
