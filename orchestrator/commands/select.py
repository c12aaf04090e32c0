"""`farm select`: which phones should train together, and what would come of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import (
    json_option,
    lab_option,
    open_store,
    print_json,
    print_table,
    read_lab,
)
from workloads.fault import Refused

if TYPE_CHECKING:
    from orchestrator.export.federated.consumer import Belief, Link
    from orchestrator.selection.advice import Advice, Expected
    from orchestrator.selection.client import Census
    from orchestrator.selection.simulate import Outcome

POLICY_NAMES = ("random", "fastest", "fastest-sustained", "fedcs", "tifl", "oort", "frugal")
CONSUMER_NAMES = ("fedscale", "oort", "flash", "flower", "table")


class _Select(click.Group):
    """`farm select SWEEP` chooses; further verbs have a name of their own."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["choose", *args]
        return super().resolve_command(ctx, args)


@click.group(cls=_Select)
def select() -> None:
    """Choose phones for federated training from a SWEEP's reports.

    'farm select SWEEP' is short for 'farm select choose SWEEP'.
    """


_case_options = (
    click.argument("name", metavar="SWEEP"),
    lab_option,
    click.option("--workload", help="Which one, where the sweep has several."),
    click.option("--batch", type=click.IntRange(1), help="Which batch size."),
)


def _of_a_sweep(command: click.decorators.FC) -> click.decorators.FC:
    for option in reversed(_case_options):
        command = option(command)
    return command


@select.command()
@_of_a_sweep
@click.option("--policy", type=click.Choice(POLICY_NAMES), default="frugal", show_default=True)
@click.option("-k", "count", type=click.IntRange(1), default=3, show_default=True, help="Phones.")
@click.option(
    "--samples",
    type=click.FloatRange(1),
    default=1000,
    show_default=True,
    help="Local work of a round on each phone.",
)
@click.option("--deadline", type=click.FloatRange(0, min_open=True), help="Of a round, seconds.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of whatever is drawn.")
@json_option
def choose(  # noqa: PLR0913, PLR0917 (click hands options over one by one)
    name: str,
    lab_folder: Path,
    workload: str | None,
    batch: int | None,
    policy: str,
    count: int,
    samples: float,
    deadline: float | None,
    seed: int,
    as_json: bool,
) -> None:
    """Choose phones for one round, with a reason each."""
    from orchestrator.selection.advice import advise
    from orchestrator.selection.policies import Want

    census = _census(name, lab_folder, workload, batch)
    advice = advise(census, policy, Want(count, deadline), samples, seed)
    if as_json:
        print_json(_advice_json(census, advice))
        return
    print_table(
        ["phone", "model", "with", "round s", "why"],
        [
            [c.client.phone, c.client.model, c.client.setting, f"{c.seconds:.3g}", c.why]
            for c in advice.chosen
        ],
    )
    for line in _sentences(census, advice, count):
        click.echo(line, err=True)


def _census(name: str, lab_folder: Path, workload: str | None, batch: int | None) -> "Census":
    from orchestrator.selection.client import take_census
    from orchestrator.store.queries import find_sweep, measured_runs

    db = open_store(read_lab(lab_folder))
    census = take_census(measured_runs(db, find_sweep(db, name).id), workload, batch)
    if not census.clients:
        reasons = "; ".join(f"{phone}: {why}" for phone, why in census.left_out)
        raise Refused(f"no phone can be chosen: {reasons}")
    return census


def _sentences(census: "Census", advice: "Advice", count: int) -> list[str]:
    """What a person should know beside the table."""
    said = []
    if len(advice.chosen) < count:
        said.append(f"Only {len(advice.chosen)} of {count} phones could be chosen.")
    if advice.round_s is not None:
        said.append(f"A round is expected to take {_interval(advice.round_s)} s.")
    if advice.energy_j is not None:
        said.append(f"It is expected to cost {_interval(advice.energy_j)} J in all.")
    said += [f"Not {phone}: {why}." for phone, why in advice.refused]
    said += [f"Not known: {what}." for what in census.missing]
    if advice.measure_next is not None:
        phone, why = advice.measure_next
        said.append(f"Measure {phone} next: {why}.")
    if census.simulated:
        said.append("All of this is simulated; no phone was measured.")
    return said


def _interval(expected: "Expected") -> str:
    return f"{expected.value:.3g} ({expected.low:.3g} to {expected.high:.3g})"


def _advice_json(census: "Census", advice: "Advice") -> dict[str, object]:
    return {
        "workload": census.workload,
        "batch": census.batch,
        "policy": advice.policy,
        "simulated": census.simulated,
        "chosen": [
            {
                "phone": chosen.client.phone,
                "model": chosen.client.model,
                "setting": chosen.client.setting,
                "round_s": chosen.seconds,
                "why": chosen.why,
            }
            for chosen in advice.chosen
        ],
        "round_s": vars(advice.round_s) if advice.round_s else None,
        "energy_j": vars(advice.energy_j) if advice.energy_j else None,
        "not": dict(advice.refused),
        "missing": census.missing,
        "measure_next": advice.measure_next,
    }


@select.command()
@_of_a_sweep
@click.option("-k", "count", type=click.IntRange(1), default=10, show_default=True)
@click.option("--clients", type=click.IntRange(2, 100_000), default=200, show_default=True)
@click.option("--rounds", type=click.IntRange(1, 10_000), default=120, show_default=True)
@click.option("--seeds", type=click.IntRange(2, 1000), default=30, show_default=True)
@click.option("--deadline", type=click.FloatRange(0, min_open=True), help="Of a round, seconds.")
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
    count: int,
    clients: int,
    rounds: int,
    seeds: int,
    deadline: float | None,
    work: float | None,
    noise: float,
    policies: tuple[str, ...],
    as_json: bool,
) -> None:
    """Try the policies in a small federated training on a virtual clock.

    Clients are drawn from the sweep's phones; every policy meets the same luck. The training is
    real, its clock is not: times are the sweep's figures, added up.
    """
    from orchestrator.commands.progress import counted
    from orchestrator.selection.fleet import line_up
    from orchestrator.selection.policies import Want
    from orchestrator.selection.ranking import hold_rankings_together
    from orchestrator.selection.simulate import Plan, make_world, run_once

    census = _census(name, lab_folder, workload, batch)
    fleet = line_up(census.clients)
    plan = Plan(Want(count, deadline), clients, rounds, work, noise)
    names = list(dict.fromkeys(["random", *(policies or POLICY_NAMES)]))
    outcomes: list[Outcome] = []
    for seed in counted(range(seeds), "seeds"):
        world = make_world(fleet, seed, plan)
        outcomes += [run_once(policy, seed, world, plan) for policy in names]
    rankings = hold_rankings_together(census.clients, max(1, len(census.clients) // 2))
    if as_json:
        print_json(
            {
                "simulated": census.simulated,
                "outcomes": [vars(outcome) for outcome in outcomes],
                "rankings": vars(rankings) if rankings else None,
            }
        )
        return
    _print_outcomes(outcomes, names, seeds)
    if rankings is not None:
        click.echo(
            f"Cold and sustained rankings agree to tau = {rankings.tau:.2f}; a hot round of the "
            f"{rankings.count} quickest takes {rankings.lost:.1%} longer when chosen cold.",
            err=True,
        )
    what = "simulated phones" if census.simulated else "what was measured"
    click.echo(f"The training is real, its clock is not: times are those of {what}.", err=True)


def _print_outcomes(outcomes: "Sequence[Outcome]", names: Sequence[str], seeds: int) -> None:
    import numpy as np

    from orchestrator.selection.simulate import against_random

    rows = []
    for policy in names:
        mine = [outcome for outcome in outcomes if outcome.policy == policy]
        ratios = [against_random(outcomes, policy, figure) for figure in ("time_s", "energy_j")]
        rows.append(
            [
                policy,
                f"{sum(outcome.reached for outcome in mine)}/{seeds}",
                f"{np.median([outcome.rounds for outcome in mine]):.0f}",
                *(
                    f"{'≥ ' if r.unreached else ''}{r.value:.2f} ({r.low:.2f} to {r.high:.2f})"
                    for r in ratios
                ),
                f"{np.mean([outcome.final_accuracy for outcome in mine]):.3f}",
                f"{np.mean([outcome.round_s for outcome in mine]):.3g}",
                f"{np.mean([outcome.unfairness for outcome in mine]):.2f}",
                f"{np.mean([outcome.flat for outcome in mine]):.1f}",
                f"{np.mean([outcome.late for outcome in mine]):.1f}",
            ]
        )
    headings = ["policy", "reached", "rounds", "time / random", "energy / random"]
    print_table([*headings, "accuracy", "round s", "unfair", "flat", "late"], rows)


@select.command(name="export")
@_of_a_sweep
@click.option("--to", "consumer", type=click.Choice(CONSUMER_NAMES), required=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Folder to write into.")
@click.option("--link-kbps", metavar="DOWN[/UP]", help="The network, which the farm cannot see.")
@click.option("--allow-simulated", is_flag=True, help="Write simulated figures; the names say so.")
def export_fleet(  # noqa: PLR0913, PLR0917 (click hands options over one by one)
    name: str,
    lab_folder: Path,
    workload: str | None,
    batch: int | None,
    consumer: str,
    output: Path | None,
    link_kbps: str | None,
    allow_simulated: bool,
) -> None:
    """Write the fleet for a federated-learning simulator, and read it back as it will."""
    from orchestrator.export.federated import CONSUMERS, write_for

    census = _census(name, lab_folder, workload, batch)
    folder = output or Path(f"{name}-{consumer}")
    link = _link(link_kbps) if link_kbps else None
    written = write_for(CONSUMERS[consumer], census, folder, link, allow_simulated)
    for path in written.files:
        click.echo(str(path))
    _judge(written.beliefs, CONSUMERS[consumer].title)


def _link(text: str) -> "Link":
    from orchestrator.export.federated.consumer import Link

    try:
        down, _, up = text.partition("/")
        link = Link(float(down), float(up or down))
        if min(link.down_kbps, link.up_kbps) > 0:
            return link
    except ValueError:
        pass
    raise Refused(f"'{text}' is no speed; write --link-kbps 20000 or 20000/5000")


@select.command()
@click.argument("folder", type=click.Path(path_type=Path))
def verify(folder: Path) -> None:
    """Read an export in FOLDER as its consumer does; hold that against what was measured."""
    from orchestrator.export.federated.consumer import verify as read_back

    title, beliefs = read_back(folder)
    print_table(
        ["phone", "believed ms a batch", "measured ms a batch", "off"],
        [
            [b.phone, f"{b.believed_ms:.5g}", f"{b.measured_ms:.5g}", f"{b.off:.2%}"]
            for b in beliefs
        ],
    )
    _judge(beliefs, title)


def _judge(beliefs: "Sequence[Belief]", title: str) -> None:
    from orchestrator.export.federated.consumer import AGREES_WITHIN

    worst = max(belief.off for belief in beliefs)
    if worst > AGREES_WITHIN:
        raise Refused(f"{title} would be off by up to {worst:.1%}: the export is wrong")
    click.echo(f"{title} will believe what was measured, to {worst:.2%}.", err=True)
