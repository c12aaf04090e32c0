"""A contest of the policies: fixed scenarios and seeds, paired, with the worst scenario first.

The scenarios and the held-out seeds were fixed before the policy frugal was tuned on other seeds.
Every policy is compared with random, which selects 1.3 times as many phones and ends a round when
enough updates have arrived. Frugal also runs without each of its terms (ablation).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from orchestrator.selection.basic_policies import POLICIES
from orchestrator.selection.client_types import Client
from orchestrator.selection.federated_task import TaskKind
from orchestrator.selection.frugal_policy import FrugalPolicy, FrugalTerm
from orchestrator.selection.policy_comparison import (
    ENERGY,
    OURS,
    TIME,
    PolicyDelta,
    compare_policies,
)
from orchestrator.selection.round_state import SelectionPolicy
from orchestrator.selection.simulate import (
    SimulationOutcome,
    SimulationPlan,
    draw_world,
    simulate_training,
)

FIRST_SEED = 1000  # held out: frugal was tuned on the seeds 0 to 9
RIVALS = ("random", "fedcs", "tifl", "power-of-choice", "oort")
NEGLIGIBLE = 0.03  # a term that is worth less in every scenario has no use


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
        SimulationPlan(rare_on_slow=True, target=0.8),
    ),
    Scenario("equal-steps", "every phone trains equally long", SimulationPlan(equal_steps=True)),
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
        SimulationPlan(task=TaskKind.DIGITS, target=0.75),
    ),
    Scenario(
        "noise", "every figure that the server knows is wrong by 20 %", SimulationPlan(error=0.2)
    ),
)


@dataclass(frozen=True)
class ContestEntry:
    """One policy, or frugal without a term, against random in one scenario."""

    policy: str
    reached: int
    seeds: int
    time: PolicyDelta
    energy: PolicyDelta | None  # None: the energy of the phones is unknown
    mean_heat: float
    rounds: float


@dataclass(frozen=True)
class ContestRow:
    """One scenario: its policies, and the effect of each term of frugal."""

    scenario: Scenario
    entries: tuple[ContestEntry, ...]
    terms: dict[FrugalTerm, PolicyDelta]  # time without the term over time with it

    @property
    def ours(self) -> ContestEntry:
        """Our entry."""
        return next(entry for entry in self.entries if entry.policy == OURS)

    @property
    def baseline(self) -> ContestEntry:
        """The entry of random."""
        return next(entry for entry in self.entries if entry.policy == "random")


def without(term: FrugalTerm) -> str:
    """Return the name of frugal without a term."""
    return f"{OURS} without {term}"


def run_scenario(
    phones: Sequence[Client], scenario: Scenario, seeds: Iterable[int], ablation: bool
) -> ContestRow:
    """Run every policy with every seed."""
    makers: dict[str, Callable[[], SelectionPolicy]] = {
        name: POLICIES[name] for name in (*RIVALS, OURS)
    }
    if ablation:
        makers |= {without(term): partial(FrugalPolicy, term) for term in FrugalTerm}
    outcomes: list[SimulationOutcome] = []
    for seed in seeds:
        world = draw_world(phones, seed, scenario.plan)
        outcomes += [
            simulate_training(name, maker, world, stop_at_target=True)
            for name, maker in makers.items()
        ]
    return _row(scenario, outcomes, ablation)


def _row(scenario: Scenario, outcomes: Sequence[SimulationOutcome], ablation: bool) -> ContestRow:
    entries = []
    for policy in (*RIVALS, OURS):
        of_policy = [outcome for outcome in outcomes if outcome.policy == policy]
        delta = compare_policies(outcomes, policy, "random", TIME)
        assert delta is not None
        count = len(of_policy)
        entries.append(
            ContestEntry(
                policy,
                sum(outcome.reached for outcome in of_policy),
                count,
                delta,
                compare_policies(outcomes, policy, "random", ENERGY),
                sum(outcome.mean_heat for outcome in of_policy) / count,
                sum(outcome.rounds for outcome in of_policy) / count,
            )
        )
    terms = {}
    for term in FrugalTerm if ablation else ():
        delta = compare_policies(outcomes, without(term), OURS, TIME)
        assert delta is not None
        terms[term] = delta
    return ContestRow(scenario, tuple(entries), terms)


def worst_first(rows: Iterable[ContestRow]) -> list[ContestRow]:
    """Order the scenarios: those in which frugal reaches fewer seeds than random, then by time."""
    return sorted(
        rows, key=lambda row: (row.ours.reached >= row.baseline.reached, -row.ours.time.value)
    )
