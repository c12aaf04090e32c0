"""`farm completion`: shell completion of commands, sweeps, phones, workloads and studies."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

if TYPE_CHECKING:
    from orchestrator.app.lab_connection import LabConnection

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for a SHELL: bash, zsh or fish.

    \b
    Examples:
      eval "$(farm completion bash)"     in ~/.bashrc
      eval "$(farm completion zsh)"      in ~/.zshrc, after compinit
      farm completion fish | source      in ~/.config/fish/config.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    root = ctx.find_root()
    click.echo(kind(root.command, {}, "farm", "_FARM_COMPLETE").source())


def complete_sweep(
    ctx: click.Context, parameter: click.Parameter, prefix: str
) -> list[CompletionItem]:
    """Complete the ids and names of the newest sweeps; nothing if the lab is down."""
    from orchestrator.app.read_status import read_status_board
    from workloads.protocol.faults import FarmError

    try:
        board = read_status_board(_connect(ctx))
    except FarmError:
        return []
    return [
        CompletionItem(name, help=f"{sweep.done}/{sweep.total} runs")
        for sweep in (board.sweeps if board else ())
        for name in (sweep.id, sweep.name)
        if name.startswith(prefix)
    ]


def complete_phone(
    ctx: click.Context, parameter: click.Parameter, prefix: str
) -> list[CompletionItem]:
    """Complete the serial numbers of connected phones; nothing if the lab is down."""
    from orchestrator.app.read_status import list_connected_phones
    from workloads.protocol.faults import FarmError

    try:
        serials = sorted(phone.serial for phone in list_connected_phones(_connect(ctx)))
    except FarmError:
        return []
    return [CompletionItem(serial) for serial in serials if serial.startswith(prefix)]


def complete_workload(
    ctx: click.Context, parameter: click.Parameter, prefix: str
) -> list[CompletionItem]:
    """Complete the names of workloads."""
    from workloads.catalogue import CATALOGUE

    return [
        CompletionItem(name, help=item.text)
        for name, item in CATALOGUE.items()
        if name.startswith(prefix)
    ]


def complete_study(
    ctx: click.Context, parameter: click.Parameter, prefix: str
) -> list[CompletionItem]:
    """Complete the names of studies."""
    from orchestrator.app.run_study import all_studies

    return [CompletionItem(name) for name in all_studies() if name.startswith(prefix)]


def _connect(ctx: click.Context) -> "LabConnection":
    from orchestrator.commands.common import connect

    folder = ctx.params.get("lab_folder") or os.environ.get("FARM_LAB") or "lab"
    return connect(Path(str(folder)))
