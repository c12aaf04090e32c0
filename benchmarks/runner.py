"""What the runner costs besides its work: its start, and the sampling of fifteen nodes at 100 Hz.

.venv/bin/python -m benchmarks.runner [--rounds 20] [--seconds 5]

Start-up is the wall time of `runner info` and of a run of one smallest step, less that step; beside
it stands /bin/true, which does nothing. The sampler's cost is its own account: processor time by
the time it sampled, and how late its readings were.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.peers.contest import load, our_runner, plan_of, wait_for_quiet
from workloads.sgemm import Product

NODES = (
    *("/proc/stat\tcores", "/proc/meminfo\twhole", "/proc/loadavg", "/proc/uptime"),
    *("/proc/vmstat", "/proc/net/dev", "/proc/self/stat", "/proc/self/status", "/proc/version"),
    *("/proc/interrupts", "/proc/softirqs", "/proc/diskstats", "/proc/buddyinfo"),
    *("/proc/sys/kernel/random/boot_id", "/proc/sys/kernel/random/entropy_avail"),
)
PERIOD_MS = 10


def wall_ms(words: list[str]) -> float:
    """How long a command takes, from outside."""
    began = time.perf_counter_ns()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter_ns() - began) / 1e6


def start_up(runner: Path, rounds: int, folder: Path) -> dict[str, list[float]]:
    """Take turns, so that all see the same machine."""
    plan = folder / "plan"
    plan.write_bytes(plan_of(Product(8, 8, 8), threads=1))
    run = [str(runner), "run", str(plan), str(folder), "--warmup", "0", "--steps", "1"]
    commands = {"/bin/true": ["/bin/true"], "runner info": [str(runner), "info"], "a run": run}
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, words in commands.items():
            taken[name].append(wall_ms(words))
    return taken


def sampling(runner: Path, seconds: float, folder: Path) -> dict[str, int]:
    """Sample for a while; answer the runner's own account."""
    (folder / "nodes").write_text("".join(f"{node}\n" for node in NODES))
    words = [str(runner), "sample", str(folder), "--period-ms", str(PERIOD_MS)]
    words += ["--seconds", f"{seconds:g}"]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    account: dict[str, int] = json.loads(said.strip().splitlines()[-1])
    return account


def main() -> None:
    """Measure both, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--patience", type=float, default=20.0, help="seconds to wait for quiet")
    parser.add_argument("--runner", type=Path, help="another build of the runner")
    asked = parser.parse_args()
    runner = our_runner(asked.runner)
    busy = wait_for_quiet(asked.patience)
    print(f"load {load()}, {busy:.0%} of the processors busy")
    with tempfile.TemporaryDirectory(prefix="farm-bench-") as scratch:
        for name, times in start_up(runner, asked.rounds, Path(scratch)).items():
            print(f"{name:<12} {min(times):6.2f} ms least, {statistics.median(times):6.2f} median")
        account = sampling(runner, asked.seconds, Path(scratch))
    share = account["cpu_ns"] / (asked.seconds * 1e9)
    late = " ".join(
        f"{name} {account[f'late_{name}_ns'] / 1e3:.0f} us" for name in ("p50", "p99", "max")
    )
    count, hertz = account["readings"], 1000 // PERIOD_MS
    print(f"{len(NODES)} nodes at {hertz} Hz: {count} readings, {share:.2%} of a core, late {late}")


if __name__ == "__main__":
    main()
