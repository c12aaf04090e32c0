"""What the runner costs besides its work: its start, and the sampling of fifteen nodes at 100 Hz.

.venv/bin/python -m benchmarks.runner [--rounds 20] [--seconds 5]

Start-up is the wall time of `runner info` and of a run of one smallest step, less that step; beside
it stands /bin/true, which does nothing. The sampler's cost is its own account: processor time by
the time it sampled, and how late its readings were. Beside it stand what nobody can avoid: the same
wake-ups without a node, a bare sleep until the same moments at an ordinary rank, and the same reads
back to back without a sleep.
"""

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.peers.contest import load, our_runner, plan_of, wait_for_quiet
from workloads.sgemm import Product

# What a phone has, as far as this computer has it: small files of the kernel, two larger ones.
NODES = (
    *("/proc/stat\tcores", "/proc/meminfo\twhole", "/proc/uptime", "/proc/loadavg"),
    *("/proc/self/statm", "/proc/self/schedstat", "/proc/sys/kernel/random/entropy_avail"),
    *("/proc/sys/vm/swappiness", "/proc/sys/fs/file-nr", "/sys/devices/system/cpu/online"),
    *("/sys/devices/system/cpu/possible", "/sys/devices/system/node/online"),
    *("/sys/kernel/mm/transparent_hugepage/enabled", "/sys/kernel/uevent_seqnum"),
    "/sys/devices/system/clocksource/clocksource0/current_clocksource",
)
PERIOD_MS = 10
SAMPLINGS = 5
TIMER_ABSTIME = 1  # of time.h


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


def sampling(
    runner: Path, seconds: float, folder: Path, nodes: tuple[str, ...] = NODES
) -> dict[str, int]:
    """Sample for a while; answer the runner's own account."""
    (folder / "nodes").write_text("".join(f"{node}\n" for node in nodes))
    words = [str(runner), "sample", str(folder), "--period-ms", str(PERIOD_MS)]
    words += ["--seconds", f"{seconds:g}"]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    account: dict[str, int] = json.loads(said.strip().splitlines()[-1])
    return account


class Moment(ctypes.Structure):
    """struct timespec."""

    _fields_ = (("s", ctypes.c_long), ("ns", ctypes.c_long))


def bare_sleeps(seconds: float) -> dict[str, int]:
    """Sleep until the same moments and do nothing; answer as the sampler does."""
    libc = ctypes.CDLL(None)
    late = []
    before, due = time.thread_time_ns(), time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    for _ in range(round(seconds * 1000 / PERIOD_MS)):
        due += PERIOD_MS * 1_000_000
        moment = Moment(due // 10**9, due % 10**9)
        libc.clock_nanosleep(time.CLOCK_BOOTTIME, TIMER_ABSTIME, ctypes.byref(moment), None)
        late.append(time.clock_gettime_ns(time.CLOCK_BOOTTIME) - due)
    spent = time.thread_time_ns() - before
    late.sort()
    at = {"p50": len(late) // 2, "p99": len(late) * 99 // 100, "max": len(late) - 1}
    return {"cpu_ns": spent, **{f"late_{name}_ns": late[place] for name, place in at.items()}}


def bare_reads(rounds: int) -> float:
    """Microseconds that one reading of every node takes, without a sleep and without a line."""
    files = [os.open(node.partition("\t")[0], os.O_RDONLY) for node in NODES]
    began = time.thread_time_ns()
    for _ in range(rounds):
        for file in files:
            os.pread(file, 4096, 0)
    spent = time.thread_time_ns() - began
    for file in files:
        os.close(file)
    return spent / rounds / 1e3


def show(title: str, accounts: list[dict[str, int]], seconds: float) -> None:
    """Print what some accounts say: the least and the median of the repetitions."""
    shares = [account["cpu_ns"] / (seconds * 1e9) for account in accounts]
    print(f"\n{title}, {len(accounts)} times {seconds:g} s at {1000 // PERIOD_MS} Hz")
    print(f"of one core  {min(shares):6.2%} least, {statistics.median(shares):6.2%} median")
    for name in ("p50", "p99", "max"):
        late = [account[f"late_{name}_ns"] / 1e3 for account in accounts]
        print(f"late {name:<7} {min(late):6.0f} us least, {statistics.median(late):6.0f} median")


def main() -> None:
    """Measure all, and print."""
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
        titles = f"{len(NODES)} nodes", "no node", "a bare sleep"
        accounts: dict[str, list[dict[str, int]]] = {title: [] for title in titles}
        for _ in range(SAMPLINGS):
            accounts[titles[0]].append(sampling(runner, asked.seconds, Path(scratch)))
            accounts[titles[1]].append(sampling(runner, asked.seconds, Path(scratch), ()))
            accounts[titles[2]].append(bare_sleeps(asked.seconds))
    for title in titles:
        show(title, accounts[title], asked.seconds)
    reads = [bare_reads(500) for _ in range(SAMPLINGS)]
    print(f"\nthe reads of {len(NODES)} nodes alone, back to back: {min(reads):.0f} us a round")


if __name__ == "__main__":
    main()
