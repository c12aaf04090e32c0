"""`farm select`: chooses phones for federated training."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import connect, json_option, print_json, print_table
from orchestrator.commands.select_export import export_fleet, verify
from orchestrator.commands.select_options import (
    POLICY_NAMES,
    SECONDS_MAX,
    deadline_option,
    duty_options,
    link_option,
    print_notes,
    read_clients,
    workload_options,
)
from orchestrator.commands.select_simulate import simulate
from workloads.cli_options import COUNT, SEED, DurationUpTo, value_option

if TYPE_CHECKING:
    from orchestrator.app.select_clients import ClientTable, Recommendation, RoundEstimate


class _SelectGroup(click.Group):
    """A group in which `farm select SWEEP` means `farm select choose SWEEP`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["choose", *args]
        return super().resolve_command(ctx, args)


@click.group(cls=_SelectGroup)
def select() -> None:
    """Choose phones for federated training from the results of a SWEEP.

    'farm select SWEEP' is short for 'farm select choose SWEEP'.
    """


select.add_command(simulate)
select.add_command(export_fleet)
select.add_command(verify)


@select.command()
@workload_options
@value_option(
    "--policy", type=click.Choice(POLICY_NAMES), default="frugal", help="Selection policy."
)
@value_option("-k", "count", type=COUNT, default=3, help="Number of phones.")
@duty_options
@deadline_option
@link_option
@value_option(
    "--heated-for",
    "heated_s",
    type=DurationUpTo(SECONDS_MAX, or_zero=True),
    default="0s",
    help="Assume that the phones have already trained for this time (thermal state).",
)
@click.option(
    "--live",
    is_flag=True,
    help="Use current temperature, battery and availability from the running lab.",
)
@value_option("--seed", type=SEED, default=0, help="Random seed.")
@json_option
def choose(  # noqa: PLR0913, PLR0917 (click passes options one by one)
    name: str,
    lab_folder: Path,
    workload: str | None,
    batch: int | None,
    allow_mixed: bool,
    policy: str,
    count: int,
    samples: float | None,
    round_seconds: float,
    rest_seconds: float | None,
    deadline: float | None,
    link_s: float,
    heated_s: float,
    live: bool,
    seed: int,
    as_json: bool,
) -> None:
    """Choose phones for one round, each with the reason.

    \b
    Examples:
      farm select demo -k 3
      farm select demo -k 3 --round 5m --rest 60s
    """
    from orchestrator.app import select_clients as clients

    table = read_clients(name, lab_folder, workload, batch, allow_mixed)
    states = clients.client_states(connect(lab_folder)) if live else None
    advice = clients.choose_clients(
        table,
        policy,
        clients.RoundRequest(count, deadline),
        clients.LocalWork(samples, round_seconds, rest_seconds, heated_s, link_s, states),
        seed,
    )
    if as_json:
        print_json(_json_document(table, advice))
        return
    print_table(
        ["PHONE", "MODEL", "SETTING", "ROUND S", "REASON"],
        [
            [c.client.phone, c.client.model, c.client.setting, f"{c.seconds:.3g}", c.reason]
            for c in advice.chosen
        ],
    )
    print_notes(_notes(table, advice, count))


def _notes(table: "ClientTable", advice: "Recommendation", count: int) -> list[str]:
    notes = []
    if len(advice.chosen) < count:
        notes.append(f"Only {len(advice.chosen)} of {count} phones could be chosen.")
    if advice.round_s is not None:
        notes.append(
            f"Expected time of a round of {advice.samples:.0f} samples per phone: "
            f"{_interval(advice.round_s)} s."
        )
    if advice.energy_j is not None:
        notes.append(f"Expected energy of all phones: {_interval(advice.energy_j)} J.")
    notes += [f"Not chosen: {item.phone}: {item.text}." for item in advice.excluded]
    notes += [f"Missing: {item.text}." for item in table.missing]
    if advice.measure_next is not None:
        notes.append(f"Measure {advice.measure_next.phone} next: {advice.measure_next.text}.")
    if table.simulated:
        notes.append("All figures are simulated; no physical phone was measured.")
    return notes


def _interval(estimate: "RoundEstimate") -> str:
    value, low, high = (float(f"{number:.3g}") for number in vars(estimate).values())
    return f"{value:g} ({low:g} to {high:g})"


def _json_document(table: "ClientTable", advice: "Recommendation") -> dict[str, object]:
    return {
        "workload": table.workload,
        "batch": table.batch,
        "policy": advice.policy,
        "samples": advice.samples,
        "simulated": table.simulated,
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
        "missing": [{**vars(item), "text": item.text} for item in table.missing],
        "measure_next": vars(advice.measure_next) if advice.measure_next else None,
    }
