"""Options that the commands of `farm select` share: sweep, workload, batch, round."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import connect, lab_option
from workloads.cli_options import COUNT, DurationUpTo, FiniteRange, value_option

if TYPE_CHECKING:
    from orchestrator.app.select_clients import ClientTable

POLICY_NAMES = (
    *("random", "fastest", "fastest-sustained", "fedcs", "power-of-choice", "oort", "frugal"),
)

SECONDS_MAX = 1_000_000
SAMPLES_MAX = 1_000_000_000
_workload_options = (
    click.argument("name", metavar="SWEEP"),
    lab_option,
    click.option("--workload", help="Workload, if the sweep has several."),
    click.option("--batch-size", "batch", type=COUNT, help="Batch size, if the sweep has several."),
    click.option(
        "--allow-mixed", is_flag=True, help="Allow mixing phones with different control levels."
    ),
)
link_option = value_option(
    "--link-time",
    "link_s",
    type=DurationUpTo(SECONDS_MAX, or_zero=True),
    default="0s",
    help="Time that a phone takes to download the model and upload its update.",
)
deadline_option = click.option(
    "--deadline",
    type=DurationUpTo(SECONDS_MAX),
    help="Deadline of a round, such as 90s.",
)

round_seconds_option = value_option(
    "--round",
    "round_seconds",
    type=DurationUpTo(SECONDS_MAX),
    default="30s",
    help="Training time per round on the median phone while it is cool.",
)
_duty_options = (
    click.option(
        "--samples",
        type=FiniteRange(1, SAMPLES_MAX),
        help="Samples per phone and round. Default: as many as fit into --round.",
    ),
    round_seconds_option,
    click.option(
        "--rest",
        "rest_seconds",
        type=DurationUpTo(SECONDS_MAX, or_zero=True),
        help="Pause between two rounds of a phone. Default: until it is cool.",
    ),
)


def duty_options(command: click.decorators.FC) -> click.decorators.FC:
    """Add the options for the work of the phones per round, and for their pauses."""
    for option in reversed(_duty_options):
        command = option(command)
    return command


def workload_options(command: click.decorators.FC) -> click.decorators.FC:
    """Add the options that select one workload of one sweep."""
    for option in reversed(_workload_options):
        command = option(command)
    return command


def read_clients(
    name: str, lab_folder: Path, workload: str | None, batch: int | None, allow_mixed: bool
) -> "ClientTable":
    """Read the clients that a sweep measured."""
    from orchestrator.app import select_clients

    choice = select_clients.WorkloadChoice(name, workload, batch, allow_mixed)
    return select_clients.read_clients(connect(lab_folder), choice)


def print_notes(notes: Sequence[str]) -> None:
    """Print notes below a table."""
    for note in notes:
        click.echo(note, err=True)
