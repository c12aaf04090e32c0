"""Options that the commands of `farm select` share: sweep, workload, batch, round."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import connect, lab_option
from workloads.cli_options import COUNT, FiniteRange, value_option

if TYPE_CHECKING:
    from orchestrator.app.select_clients import ClientTable

POLICY_NAMES = (
    *("random", "fastest", "fastest-sustained", "fedcs", "tifl", "power-of-choice", "oort"),
    "frugal",
)

SECONDS_MAX = 1_000_000
SAMPLES_MAX = 1_000_000_000
_workload_options = (
    click.argument("name", metavar="SWEEP"),
    lab_option,
    click.option("--workload", help="Workload, if the sweep has several."),
    click.option("--batch", type=COUNT, help="Batch size, if the sweep has several."),
    click.option(
        "--allow-mixed", is_flag=True, help="Allow mixing phones with different control levels."
    ),
)
link_option = value_option(
    "--link-s",
    type=FiniteRange(0, SECONDS_MAX),
    default=0.0,
    help="Seconds that a phone takes to download the model and upload its update.",
)
deadline_option = click.option(
    "--deadline",
    type=FiniteRange(0, SECONDS_MAX, min_open=True),
    help="Round deadline in seconds.",
)

round_seconds_option = value_option(
    "--round-seconds",
    type=FiniteRange(0, SECONDS_MAX, min_open=True),
    default=30.0,
    help="Training time per round on the median phone while it is cool.",
)
_duty_options = (
    click.option(
        "--samples",
        type=FiniteRange(1, SAMPLES_MAX),
        help="Samples per phone and round. Default: as many as fit into --round-seconds.",
    ),
    round_seconds_option,
    click.option(
        "--rest-seconds",
        type=FiniteRange(0, SECONDS_MAX),
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
