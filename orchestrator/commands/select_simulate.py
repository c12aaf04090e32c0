"""`farm select simulate`: the policies tried in a small federated training on a virtual clock."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import json_option, print_json, print_table
from orchestrator.commands.select_census import (
    POLICY_NAMES,
    census_of,
    deadline_option,
    link_option,
    of_a_sweep,
)

if TYPE_CHECKING:
    from orchestrator.selection.ranking_agreement import RankingAgreement
    from orchestrator.selection.simulate import SimulationOutcome

WRONG_BY = 0.2  # the noise under which ours is tried once more


@click.command()
@of_a_sweep
@click.option("-k", "count", type=click.IntRange(1), default=10, show_default=True)
@click.option("--clients", type=click.IntRange(2, 10_000), default=200, show_default=True)
@click.option("--rounds", type=click.IntRange(1, 10_000), default=120, show_default=True)
@click.option("--seeds", type=click.IntRange(2, 1000), default=30, show_default=True)
@deadline_option
@link_option
@click.option(
    "--work",
    type=click.FloatRange(0, min_open=True),
    help="Samples that a phone trains on for each of the small task's; "
    "without it, so many that the median phone works half a minute.",
)
@click.option(
    "--noise",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    help="By which the server's figures are wrong, beyond their own intervals.",
)
@click.option(
    "--policy", "policies", multiple=True, type=click.Choice(POLICY_NAMES), help="Only these."
)
@json_option
def simulate(  # noqa: PLR0913, PLR0917 (click hands options over one by one)
    name: str,
    lab_folder: Path,
    workload: str | None,
    batch: int | None,
    mix: bool,
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
    """Try the policies in a small federated training on a virtual clock.

    Clients are drawn from the sweep's phones; every policy meets the same luck. The training is
    real, its clock is not: times are the sweep's figures, added up. Ours is tried once more with
    figures that are wrong by 20 %.
    """
    from orchestrator.commands.progress import counted
    from orchestrator.selection.policy_comparison import OURS
    from orchestrator.selection.ranking_agreement import ranking_agreement
    from orchestrator.selection.round_fleet import build_round_fleet
    from orchestrator.selection.round_state import RoundRequest
    from orchestrator.selection.simulate import SimulationPlan, rename_policy, simulate_policies

    census = census_of(name, lab_folder, workload, batch, mix)
    fleet = build_round_fleet(census.clients)
    want = RoundRequest(count, deadline, link_s, rounds)
    names = list(dict.fromkeys(["random", *(policies or POLICY_NAMES)]))
    outcomes: list[SimulationOutcome] = []
    for seed in counted(range(seeds), "seeds"):
        outcomes += simulate_policies(
            fleet, names, seed, SimulationPlan(want, clients, work, noise)
        )
        if OURS in names and noise < WRONG_BY:
            noisy = simulate_policies(
                fleet, [OURS], seed, SimulationPlan(want, clients, work, WRONG_BY)
            )
            outcomes += rename_policy(noisy, f"{OURS}, {WRONG_BY:.0%} wrong")
    rankings = ranking_agreement(census.clients)
    said = _sentences(outcomes, names, seeds, rankings)
    what = "simulated phones" if census.simulated else "what was measured"
    said.append(f"The training is real, its clock is not: times are those of {what}.")
    if as_json:
        print_json(
            {
                "simulated": census.simulated,
                "against_random": _ratios(outcomes),
                "rankings": vars(rankings) if rankings else None,
                "said": said,
                "outcomes": [vars(outcome) for outcome in outcomes],
            }
        )
        return
    _print_outcomes(outcomes, seeds)
    for line in said:
        click.echo(line, err=True)


def _sentences(
    outcomes: "Sequence[SimulationOutcome]",
    names: Sequence[str],
    seeds: int,
    rankings: "RankingAgreement | None",
) -> list[str]:
    """Who won, and what choosing by cold figures costs."""
    from orchestrator.selection.policy_comparison import (
        PolicyMetric,
        compare_policies,
        summarize_policies,
    )

    said = summarize_policies(outcomes, names, seeds)
    if rankings is None:
        said.append("What heat does to the ranking is not known: no two phones were measured hot.")
    else:
        count, most = rankings.worst
        said.append(
            f"Cold and sustained rankings of {rankings.phones} phones agree to Kendall's tau = "
            f"{rankings.tau:.2f}; hot rounds chosen by the cold one are {rankings.mean:.1%} longer "
            f"on average over cohorts of all sizes, {most:.1%} with {count}."
        )
    length = PolicyMetric("round_s", "length of a round", relative=True, better=-1)
    lost = compare_policies(outcomes, "fastest", "fastest-sustained", length)
    if lost is not None:
        said.append(
            f"In this training, rounds of the quickest by cold figures took {lost} times as long "
            "as those of the quickest by sustained ones."
        )
    return said


def _ratios(outcomes: "Sequence[SimulationOutcome]") -> dict[str, dict[str, object]]:
    from orchestrator.selection.policy_comparison import POLICY_METRICS, compare_policies

    return {
        policy: {
            goal.field: {
                "value": paired.value,
                "low": paired.low,
                "high": paired.high,
                "relative": goal.relative,
                "missed": paired.missed,
                "random_missed": paired.other_missed,
            }
            for goal in POLICY_METRICS
            if (paired := compare_policies(outcomes, policy, "random", goal)) is not None
        }
        for policy in dict.fromkeys(outcome.policy for outcome in outcomes)
    }


def _print_outcomes(outcomes: "Sequence[SimulationOutcome]", seeds: int) -> None:
    import numpy as np

    from orchestrator.selection.policy_comparison import POLICY_METRICS, compare_policies

    def mean(mine: "Sequence[SimulationOutcome]", figure: str) -> float:
        return float(np.mean([getattr(outcome, figure) for outcome in mine]))

    rows = []
    for policy in dict.fromkeys(outcome.policy for outcome in outcomes):
        mine = [outcome for outcome in outcomes if outcome.policy == policy]
        held = [compare_policies(outcomes, policy, "random", goal) for goal in POLICY_METRICS[:4]]
        rows.append(
            [
                policy,
                f"{sum(outcome.reached for outcome in mine)}/{seeds}",
                f"{np.median([outcome.time_s for outcome in mine]) / 60:.3g}",
                *("not known" if paired is None else str(paired) for paired in held),
                f"{mean(mine, 'final_accuracy'):.3f}",
                f"{mean(mine, 'round_s'):.3g}",
                f"{mean(mine, 'unfairness'):.2f}",
                f"{mean(mine, 'flat_batteries'):.1f}",
                f"{mean(mine, 'late_updates'):.1f}",
            ]
        )
    ratios = [f"{what} / random" for what in ("time", "energy", "rounds")]
    headings = ["policy", "reached", "minutes", *ratios, "accuracy - random", "accuracy"]
    print_table([*headings, "round s", "Gini", "flat", "late"], rows)
