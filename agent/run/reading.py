"""Reading a foreign program's numbers, as a process: a regex that runs away takes its time alone.

Python tries every way to match and cannot be interrupted while it does; a process can be ended.
"""

import json
import subprocess
import sys
from dataclasses import asdict

from workloads.external import Manifest, Values
from workloads.fault import BadOutput, FarmTrouble
from workloads.printed import Numbers, Steps, read_numbers

READING_S = 20.0


def read_apart(
    manifest: Manifest, values: Values, out: str, err: str, patience_s: float = READING_S
) -> Numbers:
    """As read_numbers does, in a process of its own."""
    asked = {"manifest": manifest.model_dump(mode="json"), "values": dict(values)}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "agent.run.reading"],
            input=json.dumps(asked | {"out": out, "err": err}),
            capture_output=True,
            text=True,
            timeout=patience_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        text = f"The regex of {manifest.name} found no end in {patience_s:g} s; make it say more."
        raise BadOutput(text) from None
    if done.returncode != 0:
        raise FarmTrouble("The process that reads a program's numbers died.")
    said = json.loads(done.stdout)
    if "refused" in said:
        raise BadOutput(said["refused"])
    steps = tuple(Steps(**each) for each in said["steps"])
    return Numbers(steps, tuple(said["losses"]), said["peak_rss_kb"])


def main() -> None:
    """Read what is asked on stdin, and answer on stdout."""
    asked = json.load(sys.stdin)
    manifest = Manifest.model_validate(asked["manifest"])
    try:
        answer = asdict(read_numbers(manifest, asked["values"], asked["out"], asked["err"]))
    except BadOutput as error:
        answer = {"refused": str(error)}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
