"""A contest of the policies of `farm select`: fixed scenarios and seeds, paired by seed.

    ./farm demo --dir demo-lab
    .venv/bin/python -m benchmarks.selection_contest --lab demo-lab [--sweep demo] [--batch 256]

The models are really trained; the time of a round is computed from the sweep's measurements. The
scenarios and the held-out seeds, from 1000, were fixed before the policy frugal was tuned on the
seeds 0 to 9. Three tables: the time of every policy to the target accuracy relative to random,
which selects 1.3 times as many phones; the time of frugal relative to every other policy; and an
ablation, the time of frugal without each of its terms relative to its time. Intervals are 95 %;
≥ and ≤ mark bounds where a policy did not reach the accuracy with some seeds.
"""

import argparse
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np

from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.select_clients import WorkloadChoice, able_phones, read_clients
from orchestrator.selection.basic_policies import POLICIES
from orchestrator.selection.client_types import Client
from orchestrator.selection.federated_task import (
    CLASSES,
    SAMPLES_TYPICAL,
    FederatedTask,
    Float,
    Labels,
    Weights,
    draw_task,
    with_bias,
)
from orchestrator.selection.frugal_policy import FrugalPolicy, latest_ends_s
from orchestrator.selection.policy_comparison import (
    ENERGY,
    OURS,
    TIME,
    PolicyVerdict,
    compare_policies,
)
from orchestrator.selection.population import Population
from orchestrator.selection.round_state import (
    RoundRequest,
    RoundState,
    Selection,
    SelectionPolicy,
)
from orchestrator.selection.simulate import (
    SimulationOutcome,
    SimulationPlan,
    draw_world,
    simulate_training,
)
from workloads.lab.settings import Lab

FIRST_SEED = 1000
RARE_CLASSES, RARE_SHARE = (8, 9), 0.4  # labels that only the slowest of the clients have
SIDE, GLYPH, HIDDEN = 12, (7, 5), 16  # an image of a digit, the glyph inside it, the perceptron
PIXEL_NOISE = 0.3

# Digits of five by seven dots, one text of rows per digit.
_DOTS = (
    "01110 10001 10011 10101 11001 10001 01110",
    "00100 01100 00100 00100 00100 00100 01110",
    "01110 10001 00001 00010 00100 01000 11111",
    "11111 00010 00100 00010 00001 10001 01110",
    "00010 00110 01010 10010 11111 00010 00010",
    "11111 10000 11110 00001 00001 10001 01110",
    "00110 01000 10000 11110 10001 10001 01110",
    "11111 00001 00010 00100 01000 01000 01000",
    "01110 10001 10001 01110 10001 10001 01110",
    "01110 10001 10001 01111 00001 00010 01100",
)


class DigitsTask(FederatedTask):
    """A perceptron on images of digits."""

    rate: ClassVar = 0.3

    def initial_weights(self) -> Weights:
        """Return random weights of two layers."""
        rng = np.random.default_rng([self.seed, 21])
        shapes = ((SIDE * SIDE + 1, HIDDEN), (HIDDEN, CLASSES))
        return [
            (rng.standard_normal(shape) * math.sqrt(2 / shape[0])).astype(np.float32)
            for shape in shapes
        ]

    def draw_inputs(self, labels: Labels, rng: np.random.Generator) -> Float:
        """Draw each digit at a random place of a noisy image."""
        return with_bias(_images(labels, rng))


def _images(labels: Labels, rng: np.random.Generator) -> Float:
    glyphs = np.array([[list(map(int, row)) for row in text.split()] for text in _DOTS])
    images = rng.standard_normal((len(labels), SIDE, SIDE), np.float32) * PIXEL_NOISE
    tops = rng.integers(1, SIDE - GLYPH[0], len(labels))
    lefts = rng.integers(2, SIDE - GLYPH[1] - 1, len(labels))
    rows = tops[:, None, None] + np.arange(GLYPH[0])[:, None]
    columns = lefts[:, None, None] + np.arange(GLYPH[1])
    images[np.arange(len(labels))[:, None, None], rows, columns] += 2.0 * glyphs[labels]
    return np.asarray(images.reshape(len(labels), SIDE * SIDE) / 2, np.float32)


def draw_digits(population: Population, seed: int) -> FederatedTask:
    """Draw a task on digits, with the labels of the usual task."""
    usual = draw_task(population, seed)
    test_x = with_bias(_images(usual.test_y, np.random.default_rng([seed, 23])))
    return DigitsTask(**(vars(usual) | {"test_x": test_x, "best": 1.0, "kept": {}}))


def draw_rare_on_slow(population: Population, seed: int) -> FederatedTask:
    """Draw a task in which two labels exist only on the slowest clients."""
    usual, slowness = draw_task(population, seed), population.fleet.cold_s
    shares = usual.label_shares + 1e-9  # a client that had rare labels only has any of the others
    others = np.argsort(-slowness, kind="stable")[max(1, int(len(population) * RARE_SHARE)) :]
    shares[others[:, None], list(RARE_CLASSES)] = 0.0
    return replace(usual, label_shares=shares / shares.sum(axis=1, keepdims=True))


def draw_equal_sizes(population: Population, seed: int) -> FederatedTask:
    """Draw a task in which every client has equally many samples."""
    usual = draw_task(population, seed)
    return replace(usual, sizes=np.full(len(population), int(SAMPLES_TYPICAL)))


@dataclass(frozen=True)
class Scenario:
    """One situation of the contest."""

    name: str
    title: str
    plan: SimulationPlan


SCENARIOS = (
    Scenario("independent", "data independent of speed", SimulationPlan()),
    Scenario(
        "rare-on-slow",
        "two labels exist only on the slowest 40 % of the phones",
        SimulationPlan(task=draw_rare_on_slow, target=0.8),
    ),
    Scenario(
        "equal-steps", "every phone trains equally long", SimulationPlan(task=draw_equal_sizes)
    ),
    Scenario(
        "over-selection",
        "every policy selects 1.3 times as many phones as needed",
        SimulationPlan(over_selection=1.3),
    ),
    Scenario(
        "hot-reuse",
        "24 warm phones, of which 14 train for minutes in every round",
        SimulationPlan(k=14, clients=24, round_s=300.0, warm=True, target=0.8),
    ),
    Scenario(
        "day",
        "400 phones that are available at night and sometimes in the afternoon",
        SimulationPlan(clients=400, round_s=300.0, rhythm=True),
    ),
    Scenario(
        "digits",
        "a perceptron on images of digits, of 40 rounds and more",
        SimulationPlan(task=draw_digits, target=0.75),
    ),
    Scenario(
        "noise", "every figure that the server knows is wrong by 20 %", SimulationPlan(error=0.2)
    ),
)


class Term(StrEnum):
    """What frugal takes into account."""

    UTILITY = "utility"
    FAIRNESS = "fairness"
    TIME = "time"
    MARGIN = "margin"
    DEADLINE = "deadline"


class AblatedPolicy:
    """Frugal without one of its terms: it is shown a state in which the term says nothing."""

    over_selection = FrugalPolicy.over_selection

    def __init__(self, without: Term) -> None:
        self._without = without

    def choose(
        self, state: RoundState, request: RoundRequest, rng: np.random.Generator
    ) -> Selection:
        """Choose as frugal does from what is left of the state."""
        n, fleet = len(state.samples), state.fleet
        match self._without:
            case Term.UTILITY:
                shown = replace(state, utility=np.full(n, np.nan))
            case Term.FAIRNESS:
                shown = replace(state, times_chosen=np.zeros(n))
            case Term.MARGIN:
                shown = replace(state, fleet=replace(fleet, uncertainty=np.zeros(n)))
            case Term.TIME:
                same = replace(fleet, cold_s=1 / state.samples, slowdown=np.ones(n))
                same = replace(same, uncertainty=np.zeros(n))
                shown = replace(state, fleet=same, link_s=np.zeros(n))
            case Term.DEADLINE:
                shown = state
        choice = FrugalPolicy().choose(shown, request, rng)
        if self._without is Term.DEADLINE:
            return replace(choice, deadline_s=None)
        if self._without is Term.TIME and len(choice.picks):
            latest = float(latest_ends_s(state)[choice.picks].max())
            return replace(choice, deadline_s=latest * FrugalPolicy.SLACK)
        return choice


def without(term: Term) -> str:
    """Return the name of frugal without a term."""
    return f"{OURS} without {term}"


def run_scenario(
    phones: Sequence[Client], plan: SimulationPlan, seeds: Sequence[int], ablation: bool
) -> list[SimulationOutcome]:
    """Run every policy with every seed, until it reaches the target."""
    makers: dict[str, Callable[[], SelectionPolicy]] = dict(POLICIES)
    if ablation:
        makers |= {without(term): partial(AblatedPolicy, term) for term in Term}
    outcomes: list[SimulationOutcome] = []
    for seed in seeds:
        world = draw_world(phones, seed, plan)
        outcomes += [
            simulate_training(name, maker, world, stop_at_target=True)
            for name, maker in makers.items()
        ]
    return outcomes


def print_scenario(scenario: Scenario, outcomes: Sequence[SimulationOutcome]) -> None:
    """Print the comparisons of one scenario."""
    print(f"\n{scenario.name}: {scenario.title}")
    rows = [
        *((policy, policy, "random") for policy in POLICIES if policy != "random"),
        *((f"{OURS} / {rival}", OURS, rival) for rival in POLICIES if rival != OURS),
        *((without(term), without(term), OURS) for term in Term),
    ]
    for label, policy, other in rows:
        time_ratio = compare_policies(outcomes, policy, other, TIME)
        if time_ratio is None:  # no ablation
            continue
        energy = compare_policies(outcomes, policy, other, ENERGY)
        of_policy = [outcome.reached for outcome in outcomes if outcome.policy == policy]
        reached = f"{sum(of_policy)}/{len(of_policy)}"
        print(f"  {label:26} {reached:>6}  time {time_ratio!s:24}  energy {energy}")
    lost = [
        rival
        for rival in POLICIES
        if rival != OURS
        and (ratio := compare_policies(outcomes, OURS, rival, TIME)) is not None
        and ratio.verdict is not PolicyVerdict.BETTER
    ]
    text = f"not shown to be faster than {', '.join(lost)}" if lost else "faster than all others"
    print(f"  {OURS} is {text}")


def main() -> None:
    """Run the scenarios and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lab", type=Path, default=Path("demo-lab"))
    parser.add_argument("--sweep", default="demo")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--scenario", action="append", choices=[each.name for each in SCENARIOS])
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--no-ablation", action="store_true")
    options = parser.parse_args()
    lab = LabConnection(Lab.read(options.lab, {}), "benchmark")
    phones = able_phones(read_clients(lab, WorkloadChoice(options.sweep, batch=options.batch)))
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    print(f"load {os.getloadavg()[0]:.1f}; seeds {seeds.start} to {seeds.stop - 1}")
    for scenario in SCENARIOS:
        if options.scenario and scenario.name not in options.scenario:
            continue
        started = time.monotonic()
        outcomes = run_scenario(phones, scenario.plan, seeds, not options.no_ablation)
        print_scenario(scenario, outcomes)
        print(f"  {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
