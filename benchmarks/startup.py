"""Time of short commands, compared with a Python that does nothing, in one run.

.venv/bin/python -m benchmarks.startup [--rounds 7]
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from orchestrator.supervisor.services import services
from workloads.lab.settings import Lab

ROOT = Path(__file__).resolve().parents[1]


def seconds(command: list[str]) -> float:
    """Return the wall time of one call that must succeed."""
    started = time.perf_counter()
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def main() -> None:
    """Time all commands in turns, and print medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="farm-") as folder:
        lab = Lab.read(Path(folder), {})
        farm = [sys.executable, "-m", "orchestrator"]
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "farm --help": [*farm, "--help"],
            "farm status": [*farm, "status", "--lab", folder],
            "farm sweep list": [*farm, "sweep", "list", "--lab", folder],
        }
        if (ROOT / ".venv" / "installed-farm").exists():
            commands["./farm --help"] = [str(ROOT / "farm"), "--help"]
        with services(lab):
            time.sleep(3)  # until the scheduler has published its status board
            durations: dict[str, list[float]] = {name: [] for name in commands}
            for _ in range(rounds):
                for name, command in commands.items():
                    durations[name].append(seconds(command))
    base = statistics.median(durations["python -c pass"])
    for name, times in durations.items():
        median = statistics.median(times)
        print(f"{name:<16} {median:.3f} s   {median / base:5.1f} x python -c pass")


if __name__ == "__main__":
    main()
