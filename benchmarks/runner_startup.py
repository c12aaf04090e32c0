"""How fast the runner starts, beside a program that does nothing: `info`, and `run` up to hello.

.venv/bin/python -m benchmarks.runner_startup [--rounds 30]
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from kernels.manifest import runner_for
from workloads.catalogue import bind, lower


def milliseconds(command: list[str]) -> float:
    """Wall time of one call that has to succeed."""
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - began) * 1e3


def until_hello(runner: str, folder: Path) -> float:
    """From before the fork to the moment that hello names, and the same clock for both."""
    began = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    words = ["run", str(folder / "plan"), str(folder), "--warmup", "0", "--steps", "1"]
    subprocess.run([runner, *words], check=True)
    hello = json.loads((folder / "out.jsonl").read_text().splitlines()[0])
    return float(hello["t_ns"] - began) / 1e6


def main() -> None:
    """Take turns, and print the best and the median."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="farm-") as name:
        folder = Path(name)
        runner = folder / "runner"
        runner.write_bytes(runner_for(platform.machine()).content)
        runner.chmod(0o755)
        (folder / "plan").write_bytes(lower(bind("mlp-4", {}), 1))
        taken: dict[str, list[float]] = {"true": [], "runner info": [], "run, to hello": []}
        for _ in range(rounds):
            taken["true"].append(milliseconds(["true"]))
            taken["runner info"].append(milliseconds([str(runner), "info"]))
            taken["run, to hello"].append(until_hello(str(runner), folder))
    print(f"load of this computer {os.getloadavg()[0]:.1f}    best   median")
    for what, times in taken.items():
        print(f"{what:<16} ms          {min(times):6.2f}   {statistics.median(times):6.2f}")


if __name__ == "__main__":
    main()
