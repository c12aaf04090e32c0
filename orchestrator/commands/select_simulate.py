"""`farm select simulate`: compares the policies in a small federated training."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import json_option, print_json, print_table
from orchestrator.commands.select_options import (
    POLICY_NAMES,
    deadline_option,
    link_option,
    print_notes,
    read_clients,
    workload_options,
)

if TYPE_CHECKING:
    from orchestrator.app.select_clients import SimulationOutcome

HEADINGS = (
    *("POLICY", "REACHED", "MINUTES", "TIME / RANDOM", "ENERGY / RANDOM", "ROUNDS / RANDOM"),
    *("ACCURACY - RANDOM", "ACCURACY", "ROUND S", "UNFAIRNESS", "EMPTY BATTERIES", "LATE UPDATES"),
)


@click.command()
@workload_options
@click.option(
    "-k",
    "count",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="Phones per round.",
)
@click.option(
    "--clients",
    type=click.IntRange(2, 10_000),
    default=200,
    show_default=True,
    help="Size of the simulated fleet.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 10_000),
    default=120,
    show_default=True,
    help="Largest number of rounds.",
)
@click.option(
    "--seeds",
    type=click.IntRange(2, 1000),
    default=30,
    show_default=True,
    help="Number of repetitions with different random seeds.",
)
@deadline_option
@link_option
@click.option(
    "--work",
    type=click.FloatRange(0, min_open=True),
    help="Real samples per sample of the small task. Default: as many as let the median phone "
    "train for 30 s per round.",
)
@click.option(
    "--noise",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    help="Relative error added to the server's estimates.",
)
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
    link_s: float,
    work: float | None,
    noise: float,
    policies: tuple[str, ...],
    as_json: bool,
) -> None:
    """Compare the policies in a small federated training.

    Clients are drawn from the sweep's phones, the same for every policy. A small model is
    really trained; the time of each round is computed from the sweep's measurements. The policy
    frugal is also run with measurements that are wrong by 20 %.

    REACHED counts the seeds in which the target accuracy was reached; UNFAIRNESS is the Gini
    coefficient of the clients' participation; the last two columns are means per seed.

    Example: farm select simulate demo --seeds 10 --clients 100
    """
    from orchestrator.app.select_clients import RoundRequest, SimulationPlan, simulate_selection
    from orchestrator.commands.progress import show_progress

    table = read_clients(name, lab_folder, workload, batch, allow_mixed)
    plan = SimulationPlan(RoundRequest(count, deadline, link_s, rounds), clients, work, noise)
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
                f"{fmean(outcome.unfairness for outcome in of_policy):.2f}",
                f"{fmean(outcome.flat_batteries for outcome in of_policy):.1f}",
                f"{fmean(outcome.late_updates for outcome in of_policy):.1f}",
            ]
        )
    print_table(HEADINGS, rows)
