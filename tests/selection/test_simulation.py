"""A federated training on a virtual clock: it learns, it is fair to policies, it repeats."""

import numpy as np
import pytest

from orchestrator.selection.contest import GOALS, Paired, hold, honest_words
from orchestrator.selection.learning import accuracy, draw_task, train, within_reach
from orchestrator.selection.policies import POLICIES
from orchestrator.selection.simulate import Outcome, Plan, gini, make_world, run_once, simulate
from orchestrator.selection.situation import Want
from tests.selection.fleets import a_fleet

SMALL = Plan(Want(k=8, rounds=50), clients=40)
TIME, ENERGY = GOALS[:2]


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
    plan = Plan(Want(k=4, rounds=5), clients=20)
    assert simulate(fleet, ["frugal"], [7], plan) == simulate(fleet, ["frugal"], [7], plan)
    assert simulate(fleet, ["frugal"], [7], plan) != simulate(fleet, ["frugal"], [8], plan)


def test_always_asking_the_same_phones_is_quick_and_learns_less() -> None:
    fleet = a_fleet(8)
    world = make_world(fleet, 1, SMALL)
    drawn, same = (run_once(name, 1, world, SMALL.want) for name in ("random", "fastest"))
    assert same.round_s < drawn.round_s
    assert same.final_accuracy < drawn.final_accuracy
    assert same.unfairness > drawn.unfairness


def test_a_deadline_throws_late_updates_away_and_ends_the_round() -> None:
    plan = Plan(Want(k=8, deadline_s=1.0, rounds=5), clients=40)
    outcome = run_once("random", 1, make_world(a_fleet(8), 1, plan), plan.want)
    assert outcome.late > 0
    assert outcome.round_s <= 1.0


def test_a_battery_runs_flat_and_its_phone_is_left_alone() -> None:
    fleet = a_fleet(4, energy_j=np.full(4, 1.0), battery_j=np.full(4, 3e4))
    outcome = run_once("random", 1, make_world(fleet, 1, SMALL), SMALL.want)
    assert outcome.flat > 0


def test_ratios_are_paired_by_seed_and_say_when_they_are_bounds() -> None:
    plan = Plan(Want(k=6, rounds=25), clients=24)
    outcomes = simulate(a_fleet(6), ["random", "fastest"], range(3), plan)
    one, other = (hold(outcomes, name, "random", TIME) for name in ("random", "fastest"))
    assert one is not None
    assert (1.0, 1.0, 1.0) == pytest.approx((one.value, one.low, one.high))
    assert other is not None
    assert other.low <= other.value <= other.high
    missed = [{o.seed for o in outcomes if o.policy == name and not o.reached} for name in POLICIES]
    assert (len(missed[1]), len(missed[0])) == (other.missed, other.other_missed)


def test_who_never_got_there_is_not_called_better() -> None:
    quick = Paired(TIME, 0.5, 0.4, 0.6, missed=3, other_missed=0)
    assert (0, "≥ 0.50 (0.40 to 0.60)") == (quick.verdict, str(quick))
    slow = Paired(TIME, 2.0, 1.5, 2.5, missed=3, other_missed=0)
    assert -1 == slow.verdict, "a bound that proves it"
    assert (1, "≤ 0.50 (0.40 to 0.60)") == (
        (sure := Paired(TIME, 0.5, 0.4, 0.6, 0, other_missed=2)).verdict,
        str(sure),
    )


def an_outcome(policy: str, seed: int, time_s: float, accuracy_: float) -> Outcome:
    """What matters of an outcome to whoever judges it."""
    return Outcome(policy, seed, True, 10, time_s, None, accuracy_, 1.0, 0.2, 0, 0)


def test_where_ours_does_not_win_is_said() -> None:
    outcomes = [
        an_outcome(policy, seed, time_s * (1 + 0.01 * (seed % 7)), right)
        for seed in range(30)
        for policy, time_s, right in (("random", 9.0, 0.9), ("frugal", 5.0, 0.8))
    ]
    said = honest_words(outcomes, ["random", "frugal"], 30)
    assert "In time to accuracy frugal is ahead of all others." == said[0]
    assert "Nothing is known of energy to accuracy." in said
    assert any("In final accuracy frugal is behind random -0.100" in line for line in said)
    assert any("rounds to accuracy frugal was not shown to differ" in line for line in said)
    assert ["2 seeds are too few to call a policy better; take 30 or more."] == (
        honest_words(outcomes, ["random", "frugal"], 2)
    )
    assert [] == honest_words(outcomes, ["random"], 30)


def test_an_energy_that_nobody_knows_is_not_a_saving() -> None:
    fleet = a_fleet(4, energy_j=np.array([1.0, np.nan, 1.0, 1.0]))
    plan = Plan(Want(k=4, rounds=5), clients=12)
    outcomes = simulate(fleet, ["random", "frugal"], [1], plan)
    assert {None} == {outcome.energy_j for outcome in outcomes}
    assert hold(outcomes, "frugal", "random", ENERGY) is None


def test_wrong_figures_mislead_the_server_and_not_the_phones() -> None:
    fleet = a_fleet(6, doubt=np.full(6, 0.1))
    right, wrong = (
        make_world(fleet, 3, Plan(Want(k=4, rounds=5), clients=20, noise=noise))
        for noise in (0.0, 0.2)
    )
    assert np.array_equal(right.true.cold_s, wrong.true.cold_s)
    assert np.array_equal(right.online, wrong.online)
    assert not np.array_equal(right.believed.cold_s, wrong.believed.cold_s)
    assert not np.array_equal(right.believed.energy_j, wrong.believed.energy_j)


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
        plan = Plan(Want(k=10, rounds=120), noise=noise)
        outcomes = simulate(fleet, ["random", "frugal"], range(30), plan)
        for goal, most in ((TIME, 1.0), (ENERGY, 1.05)):
            paired = hold(outcomes, "frugal", "random", goal)
            assert paired is not None
            assert paired.high < most


def test_every_policy_has_a_name_on_the_command_line() -> None:
    from orchestrator.commands.select_census import POLICY_NAMES
    from orchestrator.commands.select_export import CONSUMER_NAMES
    from orchestrator.export.federated import CONSUMERS

    assert tuple(POLICIES) == POLICY_NAMES
    assert tuple(CONSUMERS) == CONSUMER_NAMES
