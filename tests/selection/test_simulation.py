"""The simulated training: it learns, gives every policy the same clients, and is reproducible."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.selection_contest import (
    RARE_CLASSES,
    SCENARIOS,
    Scenario,
    Term,
    draw_digits,
    draw_rare_on_slow,
    print_scenario,
    run_scenario,
)
from orchestrator.selection.basic_policies import POLICIES
from orchestrator.selection.client_table import build_client_table
from orchestrator.selection.client_types import Client
from orchestrator.selection.federated_task import accuracy, draw_task, train
from orchestrator.selection.policy_comparison import (
    POLICY_METRICS,
    PolicyDelta,
    PolicyVerdict,
    compare_policies,
    summarize_policies,
)
from orchestrator.selection.population import PopulationPlan, draw_population
from orchestrator.selection.simulate import (
    SimulationOutcome,
    SimulationPlan,
    draw_world,
    gini,
    simulate_policies,
    simulate_training,
)
from tests.selection.fleets import phone_runs

SMALL = SimulationPlan(k=8, rounds=30, clients=40)
TIME, ENERGY = POLICY_METRICS[:2]


def phones(*times_ms: float, **changes: object) -> tuple[Client, ...]:
    """Build phones with these cold times, half as fast when hot."""
    runs = [
        run
        for number, ms in enumerate(times_ms)
        for run in phone_runs(f"P{number}", ms, 2 * ms, **changes)
    ]
    return build_client_table(runs).clients


FOUR = phones(10.0, 20.0, 30.0, 40.0)


def test_federated_averaging_learns_more_than_one_client_alone() -> None:
    task = draw_task(range(20), seed=3)
    everyone = np.arange(20)
    weights, first = train(task, task.initial_weights(), everyone)
    for _ in range(40):
        weights, last = train(task, weights, everyone)
    assert last.mean() < first.mean()
    assert accuracy(task, weights) > 0.7 * task.best
    alone = task.initial_weights()
    for _ in range(10):
        alone, _ = train(task, alone, np.array([0]))
    assert accuracy(task, alone) < 0.7 * accuracy(task, weights)


def test_a_perceptron_learns_digits_and_its_gradient_is_right() -> None:
    task = draw_digits(draw_population(FOUR, PopulationPlan(12)), seed=3)
    weights, everyone = task.initial_weights(), np.arange(12)
    before = accuracy(task, weights)
    for _ in range(15):
        weights, _ = train(task, weights, everyone)
    assert accuracy(task, weights) > before + 0.15


def test_rare_labels_are_only_on_slow_phones() -> None:
    population = draw_population(FOUR, PopulationPlan(50))
    task = draw_rare_on_slow(population, seed=1)
    has_rare = task.label_shares[:, list(RARE_CLASSES)].sum(axis=1) > 0.01
    slow = population.fleet.cold_s > np.quantile(population.fleet.cold_s, 0.5)
    assert not has_rare[~slow].any()
    assert has_rare[slow].any()
    labels = task.data_of(np.flatnonzero(~slow))[1]
    assert not np.isin(labels, RARE_CLASSES).any()


def test_a_simulation_is_determined_by_its_seed() -> None:
    plan = replace(SMALL, rounds=3, rhythm=True, error=0.2)
    first, again, other = (simulate_policies(FOUR, ["frugal"], seed, plan) for seed in (7, 7, 8))
    assert first == again
    assert first != other


def test_always_choosing_the_same_phones_is_faster_and_learns_less() -> None:
    outcomes = simulate_policies(FOUR, ["random", "fastest"], 1, SMALL)
    random_, fastest = outcomes
    assert fastest.round_s < random_.round_s
    assert fastest.final_accuracy < random_.final_accuracy
    assert fastest.unfairness > random_.unfairness
    assert fastest.mean_heat > 0.01


def test_a_round_ends_when_enough_updates_have_arrived() -> None:
    patient, hasty = (
        simulate_policies(FOUR, ["random"], 1, replace(SMALL, rounds=5, over_selection=share))[0]
        for share in (1.0, 2.0)
    )
    assert hasty.round_s < patient.round_s
    assert hasty.late_updates > patient.late_updates
    assert hasty.energy_j is not None
    assert patient.energy_j is not None
    assert hasty.energy_j > patient.energy_j, "phones that are not needed spend energy, too"


def test_a_deadline_drops_late_updates_and_ends_the_round() -> None:
    plan = replace(SMALL, deadline_s=20.0, rounds=5)
    (outcome,) = simulate_policies(FOUR, ["random"], 1, plan)
    assert outcome.late_updates > 0
    assert outcome.round_s <= 20.0


def test_radio_and_waiting_cost_energy() -> None:
    plan = replace(SMALL, rounds=3, task=None)
    near, far = (
        simulate_policies(FOUR, ["random"], 1, replace(plan, model_mb=size))[0].energy_j
        for size in (0.001, 100.0)
    )
    assert near is not None
    assert far is not None
    assert far > near + 100.0


def test_warm_phones_are_slower() -> None:
    cool, warm = (
        simulate_policies(FOUR, ["random"], 1, replace(SMALL, rounds=1, warm=warm))[0]
        for warm in (False, True)
    )
    assert (cool.mean_heat, warm.mean_heat > 0.1) == (0.0, True)
    assert warm.round_s > 1.05 * cool.round_s


def test_ratios_are_paired_by_seed_and_marked_as_bounds() -> None:
    plan = replace(SMALL, k=6, rounds=15, clients=24)
    outcomes = [
        outcome
        for seed in range(3)
        for outcome in simulate_policies(FOUR, ["random", "fastest"], seed, plan)
    ]
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
    return SimulationOutcome(policy, seed, True, 10, time_s, None, accuracy_, 1.0, 0.2, 0, 0, 0.0)


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
    outcomes = simulate_policies(
        tuple(replace(client, energy_mj=None) for client in FOUR),
        ["random", "frugal"],
        1,
        replace(SMALL, rounds=2),
    )
    assert {outcome.energy_j for outcome in outcomes} == {None}
    assert compare_policies(outcomes, "frugal", "random", ENERGY) is None


def test_every_figure_that_the_server_knows_can_be_wrong() -> None:
    right, wrong = (draw_world(FOUR, 3, replace(SMALL, error=error)) for error in (0.0, 0.2))
    assert np.array_equal(right.actual.cold_s, wrong.actual.cold_s)
    for figure in ("cold_s", "slowdown", "heating_s", "energy_j", "battery_j"):
        change = getattr(wrong.estimated, figure) / getattr(right.estimated, figure)
        assert 0.1 < np.log(change).std() < 0.3, figure
    assert np.log(wrong.estimated_link_s / right.link_s).std() == pytest.approx(0.2, abs=0.1)


def test_the_server_estimates_heat_from_its_own_figures() -> None:
    seen: dict[float, list[float]] = {0.0: [], 0.5: []}
    for error, heats in seen.items():
        world = draw_world(FOUR, 3, replace(SMALL, error=error, rounds=3, task=None))

        class Watching:
            """Random, and keeps the heat that it was shown."""

            over_selection = 1.0

            def choose(  # type: ignore[no-untyped-def]
                self, state, request, rng, heats=heats
            ):
                heats.append(float(state.heat.mean()))
                return POLICIES["random"]().choose(state, request, rng)

        assert simulate_training("watching", Watching, world).mean_heat > 0
    assert seen[0.0][0] == seen[0.5][0] == 0.0
    assert 0 < seen[0.0][1] != pytest.approx(seen[0.5][1])


def test_gini_measures_unfairness() -> None:
    assert gini(np.ones(10)) == 0.0
    assert gini(np.eye(10)[0]) == pytest.approx(0.9)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_contest_compares_every_policy_and_term(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = replace(scenario.plan, rounds=2, clients=20, k=5)
    print_scenario(scenario, run_scenario(FOUR, plan, range(2), ablation=True))
    text = capsys.readouterr().out
    assert all(f"  {policy} " in text for policy in POLICIES if policy != "random")
    assert all(f"frugal without {term} " in text for term in Term)


@pytest.mark.slow
def test_the_clock_of_a_hundred_thousand_clients_is_fast() -> None:
    import time

    plan = SimulationPlan(k=100, clients=100_000, rounds=100, task=None)
    started = time.process_time()
    for policy in ("random", "oort", "frugal"):
        simulate_policies(FOUR, [policy], 1, plan)
        assert time.process_time() - started < 60
        started = time.process_time()


def test_every_policy_has_a_name_on_the_command_line() -> None:
    from orchestrator.commands.select_export import CONSUMER_NAMES, LINK_NAMES
    from orchestrator.commands.select_options import POLICY_NAMES
    from orchestrator.export.federated import CONSUMERS
    from orchestrator.selection.population import LINKS

    assert tuple(POLICIES) == POLICY_NAMES
    assert tuple(CONSUMERS) == CONSUMER_NAMES
    assert tuple(LINKS) == LINK_NAMES
