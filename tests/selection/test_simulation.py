"""A federated training on a virtual clock: it learns, it is fair to policies, it repeats."""

import numpy as np
import pytest

from orchestrator.selection.learning import accuracy, draw_task, train, within_reach
from orchestrator.selection.policies import POLICIES, Want
from orchestrator.selection.simulate import (
    Plan,
    against_random,
    gini,
    make_world,
    run_once,
    simulate,
)
from tests.selection.test_policies import a_fleet

SMALL = Plan(Want(k=8), clients=40, rounds=50)


def test_federated_averaging_learns_what_nobody_holds_alone() -> None:
    task = draw_task(30, seed=3)
    everybody = np.arange(30)
    weights, first = train(task, task.nothing, everybody)
    for _ in range(60):
        weights, last = train(task, weights, everybody)
    assert last.mean() < first.mean()
    assert accuracy(task, weights) > 0.85 * within_reach(task)
    alone = task.nothing
    for _ in range(25):
        alone, _ = train(task, alone, np.array([0]))
    assert accuracy(task, alone) < 0.7 * accuracy(task, weights)


def test_a_seed_decides_everything() -> None:
    fleet = a_fleet(5, doubt=np.full(5, 0.1))
    plan = Plan(Want(k=4), clients=20, rounds=5)
    assert simulate(fleet, ["frugal"], [7], plan) == simulate(fleet, ["frugal"], [7], plan)
    assert simulate(fleet, ["frugal"], [7], plan) != simulate(fleet, ["frugal"], [8], plan)


def test_always_asking_the_same_phones_is_quick_and_learns_less() -> None:
    fleet = a_fleet(8)
    world = make_world(fleet, 1, SMALL)
    drawn, same = (run_once(name, 1, world, SMALL) for name in ("random", "fastest"))
    assert same.round_s < drawn.round_s
    assert same.final_accuracy < drawn.final_accuracy
    assert same.unfairness > drawn.unfairness


def test_a_deadline_throws_late_updates_away_and_ends_the_round() -> None:
    plan = Plan(Want(k=8, deadline_s=1.0), clients=40, rounds=5)
    outcome = run_once("random", 1, make_world(a_fleet(8), 1, plan), plan)
    assert outcome.late > 0
    assert outcome.round_s <= 1.0


def test_a_battery_runs_flat_and_its_phone_is_left_alone() -> None:
    fleet = a_fleet(4, energy_j=np.full(4, 1.0), battery_j=np.full(4, 3e4))
    outcome = run_once("random", 1, make_world(fleet, 1, SMALL), SMALL)
    assert outcome.flat > 0


def test_ratios_are_paired_by_seed_and_say_when_they_are_bounds() -> None:
    fleet = a_fleet(6)
    plan = Plan(Want(k=6), clients=24, rounds=25)
    outcomes = simulate(fleet, ["random", "fastest"], range(3), plan)
    one = against_random(outcomes, "random", "time_s")
    assert (1.0, 1.0, 1.0) == pytest.approx((one.value, one.low, one.high))
    other = against_random(outcomes, "fastest", "time_s")
    assert other.low <= other.value <= other.high
    missed = {o.seed for o in outcomes if not o.reached}
    assert len(missed) == other.unreached


def test_fairness_is_counted() -> None:
    assert 0.0 == gini(np.ones(10))
    assert pytest.approx(0.9) == gini(np.eye(10)[0])


@pytest.mark.slow
def test_ours_beats_random_on_thirty_seeds_even_with_wrong_figures() -> None:
    rng = np.random.default_rng(5)
    fleet = a_fleet(
        30,
        cold_s=rng.lognormal(-3.5, 0.5, 30),
        slowdown=rng.uniform(1, 2, 30),
        doubt=np.full(30, 0.1),
    )
    for noise in (0.0, 0.2):
        plan = Plan(Want(k=10), noise=noise)
        outcomes = simulate(fleet, ["random", "frugal"], range(30), plan)
        assert against_random(outcomes, "frugal", "time_s").high < 1
        assert against_random(outcomes, "frugal", "energy_j").high < 1.05


def test_every_policy_has_a_name_on_the_command_line() -> None:
    from orchestrator.commands.select import CONSUMER_NAMES, POLICY_NAMES
    from orchestrator.export.federated import CONSUMERS

    assert tuple(POLICIES) == POLICY_NAMES
    assert tuple(CONSUMERS) == CONSUMER_NAMES
