"""The twin of a simulated phone, asked through the command line: rooms do not import each other."""

import json
import subprocess
from collections.abc import Sequence
from typing import Any

from orchestrator.lab.children import service_command

WAIT_S = 60.0


def ask_twin(model: str, runs: Sequence[dict[str, Any]]) -> list[tuple[float, float]]:
    """Seconds of measuring and of cooling, of each run that the twin of a model can tell."""
    if not runs:
        return []
    try:
        made = subprocess.run(
            service_command("virtual", "foresee"),
            input=json.dumps({"model": model, "runs": list(runs)}),
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=True,
        )
        return [(pair[0], pair[1]) for pair in json.loads(made.stdout) if pair]
    except (OSError, ValueError, subprocess.SubprocessError):
        return []  # the plan then says that it rests on less
