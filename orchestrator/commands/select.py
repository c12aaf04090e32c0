"""`farm select`: which phones should train together, and what would come of it."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import (
    json_option,
    open_broker,
    print_json,
    print_table,
    read_lab,
)
from orchestrator.commands.select_census import (
    POLICY_NAMES,
    census_of,
    deadline_option,
    link_option,
    of_a_sweep,
)
from orchestrator.commands.select_export import export_fleet, verify
from orchestrator.commands.select_simulate import simulate

if TYPE_CHECKING:
    from orchestrator.selection.client_types import ClientTable
    from orchestrator.selection.recommend import ClientState, Recommendation, RoundEstimate


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


select.add_command(simulate)
select.add_command(export_fleet)
select.add_command(verify)


@select.command()
@of_a_sweep
@click.option("--policy", type=click.Choice(POLICY_NAMES), default="frugal", show_default=True)
@click.option("-k", "count", type=click.IntRange(1), default=3, show_default=True, help="Phones.")
@click.option(
    "--samples",
    type=click.FloatRange(1),
    help="Local work of a round on each phone; without it, half a minute of the median phone.",
)
@deadline_option
@link_option
@click.option(
    "--after",
    "after_s",
    type=click.FloatRange(0),
    default=0.0,
    show_default=True,
    help="Seconds that the phones have been training without a pause: they are that hot.",
)
@click.option(
    "--now",
    "as_now",
    is_flag=True,
    help="As warm, as charged and as present as the phones of a running lab are now.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of whatever is drawn.")
@json_option
def choose(  # noqa: PLR0913, PLR0917 (click hands options over one by one)
    name: str,
    lab_folder: Path,
    workload: str | None,
    batch: int | None,
    mix: bool,
    policy: str,
    count: int,
    samples: float | None,
    deadline: float | None,
    link_s: float,
    after_s: float,
    as_now: bool,
    seed: int,
    as_json: bool,
) -> None:
    """Choose phones for one round, with a reason each."""
    from orchestrator.selection.recommend import LocalWork, recommend_clients
    from orchestrator.selection.round_state import RoundRequest

    census = census_of(name, lab_folder, workload, batch, mix)
    work = LocalWork(samples, after_s, _now(lab_folder) if as_now else None)
    advice = recommend_clients(census, policy, RoundRequest(count, deadline, link_s), work, seed)
    if as_json:
        print_json(_advice_json(census, advice))
        return
    print_table(
        ["phone", "model", "with", "round s", "why"],
        [
            [c.client.phone, c.client.model, c.client.setting, f"{c.seconds:.3g}", c.reason]
            for c in advice.chosen
        ],
    )
    for line in _sentences(census, advice, count):
        click.echo(line, err=True)


def _now(lab_folder: Path) -> "dict[str, ClientState]":
    """How the phones of a running lab are, by their hosts' heartbeats."""
    from orchestrator.selection.recommend import ClientState

    return {
        phone.serial: ClientState(
            phone.temp_c,
            None if phone.battery_pct is None else phone.battery_pct / 100,
            phone.state == "away",
        )
        for presence in open_broker(read_lab(lab_folder)).heartbeats()
        for phone in presence.phones
    }


def _sentences(census: "ClientTable", advice: "Recommendation", count: int) -> list[str]:
    """What a person should know beside the table."""
    said = []
    if len(advice.chosen) < count:
        said.append(f"Only {len(advice.chosen)} of {count} phones could be chosen.")
    if advice.round_s is not None:
        said.append(
            f"A round of {advice.samples:.0f} samples on each is expected to take "
            f"{_interval(advice.round_s)} s."
        )
    if advice.energy_j is not None:
        said.append(f"It is expected to cost {_interval(advice.energy_j)} J in all.")
    said += [f"Not {item.phone}: {item.text}." for item in advice.excluded]
    said += [f"Missing: {item.text}." for item in census.missing]
    if advice.measure_next is not None:
        said.append(f"Measure {advice.measure_next.phone} next: {advice.measure_next.text}.")
    if census.simulated:
        said.append(
            "All of this is simulated; no phone was measured, and measuring means a real one."
        )
    return said


def _interval(expected: "RoundEstimate") -> str:
    return f"{expected.value:.3g} ({expected.low:.3g} to {expected.high:.3g})"


def _advice_json(census: "ClientTable", advice: "Recommendation") -> dict[str, object]:
    return {
        "workload": census.workload,
        "batch": census.batch,
        "policy": advice.policy,
        "samples": advice.samples,
        "simulated": census.simulated,
        "chosen": [
            {
                "phone": chosen.client.phone,
                "model": chosen.client.model,
                "setting": chosen.client.setting,
                "round_s": chosen.seconds,
                "reason": chosen.reason,
            }
            for chosen in advice.chosen
        ],
        "round_s": vars(advice.round_s) if advice.round_s else None,
        "energy_j": vars(advice.energy_j) if advice.energy_j else None,
        "excluded": [vars(item) for item in advice.excluded],
        "missing": [{**vars(item), "text": item.text} for item in census.missing],
        "measure_next": vars(advice.measure_next) if advice.measure_next else None,
    }
