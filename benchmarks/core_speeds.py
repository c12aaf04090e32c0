"""Say what a step loses on cores of different speed: a simulated phone, and a slowed core.

.venv/bin/python -m benchmarks.core_speeds [--workloads lenet,squeezenet] [--sources OTHER/kernels]

Ideal is the sum of the speeds of all cores. The loss is the share of a step's time beyond that.

Simulated phone: the engine is built with a pool of threads that runs and measures every part of
every operation on one core of this computer, and then gives the parts to simulated cores by the
rule of the real pool (benchmarks/simulated_pool.c). The cores are those of a Snapdragon 888: 1 + 3
+ 4. Their speeds are its measured CoreMark, or its multiply-adds per second at the highest clocks.
Waking threads, memory bandwidth and caches are not simulated.

Slow core: two threads on two cores of this computer, one of which another process takes for half
of every 200 us, in a step whose operations are longer than that. The speeds are those of one thread
on each of the two cores, one after the other.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers.engine_comparison import RunnerEngine, find_runner, load_average, make_plan
from kernels.build import HERE, HOST, build
from workloads.catalogue import bind, step_of
from workloads.step_cost import Step

WORKLOADS = ("lenet", "resnet20", "mobilenetv2", "decoder-1m")
SLOWED_WORKLOAD = "squeezenet"
SOC = HERE.parent / "agent/virtual/socs/sm8350.toml"
MACS_PER_CYCLE = {"Cortex-A55": 4, "Cortex-A78": 8, "Cortex-X1": 16}
TURN_S = 1.5


class Simulation(NamedTuple):
    """A step on simulated cores; times are relative to the ideal one."""

    loss: float
    alone: float  # share of the step in which thread 0 works alone
    parts: float  # per operation


def core_speeds() -> dict[str, list[float]]:
    """Return the speeds of a Snapdragon 888's cores, the fastest first, by two measures."""
    clusters = tomllib.loads(SOC.read_text())["cluster"]
    cores = [cluster for cluster in clusters for _ in cluster["cpus"]]
    measures = {
        "CoreMark": [(cluster.get("curve") or cluster["points"])[-1][1] for cluster in cores],
        "multiply-adds": [
            cluster["ladder_khz"][-1] * MACS_PER_CYCLE[cluster["design"]] for cluster in cores
        ],
    }
    return {
        name: sorted((speed / max(speeds) for speed in speeds), reverse=True)
        for name, speeds in measures.items()
    }


def build_simulated(sources: Path, into: Path) -> Path:
    """Build the runner with the simulated pool of threads."""
    root = into / "kernels"
    for folder in ("engine", "runner"):
        shutil.copytree(sources / folder, root / folder)
    shutil.copy(Path(__file__).with_name("simulated_pool.c"), root / "engine/thread_pool.c")
    return build(HOST, into, root)


def simulate(runner: Path, workload: str, batch: int, speeds: Sequence[float]) -> Simulation:
    """Train some steps on simulated cores."""
    with tempfile.TemporaryDirectory() as folder:
        plan, result = Path(folder) / "plan", Path(folder) / "result"
        plan.write_bytes(make_plan(_step(workload, batch), len(speeds)))
        settings = {"SIMULATED_SPEEDS": ",".join(map(str, speeds)), "SIMULATED_RESULT": str(result)}
        command = [str(runner), "run", str(plan), folder, "--warmup", "1", "--steps", "4"]
        subprocess.run(command, check=True, env=os.environ | settings, stdout=subprocess.DEVNULL)
        found = json.loads(result.read_text())
    return Simulation(
        loss=1 - found["ideal"] / found["simulated"],
        alone=found["alone"] / found["simulated"],
        parts=found["parts"] / found["rounds"],
    )


def _step(workload: str, batch: int) -> Step:
    return step_of(bind(workload, {"batch_size": batch}))


SLOW_DOWN = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
try:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
except PermissionError:
    pass
print("ready", flush=True)
at = time.perf_counter()
while True:
    at += 200e-6
    while time.perf_counter() < at - 100e-6:
        pass
    time.sleep(max(0.0, at - time.perf_counter()))
"""


@contextmanager
def slowed(core: int) -> Iterator[None]:
    """Take half of a core's time, in short pieces."""
    command = [sys.executable, "-c", SLOW_DOWN, str(core)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


def steps_per_s(runner: Path, workload: str, batch: int, cores: set[int]) -> float:
    """Return the median speed of one thread per core."""
    before = os.sched_getaffinity(0)
    engine = RunnerEngine(runner, _step(workload, batch), len(cores))
    os.sched_setaffinity(0, cores)
    try:
        return 1e9 / statistics.median(engine.turn(TURN_S))
    finally:
        os.sched_setaffinity(0, before)
        engine.close()


def native_loss(runner: Path, workload: str, batch: int, slow: bool) -> tuple[float, float]:
    """Return the relative speed of the second core, and the loss of both together."""
    fast_core, slow_core = sorted(os.sched_getaffinity(0))[:2]

    def speeds() -> tuple[float, float, float]:
        alone = [steps_per_s(runner, workload, batch, {core}) for core in (fast_core, slow_core)]
        return alone[0], alone[1], steps_per_s(runner, workload, batch, {fast_core, slow_core})

    if slow:
        with slowed(slow_core):
            time.sleep(0.1)
            fast, other, both = speeds()
    else:
        fast, other, both = speeds()
    return other / fast, 1 - both / (fast + other)


def main(words: Sequence[str] | None = None) -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(description="Say what cores of different speed cost.")
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument(
        "--sources", type=Path, default=HERE, help="Simulate this copy of kernels/."
    )
    parser.add_argument("--runner", type=Path, help="Use this binary on the slow core.")
    options = parser.parse_args(words)
    workloads = options.workloads.split(",")
    print("| workload | speeds of 1 + 3 + 4 cores by | parts per operation | alone | loss |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        runner = build_simulated(options.sources.resolve(), Path(folder))
        for workload in workloads:
            for name, speeds in core_speeds().items():
                found = simulate(runner, workload, options.batch, speeds)
                print(
                    f"| {workload} | {name} | {found.parts:.0f} | {found.alone:.0%} "
                    f"| {found.loss:.0%} |"
                )
    if len(os.sched_getaffinity(0)) < 2:
        print("this computer has one core; the slow core is not measured")
        return 0
    print(f"\nload {load_average()}")
    print("| workload | speed of the second core | loss |")
    print("|---|---|---|")
    for slow in (False, True):
        relative, loss = native_loss(
            find_runner(options.runner), SLOWED_WORKLOAD, options.batch, slow
        )
        print(f"| {SLOWED_WORKLOAD} | {relative:.2f} | {loss:.0%} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
