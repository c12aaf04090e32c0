"""Client selection: choosing among ten thousand phones, and simulating policies with thirty seeds.

    .venv/bin/python -m benchmarks.selection [--phones 10000] [--seeds 30]

The phones are synthetic: speed, slowdown, energy and uncertainty are drawn once. Only the cost of
choosing and simulating is measured. The seeds differ from those with which the weights of our
policy were found. Choosing includes everything: columns from rows, the policy, the reasons, round
time and energy with their intervals, and the phone to measure next.
"""

import argparse
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from orchestrator.analysis.measurements import MeasuredRun
from orchestrator.selection.basic_policies import POLICIES
from orchestrator.selection.client_table import build_client_table
from orchestrator.selection.client_types import ClientTable
from orchestrator.selection.policy_comparison import (
    POLICY_METRICS,
    compare_policies,
    summarize_policies,
)
from orchestrator.selection.recommend import LocalWork, recommend_clients
from orchestrator.selection.round_fleet import build_round_fleet
from orchestrator.selection.round_state import RoundRequest
from orchestrator.selection.simulate import SimulationPlan, simulate
from tests.selection.fleets import phone_runs

FIRST_SEED = 1000
SIX = ("random", "fastest", "fedcs", "tifl", "oort", "frugal")
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
            "step_p90_ms": speed,
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


def bench_simulation(table: ClientTable, seeds: int, clients: int) -> None:
    """Print the cost of simulating the policies, and their results."""
    fleet = build_round_fleet(table.clients)
    plan = SimulationPlan(RoundRequest(10, rounds=120), clients)
    numbers = range(FIRST_SEED, FIRST_SEED + seeds)
    outcomes, seconds = timed(lambda: simulate(fleet, SIX, numbers, plan))
    print(f"{seeds} seeds x {len(SIX)} policies x {clients} phones: {seconds}")
    for policy in SIX:
        deltas = [
            compare_policies(outcomes, policy, "random", metric) for metric in POLICY_METRICS[:4]
        ]
        print(f"  {policy:18} {'  '.join(map(str, deltas))}")
    for line in summarize_policies(outcomes, SIX, seeds):
        print(f"  {line}")


def main() -> None:
    """Benchmark choosing, then the simulation."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--phones", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=30)
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}")
    table = bench_choosing(options.phones)
    bench_simulation(table, options.seeds, options.clients)


if __name__ == "__main__":
    main()
