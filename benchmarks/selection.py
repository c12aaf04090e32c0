"""Client selection: choosing among ten thousand phones, exports and a clock of 100,000 clients.

    .venv/bin/python -m benchmarks.selection [--phones 10000] [--clients 100000]

The phones are synthetic: speed, slowdown, energy and uncertainty are drawn once. Only the cost is
measured; `benchmarks.selection_contest` compares the results of the policies. Choosing includes
everything: columns from rows, the policy, the reasons, round time and energy with their intervals,
and the phone to measure next. An export includes reading it back.
"""

import argparse
import os
import random
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from orchestrator.analysis.measurements import MeasuredRun
from orchestrator.export.federated import CONSUMERS, write_consumer_files
from orchestrator.selection.basic_policies import POLICIES
from orchestrator.selection.client_table import build_client_table
from orchestrator.selection.client_types import ClientTable
from orchestrator.selection.population import LINKS, PopulationPlan
from orchestrator.selection.recommend import LocalWork, recommend_clients
from orchestrator.selection.round_state import RoundRequest
from orchestrator.selection.simulate import SimulationPlan, simulate_policies
from tests.selection.fleets import phone_runs

ROUNDS = 100
Result = TypeVar("Result")


def timed(work: Callable[[], Result]) -> tuple[Result, str]:
    """Return the result, and its wall-clock and CPU time as text."""
    started, cpu = time.perf_counter(), time.process_time()
    result = work()
    seconds, cpu_s = time.perf_counter() - started, time.process_time() - cpu
    return result, f"{seconds:.2f} s ({cpu_s:.2f} s CPU)"


def phones(count: int) -> Iterator[MeasuredRun]:
    """Six runs per phone: three cold ones, three of ten minutes."""
    pattern, rng = phone_runs("pattern", 10.0, 15.0), random.Random(7)
    for number in range(count):
        speed, slowdown, energy = (rng.lognormvariate(0, spread) for spread in (0.5, 0.2, 0.3))
        scale = {
            "step_ms": speed,
            "last_minute_step_ms": speed * slowdown,
            "energy_per_sample_mj": energy,
            "energy_per_step_mj": energy,
            "steps_per_charge": 600 / energy,  # 38 kJ
            "peak_rss_mb": 1.0,
        }
        for run in pattern:
            yield replace(
                run,
                phone=f"P{number}",
                trial=f"{run.trial}-{number}",
                metrics={
                    name: metric.model_copy(
                        update={"value": metric.value * scale[name] * rng.lognormvariate(0, 0.01)}
                    )
                    for name, metric in run.metrics.items()
                },
            )


def bench_choosing(count: int) -> ClientTable:
    """Print the cost of a client table and of a recommendation."""
    runs = list(phones(count))
    table, seconds = timed(lambda: build_client_table(runs))
    print(f"{count} phones from {len(runs)} runs: {seconds}")
    for policy in POLICIES:
        advice, seconds = timed(
            lambda name=policy: recommend_clients(table, name, RoundRequest(100), LocalWork())
        )  # type: ignore[misc]
        print(f"  {policy:18} {len(advice.chosen):4} chosen in {seconds}")
    return table


def bench_exports(table: ClientTable, clients: int) -> None:
    """Print the cost of every export of a population."""
    plan = PopulationPlan(clients, 1, links=LINKS["flash-wifi"], rhythm=True)
    for name, consumer in CONSUMERS.items():
        with tempfile.TemporaryDirectory() as folder:
            _, seconds = timed(
                lambda: write_consumer_files(
                    consumer,  # noqa: B023 (called at once)
                    table,
                    Path(folder),
                    plan,
                    LocalWork(rest_s=60.0),
                    allow_simulated=True,
                )
            )
        print(f"  {clients} clients to {name:14} {seconds}")
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"  largest memory, of all exports in one process: {memory_mb:.0f} MB")


def bench_clock(table: ClientTable, clients: int) -> None:
    """Print the cost of a simulation without training."""
    plan = SimulationPlan(k=100, clients=clients, rounds=ROUNDS, task=None)
    for policy in POLICIES:
        _, seconds = timed(lambda name=policy: simulate_policies(table.clients, [name], 1, plan))  # type: ignore[misc]
        print(f"  clock of {clients} clients x {ROUNDS} rounds, {policy:18} {seconds}")


def main() -> None:
    """Benchmark choosing, exports, and the clock."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--phones", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=100_000)
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}")
    table = bench_choosing(options.phones)
    few = replace(table, clients=table.clients[:6])
    bench_exports(few, options.clients)
    bench_clock(few, options.clients)


if __name__ == "__main__":
    main()
