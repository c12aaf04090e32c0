"""What sampling costs: 15 nodes at 100 Hz by the runner, its share of a core and its lateness.

.venv/bin/python -m benchmarks.sampler [--rounds 5] [--seconds 5] [--period-ms 10]
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import tempfile
from pathlib import Path

from kernels.manifest import runner_for

# What a phone has, as far as this computer has it: files of the kernel that change while one reads.
NODES = (
    "/proc/stat\tcores",
    "/proc/meminfo\twhole",
    "/proc/uptime",
    "/proc/loadavg",
    "/proc/self/statm",
    "/proc/self/schedstat",
    "/proc/sys/kernel/random/entropy_avail",
    "/proc/sys/vm/swappiness",
    "/proc/sys/fs/file-nr",
    "/sys/devices/system/cpu/online",
    "/sys/devices/system/cpu/possible",
    "/sys/devices/system/node/online",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/kernel/uevent_seqnum",
    "/sys/devices/system/clocksource/clocksource0/current_clocksource",
)


def sample(runner: Path, folder: Path, seconds: float, period_ms: float) -> dict[str, int]:
    """Sample for so long, and answer the cost that the sampler itself reports."""
    words = ["--seconds", f"{seconds}", "--period-ms", f"{period_ms}"]
    command = [runner, "sample", folder, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    cost: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return cost


def main() -> None:
    """Sample in rounds, and print the best and the median of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--period-ms", type=float, default=10)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="farm-") as name:
        folder = Path(name)
        runner = folder / "runner"
        runner.write_bytes(runner_for(platform.machine()).content)
        runner.chmod(0o755)
        (folder / "nodes").write_text("".join(f"{node}\n" for node in NODES))
        rounds = range(asked.rounds)
        costs = [sample(runner, folder, asked.seconds, asked.period_ms) for _ in rounds]
    shares = sorted(cost["cpu_ns"] / asked.seconds / 1e7 for cost in costs)
    print(f"{len(NODES)} nodes, every {asked.period_ms:g} ms, {asked.rounds} x {asked.seconds:g} s")
    print(f"load of this computer {os.getloadavg()[0]:.1f}       best   median")
    print(f"share of one core, %          {shares[0]:6.2f}   {statistics.median(shares):6.2f}")
    for share in ("p50", "p99", "max"):
        late = sorted(cost[f"late_{share}_ns"] / 1e3 for cost in costs)
        print(f"late {share}, us                 {late[0]:6.0f}   {statistics.median(late):6.0f}")


if __name__ == "__main__":
    main()
