"""Parse an external program's output in a subprocess, so that a runaway regex can be killed.

Python's regex engine backtracks without limit and cannot be interrupted; a process can be killed.
"""

import json
import subprocess
import sys
from dataclasses import asdict

from workloads.external_program import Manifest, Values
from workloads.program_output import ProgramFigures, StepGroup, parse_program_output
from workloads.protocol.faults import BadOutput, FarmTrouble


def read_in_subprocess(
    manifest: Manifest, values: Values, out: str, err: str, timeout_s: float
) -> ProgramFigures:
    """Do what parse_program_output does, in a subprocess with a time limit."""
    request = {"manifest": manifest.model_dump(mode="json"), "values": dict(values)}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "agent.launch.parse_in_subprocess"],
            input=json.dumps(request | {"out": out, "err": err}),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BadOutput(
            f"the regex of {manifest.name} did not finish within {timeout_s:g} s; "
            "make it more specific"
        ) from None
    if done.returncode != 0:
        raise FarmTrouble("the process that parses a program's output failed")
    response = json.loads(done.stdout)
    if "error" in response:
        raise BadOutput(response["error"])
    steps = tuple(StepGroup(**group) for group in response["steps"])
    return ProgramFigures(steps, tuple(response["losses"]), response["peak_rss_kb"])


def main() -> None:
    """Read a request on stdin, and write the response to stdout."""
    request = json.load(sys.stdin)
    manifest = Manifest.model_validate(request["manifest"])
    try:
        figures = parse_program_output(manifest, request["values"], request["out"], request["err"])
        response = asdict(figures)
    except BadOutput as error:
        response = {"error": str(error)}
    json.dump(response, sys.stdout)


if __name__ == "__main__":
    main()
