"""`farm completion`: what Tab can know."""

import os
from pathlib import Path

import click
from click.shell_completion import CompletionItem, get_completion_class

HOW = {
    "bash": 'eval "$(farm completion bash)"        # in ~/.bashrc',
    "zsh": 'eval "$(farm completion zsh)"         # in ~/.zshrc, after compinit',
    "fish": "farm completion fish | source         # in ~/.config/fish/config.fish",
}


@click.command()
@click.argument("shell", type=click.Choice(list(HOW)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a SHELL: bash, zsh or fish.

    \b
    eval "$(farm completion bash)"     in ~/.bashrc
    eval "$(farm completion zsh)"      in ~/.zshrc, after compinit
    farm completion fish | source      in ~/.config/fish/config.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    root = ctx.find_root()
    click.echo(kind(root.command, {}, "farm", "_FARM_COMPLETE").source())


def complete_sweep(
    ctx: click.Context, parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Sweeps that the board names; silence when there is none."""
    board = _board(ctx)
    return [
        CompletionItem(word, help=f"{sweep['done']}/{sweep['total']} runs")
        for sweep in board.get("sweeps", [])
        for word in (sweep["id"], sweep["name"])
        if word.startswith(begun)
    ]


def complete_phone(
    ctx: click.Context, parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Phones that hosts tell of right now."""
    from orchestrator.dispatch.central_broker import CentralBroker
    from workloads.lab_settings import Lab
    from workloads.protocol.faults import FarmError

    try:
        lab = Lab.read(_folder(ctx), dict(os.environ))
        beats = CentralBroker(lab.broker_url).heartbeats()
    except FarmError:
        return []
    serials = sorted(phone.serial for beat in beats for phone in beat.phones)
    return [CompletionItem(serial) for serial in serials if serial.startswith(begun)]


def complete_study(ctx: click.Context, param: click.Parameter, begun: str) -> list[CompletionItem]:
    """Names of studies."""
    from orchestrator.study.study_catalogue import all_studies

    return [CompletionItem(name) for name in all_studies() if name.startswith(begun)]


def _board(ctx: click.Context) -> dict[str, list[dict[str, str]]]:
    from orchestrator.dispatch.central_broker import CentralBroker
    from workloads.lab_settings import Lab
    from workloads.protocol.faults import FarmError

    try:
        return CentralBroker(Lab.read(_folder(ctx), dict(os.environ)).broker_url).status() or {}
    except FarmError:
        return {}


def _folder(ctx: click.Context) -> Path:
    said = ctx.params.get("lab_folder") or os.environ.get("FARM_LAB") or "lab"
    return Path(str(said))
