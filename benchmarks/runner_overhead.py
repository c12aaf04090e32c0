"""Measure the overhead of the runner: its start, and sampling 15 kernel nodes at 100 and 200 Hz.

.venv/bin/python -m benchmarks.runner_overhead [--rounds 20] [--seconds 5]

Start-up is the wall time of `runner info` and of a run of one minimal step, compared with
/bin/true, which does nothing. The overhead of the sampler is what its own record states: CPU time
divided by the sampled time, and how late its readings were. It is compared with costs that cannot
be avoided: the same wake-ups without a node, a plain sleep until the same times at normal
priority (both at 100 Hz), and the same reads back to back without a sleep. 200 Hz is the highest
rate that the runner allows.
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

from benchmarks.peers.engine_comparison import (
    find_runner,
    load_average,
    make_plan,
    wait_for_quiet,
)
from workloads.basic_steps import MatmulStep

# Like the nodes of a phone, as far as this computer has them: small kernel files, two larger ones.
NODES = (
    *("/proc/stat\tcores", "/proc/meminfo\tmemory", "/proc/uptime", "/proc/loadavg"),
    *("/proc/self/statm", "/proc/self/schedstat", "/proc/sys/kernel/random/entropy_avail"),
    *("/proc/sys/vm/swappiness", "/proc/sys/fs/file-nr", "/sys/devices/system/cpu/online"),
    *("/sys/devices/system/cpu/possible", "/sys/devices/system/node/online"),
    *("/sys/kernel/mm/transparent_hugepage/enabled", "/sys/kernel/uevent_seqnum"),
    "/sys/devices/system/clocksource/clocksource0/current_clocksource",
)
PERIOD_MS, PERIOD_MIN_MS = 10, 5
SAMPLINGS = 5
TIMER_ABSTIME = 1  # from time.h


def time_command(command: list[str]) -> float:
    """Return the wall time of a command in ms."""
    start = time.perf_counter_ns()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter_ns() - start) / 1e6


def time_startup(runner: Path, rounds: int, folder: Path) -> dict[str, list[float]]:
    """Return the times of each command in ms; commands take turns, to see the same machine."""
    plan = folder / "plan"
    plan.write_bytes(make_plan(MatmulStep(8, 8, 8), threads=1))
    run = [str(runner), "run", str(plan), str(folder), "--warmup", "0", "--steps", "1"]
    commands = {"/bin/true": ["/bin/true"], "runner info": [str(runner), "info"], "a run": run}
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            times[name].append(time_command(command))
    return times


def run_sampler(
    runner: Path,
    seconds: float,
    folder: Path,
    nodes: tuple[str, ...] = NODES,
    period_ms: int = PERIOD_MS,
) -> dict[str, int]:
    """Run the sampler and return its "sampler" record."""
    (folder / "nodes").write_text("".join(f"{node}\n" for node in nodes))
    command = [str(runner), "sample", str(folder), "--period-ms", str(period_ms)]
    command += ["--seconds", f"{seconds:g}"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    record: dict[str, int] = json.loads(output.strip().splitlines()[-1])
    return record


class Timespec(ctypes.Structure):
    """The C type `struct timespec`."""

    _fields_ = (("s", ctypes.c_long), ("ns", ctypes.c_long))


def run_plain_sleeps(seconds: float) -> dict[str, int]:
    """Sleep until the sampler's times without reading; return a record like the sampler's."""
    libc = ctypes.CDLL(None)
    late = []
    before, due = time.thread_time_ns(), time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    for _ in range(round(seconds * 1000 / PERIOD_MS)):
        due += PERIOD_MS * 1_000_000
        until = Timespec(due // 10**9, due % 10**9)
        libc.clock_nanosleep(time.CLOCK_BOOTTIME, TIMER_ABSTIME, ctypes.byref(until), None)
        late.append(time.clock_gettime_ns(time.CLOCK_BOOTTIME) - due)
    cpu_ns = time.thread_time_ns() - before
    late.sort()
    ranks = {"p50": len(late) // 2, "p99": len(late) * 99 // 100, "max": len(late) - 1}
    return {"cpu_ns": cpu_ns, **{f"late_{name}_ns": late[rank] for name, rank in ranks.items()}}


def time_plain_reads(rounds: int) -> float:
    """Return the CPU time in us to read every node once, without sleeping or writing."""
    files = [os.open(node.partition("\t")[0], os.O_RDONLY) for node in NODES]
    start = time.thread_time_ns()
    for _ in range(rounds):
        for file in files:
            os.pread(file, 4096, 0)
    cpu_ns = time.thread_time_ns() - start
    for file in files:
        os.close(file)
    return cpu_ns / rounds / 1e3


def print_records(
    title: str, records: list[dict[str, int]], seconds: float, period_ms: int = PERIOD_MS
) -> None:
    """Print the minimum and the median over the repetitions."""
    shares = [record["cpu_ns"] / (seconds * 1e9) for record in records]
    print(f"\n{title}, {len(records)} times {seconds:g} s at {1000 // period_ms} Hz")
    print(f"of one core  {min(shares):6.2%} minimum, {statistics.median(shares):6.2%} median")
    for name in ("p50", "p99", "max"):
        late = [record[f"late_{name}_ns"] / 1e3 for record in records]
        print(f"late {name:<7} {min(late):6.0f} us minimum, {statistics.median(late):6.0f} median")


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20, help="starts per command")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of a sampling")
    parser.add_argument(
        "--patience", type=float, default=20.0, help="seconds to wait for a quiet machine"
    )
    parser.add_argument("--runner", type=Path, help="another build of the runner")
    options = parser.parse_args()
    runner = find_runner(options.runner)
    busy = wait_for_quiet(options.patience)
    print(f"load {load_average()}, {busy:.0%} of the processors busy")
    with tempfile.TemporaryDirectory(prefix="farm-bench-") as scratch:
        for name, times in time_startup(runner, options.rounds, Path(scratch)).items():
            print(
                f"{name:<12} {min(times):6.2f} ms minimum, {statistics.median(times):6.2f} median"
            )
        titles = f"{len(NODES)} nodes", "no node", "a plain sleep"
        records: dict[str, list[dict[str, int]]] = {title: [] for title in titles}
        fast: list[dict[str, int]] = []
        for _ in range(SAMPLINGS):
            folder = Path(scratch)
            records[titles[0]].append(run_sampler(runner, options.seconds, folder))
            fast.append(run_sampler(runner, options.seconds, folder, NODES, PERIOD_MIN_MS))
            records[titles[1]].append(run_sampler(runner, options.seconds, folder, ()))
            records[titles[2]].append(run_plain_sleeps(options.seconds))
    for title in titles:
        print_records(title, records[title], options.seconds)
    print_records(titles[0], fast, options.seconds, PERIOD_MIN_MS)
    reads = [time_plain_reads(500) for _ in range(SAMPLINGS)]
    print(f"\nreads of {len(NODES)} nodes back to back: {min(reads):.0f} us per round")


if __name__ == "__main__":
    main()
