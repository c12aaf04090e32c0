"""Choosing among ten thousand phones, and trying the policies with thirty seeds.

    .venv/bin/python -m benchmarks.selection [--phones 10000] [--seeds 30]

Phones are made up: speeds, slowing down, energy and doubt drawn once; nothing here is measured but
what choosing and trying cost. The seeds are others than those that the weights of our policy were
found with. A choice is all of it: columns from rows, the policy, the reasons, round time and energy
with their intervals, and whom to measure next.
"""

import argparse
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from orchestrator.nouns import MeasuredRun
from orchestrator.selection.advice import Work, advise
from orchestrator.selection.census import take_census
from orchestrator.selection.client import Census
from orchestrator.selection.contest import GOALS, hold, honest_words
from orchestrator.selection.fleet import line_up
from orchestrator.selection.policies import POLICIES
from orchestrator.selection.simulate import Plan, simulate
from orchestrator.selection.situation import Want
from tests.selection.fleets import both_ways

FIRST_SEED = 1000
SIX = ("random", "fastest", "fedcs", "tifl", "oort", "frugal")
Answer = TypeVar("Answer")


def timed(work: Callable[[], Answer]) -> tuple[Answer, str]:
    """What it answered, and how long that took by the clock and of a processor."""
    began, cpu = time.perf_counter(), time.process_time()
    answer = work()
    seconds, busy = time.perf_counter() - began, time.process_time() - cpu
    return answer, f"{seconds:.2f} s ({busy:.2f} s of a processor)"


def phones(count: int) -> Iterator[MeasuredRun]:
    """Six runs of each: three cold ones, three of ten minutes."""
    pattern, dice = both_ways("pattern", 10.0, 15.0), random.Random(7)
    for number in range(count):
        pace, heat, hunger = (dice.lognormvariate(0, spread) for spread in (0.5, 0.2, 0.3))
        scale = {
            "step_ms": pace,
            "step_p90_ms": pace,
            "last_minute_step_ms": pace * heat,
            "energy_per_sample_mj": hunger,
            "energy_per_step_mj": hunger,
            "steps_per_charge": 600 / hunger,  # 38 kJ
            "peak_rss_mb": 1.0,
        }
        for run in pattern:
            yield replace(
                run,
                phone=f"P{number}",
                trial=f"{run.trial}-{number}",
                metrics={
                    name: metric.model_copy(
                        update={"value": metric.value * scale[name] * dice.lognormvariate(0, 0.01)}
                    )
                    for name, metric in run.metrics.items()
                },
            )


def choosing(count: int) -> Census:
    """Print what a census and a choice among so many phones cost."""
    runs = list(phones(count))
    census, seconds = timed(lambda: take_census(runs))
    print(f"{count} phones from {len(runs)} runs: {seconds}")
    for policy in POLICIES:
        advice, seconds = timed(lambda name=policy: advise(census, name, Want(100), Work()))  # type: ignore[misc]
        print(f"  {policy:18} {len(advice.chosen):4} chosen in {seconds}")
    return census


def trying(census: Census, seeds: int, clients: int) -> None:
    """Print what trying the policies costs, and what came of it."""
    fleet = line_up(census.clients)
    plan = Plan(Want(10, rounds=120), clients)
    numbers = range(FIRST_SEED, FIRST_SEED + seeds)
    outcomes, seconds = timed(lambda: simulate(fleet, SIX, numbers, plan))
    print(f"{seeds} seeds x {len(SIX)} policies x {clients} phones: {seconds}")
    for policy in SIX:
        held = [hold(outcomes, policy, "random", goal) for goal in GOALS[:4]]
        print(f"  {policy:18} {'  '.join(map(str, held))}")
    for line in honest_words(outcomes, SIX, seeds):
        print(f"  {line}")


def main() -> None:
    """Choose, then try."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--phones", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=30)
    asked = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}")
    census = choosing(asked.phones)
    trying(census, asked.seeds, asked.clients)


if __name__ == "__main__":
    main()
