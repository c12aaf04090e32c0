"""The simulated training: it learns, gives every policy the same clients, and is reproducible."""

import numpy as np
import pytest

from orchestrator.selection.basic_policies import POLICIES
from orchestrator.selection.policy_comparison import (
    POLICY_METRICS,
    PolicyDelta,
    PolicyVerdict,
    compare_policies,
    summarize_policies,
)
from orchestrator.selection.round_state import RoundRequest
from orchestrator.selection.simulate import (
    SimulationOutcome,
    SimulationPlan,
    draw_world,
    gini,
    simulate,
    simulate_training,
)
from orchestrator.selection.toy_training import accuracy, best_accuracy, draw_toy_task, train
from tests.selection.fleets import a_fleet

SMALL = SimulationPlan(RoundRequest(k=8, rounds=50), clients=40)
TIME, ENERGY = POLICY_METRICS[:2]


def test_federated_averaging_learns_more_than_one_client_alone() -> None:
    task = draw_toy_task(30, seed=3)
    all_clients = np.arange(30)
    weights, first = train(task, task.initial_weights, all_clients)
    for _ in range(60):
        weights, last = train(task, weights, all_clients)
    assert last.mean() < first.mean()
    assert accuracy(task, weights) > 0.85 * best_accuracy(task)
    alone = task.initial_weights
    for _ in range(25):
        alone, _ = train(task, alone, np.array([0]))
    assert accuracy(task, alone) < 0.7 * accuracy(task, weights)


def test_a_simulation_is_determined_by_its_seed() -> None:
    fleet = a_fleet(5, uncertainty=np.full(5, 0.1))
    plan = SimulationPlan(RoundRequest(k=4, rounds=5), clients=20)
    assert simulate(fleet, ["frugal"], [7], plan) == simulate(fleet, ["frugal"], [7], plan)
    assert simulate(fleet, ["frugal"], [7], plan) != simulate(fleet, ["frugal"], [8], plan)


def test_always_choosing_the_same_phones_is_faster_and_learns_less() -> None:
    fleet = a_fleet(8)
    world = draw_world(fleet, 1, SMALL)
    random_, fastest = (
        simulate_training(name, 1, world, SMALL.request) for name in ("random", "fastest")
    )
    assert fastest.round_s < random_.round_s
    assert fastest.final_accuracy < random_.final_accuracy
    assert fastest.unfairness > random_.unfairness


def test_a_deadline_drops_late_updates_and_ends_the_round() -> None:
    plan = SimulationPlan(RoundRequest(k=8, deadline_s=1.0, rounds=5), clients=40)
    outcome = simulate_training("random", 1, draw_world(a_fleet(8), 1, plan), plan.request)
    assert outcome.late_updates > 0
    assert outcome.round_s <= 1.0


def test_a_phone_with_an_empty_battery_is_not_chosen() -> None:
    fleet = a_fleet(4, energy_j=np.full(4, 1.0), battery_j=np.full(4, 3e4))
    outcome = simulate_training("random", 1, draw_world(fleet, 1, SMALL), SMALL.request)
    assert outcome.flat_batteries > 0


def test_ratios_are_paired_by_seed_and_marked_as_bounds() -> None:
    plan = SimulationPlan(RoundRequest(k=6, rounds=25), clients=24)
    outcomes = simulate(a_fleet(6), ["random", "fastest"], range(3), plan)
    one, other = (
        compare_policies(outcomes, name, "random", TIME) for name in ("random", "fastest")
    )
    assert one is not None
    assert pytest.approx((one.value, one.low, one.high)) == (1.0, 1.0, 1.0)
    assert other is not None
    assert other.low <= other.value <= other.high
    missed = [
        {o.seed for o in outcomes if o.policy == name and not o.reached}
        for name in ("random", "fastest")
    ]
    assert (other.missed, other.other_missed) == (len(missed[1]), len(missed[0]))


def test_a_policy_that_missed_the_target_is_not_called_better() -> None:
    faster = PolicyDelta(TIME, 0.5, 0.4, 0.6, missed=3, other_missed=0)
    assert (faster.verdict, str(faster)) == (PolicyVerdict.UNCLEAR, "≥ 0.50 (0.40 to 0.60)")
    slow = PolicyDelta(TIME, 2.0, 1.5, 2.5, missed=3, other_missed=0)
    assert slow.verdict is PolicyVerdict.WORSE, "a lower bound is enough to be worse"
    better = PolicyDelta(TIME, 0.5, 0.4, 0.6, 0, other_missed=2)
    assert (better.verdict, str(better)) == (PolicyVerdict.BETTER, "≤ 0.50 (0.40 to 0.60)")


def an_outcome(policy: str, seed: int, time_s: float, accuracy_: float) -> SimulationOutcome:
    """Build an outcome with the fields that a comparison uses."""
    return SimulationOutcome(policy, seed, True, 10, time_s, None, accuracy_, 1.0, 0.2, 0, 0)


def test_the_summary_names_where_our_policy_is_worse() -> None:
    outcomes = [
        an_outcome(policy, seed, time_s * (1 + 0.01 * (seed % 7)), right)
        for seed in range(30)
        for policy, time_s, right in (("random", 9.0, 0.9), ("frugal", 5.0, 0.8))
    ]
    sentences = summarize_policies(outcomes, ["random", "frugal"], 30)
    assert sentences[0] == "In time to accuracy, frugal is better than all others."
    assert "Unknown: energy to accuracy." in sentences
    assert any(
        "In final accuracy, frugal is worse than random -0.100" in line for line in sentences
    )
    assert any(
        "rounds to accuracy, frugal shows no clear difference from random" in line
        for line in sentences
    )
    (few,) = summarize_policies(outcomes, ["random", "frugal"], 2)
    assert few == "2 seeds are too few to call a policy better; use 30 or more."
    assert summarize_policies(outcomes, ["random"], 30) == []


def test_an_unknown_energy_is_not_a_saving() -> None:
    fleet = a_fleet(4, energy_j=np.array([1.0, np.nan, 1.0, 1.0]))
    plan = SimulationPlan(RoundRequest(k=4, rounds=5), clients=12)
    outcomes = simulate(fleet, ["random", "frugal"], [1], plan)
    assert {outcome.energy_j for outcome in outcomes} == {None}
    assert compare_policies(outcomes, "frugal", "random", ENERGY) is None


def test_wrong_estimates_affect_the_server_but_not_the_phones() -> None:
    fleet = a_fleet(6, uncertainty=np.full(6, 0.1))
    right, wrong = (
        draw_world(
            fleet, 3, SimulationPlan(RoundRequest(k=4, rounds=5), clients=20, estimate_error=noise)
        )
        for noise in (0.0, 0.2)
    )
    assert np.array_equal(right.actual.cold_s, wrong.actual.cold_s)
    assert np.array_equal(right.online, wrong.online)
    assert not np.array_equal(right.estimated.cold_s, wrong.estimated.cold_s)
    assert not np.array_equal(right.estimated.energy_j, wrong.estimated.energy_j)


def test_gini_measures_unfairness() -> None:
    assert gini(np.ones(10)) == 0.0
    assert gini(np.eye(10)[0]) == pytest.approx(0.9)


@pytest.mark.slow
def test_frugal_beats_random_on_thirty_seeds_even_with_wrong_figures() -> None:
    rng = np.random.default_rng(5)
    fleet = a_fleet(
        30,
        cold_s=rng.lognormal(-3.5, 0.5, 30),
        slowdown=rng.uniform(1, 2, 30),
        uncertainty=np.full(30, 0.1),
    )
    for noise in (0.0, 0.2):
        plan = SimulationPlan(RoundRequest(k=10, rounds=120), estimate_error=noise)
        outcomes = simulate(fleet, ["random", "frugal"], range(30), plan)
        for goal, limit in ((TIME, 1.0), (ENERGY, 1.05)):
            paired = compare_policies(outcomes, "frugal", "random", goal)
            assert paired is not None
            assert paired.high < limit


def test_every_policy_has_a_name_on_the_command_line() -> None:
    from orchestrator.commands.select_export import CONSUMER_NAMES
    from orchestrator.commands.select_options import POLICY_NAMES
    from orchestrator.export.federated import CONSUMERS

    assert tuple(POLICIES) == POLICY_NAMES
    assert tuple(CONSUMERS) == CONSUMER_NAMES
