"""Run times predicted by a virtual phone's model, in a subprocess: agent code is never imported."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

WAIT_S = 60.0


Pair = tuple[float, float]


def estimate_with_twin(
    runs_of: Mapping[str, Sequence[dict[str, Any]]],
) -> dict[str, list[Pair | None]]:
    """Seconds of measuring and cooling of runs by model; None for what a twin cannot tell."""
    question = [{"model": model, "runs": list(runs)} for model, runs in runs_of.items()]
    if not question:
        return {}
    try:
        made = subprocess.run(
            [sys.executable, "-m", "orchestrator", "virtual", "estimate-durations"],
            input=json.dumps(question),
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=True,
        )
        answers = json.loads(made.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return {}  # the plan then says that it rests on less
    return {
        model: [(pair[0], pair[1]) if pair else None for pair in pairs]
        for model, pairs in zip(runs_of, answers, strict=True)
    }
