"""`farm select simulate`: compares the policies in a small federated training."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import json_option, print_json, print_table, wide_option
from orchestrator.commands.select_options import (
    POLICY_NAMES,
    deadline_option,
    print_notes,
    read_clients,
    round_seconds_option,
    workload_options,
)
from workloads.cli_options import COUNT, FiniteRange, value_option

if TYPE_CHECKING:
    from orchestrator.app.select_clients import SimulationOutcome

HEADINGS = (
    *("POLICY", "REACHED", "MINUTES", "TIME / RANDOM", "ENERGY / RANDOM", "ROUNDS / RANDOM"),
    *("ACCURACY - RANDOM", "ACCURACY", "ROUND S", "HEAT", "UNFAIRNESS", "EMPTY BATTERIES"),
    "LATE UPDATES",
)
HIDE = HEADINGS[:6:-1] + HEADINGS[6:4:-1]


@click.command()
@workload_options
@wide_option
@value_option("-k", "count", type=COUNT, default=10, help="Updates per round.")
@value_option(
    "--clients", type=click.IntRange(2, 1_000_000), default=200, help="Size of the simulated fleet."
)
@value_option(
    "--rounds", type=click.IntRange(1, 10_000), default=120, help="Maximum number of rounds."
)
@value_option(
    "--seeds",
    type=click.IntRange(1, 1000),
    default=30,
    help="Number of repetitions with different random seeds.",
)
@deadline_option
@round_seconds_option
@value_option(
    "--noise",
    type=FiniteRange(0, 1),
    default=0.0,
    help="Relative error of every figure that the server knows.",
)
@value_option(
    "--availability",
    type=click.Choice(["always", "day"]),
    default="always",
    help="When clients are available: always, or with a daily pattern.",
)
@click.option("--clock-only", is_flag=True, help="Compute only times and energies; do not train.")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=click.Choice(POLICY_NAMES),
    help="Simulate only these policies, and random.",
)
@json_option
def simulate(  # noqa: PLR0913, PLR0917 (click passes options one by one)
    name: str,
    lab_folder: Path,
    workload: str | None,
    batch: int | None,
    allow_mixed: bool,
    count: int,
    clients: int,
    rounds: int,
    seeds: int,
    deadline: float | None,
    round_seconds: float,
    noise: float,
    availability: str,
    clock_only: bool,
    policies: tuple[str, ...],
    as_json: bool,
) -> None:
    """Compare the policies in a small federated training.

    Clients are drawn from the sweep's phones, the same for every policy. A small model is
    really trained; the time of each round is computed from the sweep's measurements. Energy
    includes radio and waiting. random selects 1.3 times as many phones as it needs.

    REACHED counts the seeds in which the target accuracy was reached; HEAT is the mean thermal
    state of the chosen phones (1: at their sustained speed); UNFAIRNESS is the Gini coefficient
    of the clients' participation; the last two columns are means per seed. A ratio with ≤ or ≥ is
    a bound: random or the policy did not reach the accuracy with some seeds.

    \b
    Examples:
      farm select simulate demo --seeds 10 --clients 100
      farm select simulate demo --clock-only --clients 100000 --seeds 1 --policy frugal
    """
    from orchestrator.app.select_clients import SimulationPlan, simulate_selection
    from orchestrator.commands.progress import show_progress

    table = read_clients(name, lab_folder, workload, batch, allow_mixed)
    plan = SimulationPlan(
        k=count,
        clients=clients,
        rounds=rounds,
        deadline_s=deadline,
        round_s=round_seconds,
        error=noise,
        rhythm=availability == "day",
    )
    plan = replace(plan, task=None) if clock_only else plan
    chosen = policies or POLICY_NAMES
    result = simulate_selection(table, plan, chosen, show_progress(range(seeds), "seeds"))
    if as_json:
        print_json(
            {
                "simulated": table.simulated,
                "against_random": _ratios(result.outcomes),
                "rankings": vars(result.rankings) if result.rankings else None,
                "notes": result.notes,
                "outcomes": [vars(outcome) for outcome in result.outcomes],
            }
        )
        return
    _print_outcomes(result.outcomes, seeds)
    print_notes(result.notes)


def _ratios(outcomes: "Sequence[SimulationOutcome]") -> dict[str, dict[str, object]]:
    from orchestrator.app.select_clients import POLICY_METRICS, compare_policies

    return {
        policy: {
            metric.field: {
                "value": delta.value,
                "low": delta.low,
                "high": delta.high,
                "relative": metric.relative,
                "missed": delta.missed,
                "random_missed": delta.other_missed,
            }
            for metric in POLICY_METRICS
            if (delta := compare_policies(outcomes, policy, "random", metric)) is not None
        }
        for policy in dict.fromkeys(outcome.policy for outcome in outcomes)
    }


def _print_outcomes(outcomes: "Sequence[SimulationOutcome]", seeds: int) -> None:
    from statistics import fmean, median

    from orchestrator.app.select_clients import POLICY_METRICS, compare_policies

    rows = []
    for policy in dict.fromkeys(outcome.policy for outcome in outcomes):
        of_policy = [outcome for outcome in outcomes if outcome.policy == policy]
        deltas = [compare_policies(outcomes, policy, "random", m) for m in POLICY_METRICS[:4]]
        rows.append(
            [
                policy,
                f"{sum(outcome.reached for outcome in of_policy)}/{seeds}",
                f"{median(outcome.time_s for outcome in of_policy) / 60:.3g}",
                *("unknown" if delta is None else str(delta) for delta in deltas),
                f"{fmean(outcome.final_accuracy for outcome in of_policy):.3f}",
                f"{fmean(outcome.round_s for outcome in of_policy):.3g}",
                f"{fmean(outcome.mean_heat for outcome in of_policy):.2f}",
                f"{fmean(outcome.unfairness for outcome in of_policy):.2f}",
                f"{fmean(outcome.flat_batteries for outcome in of_policy):.1f}",
                f"{fmean(outcome.late_updates for outcome in of_policy):.1f}",
            ]
        )
    print_table(HEADINGS, rows, HIDE)
