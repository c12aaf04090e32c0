"""`farm help`: help pages that are longer than the help of a command."""

import importlib
import inspect
from dataclasses import asdict

import click
from click.shell_completion import get_completion_class

from orchestrator.commands.common import json_option, print_json
from orchestrator.commands.exit_codes import MEANINGS
from workloads.command_output import say

TOPICS = ("exit-codes", "sweep-file", "selectors", "metrics", "completion")
SHELLS = ("bash", "zsh", "fish")


@click.command("help")
@click.argument("topic", type=click.Choice(TOPICS), required=False)
@click.argument("shell", type=click.Choice(SHELLS), required=False)
@json_option
@click.pass_context
def topics(ctx: click.Context, topic: str | None, shell: str | None, as_json: bool) -> None:
    """Explain a TOPIC, or print the completion script for a SHELL.

    \b
    Examples:
      farm help sweep-file
      farm help metrics --json
      eval "$(farm help completion bash)"     in ~/.bashrc
      eval "$(farm help completion zsh)"      in ~/.zshrc, after compinit
      farm help completion fish | source      in ~/.config/fish/config.fish
    """
    if (topic == "completion") != (shell is not None):
        raise click.UsageError(f"'farm help completion' takes a shell: {', '.join(SHELLS)}")
    if as_json and topic != "metrics":
        raise click.UsageError("--json is for 'farm help metrics'")
    if topic is None:
        parent = ctx.parent or ctx
        click.echo(parent.get_help())
        say(f"\nMore: farm help {' | '.join(TOPICS)}")
    elif topic == "sweep-file":
        click.echo(importlib.import_module("orchestrator.sweepfile.key_tables").help_text())
    elif topic == "selectors":
        click.echo(inspect.getdoc(importlib.import_module("orchestrator.sweepfile.selector")))
    elif topic == "metrics":
        _print_metrics(as_json)
    elif shell is not None:
        kind = get_completion_class(shell)
        assert kind is not None
        click.echo(kind(ctx.find_root().command, {}, "farm", "_FARM_COMPLETE").source())
    else:
        for code, meaning in MEANINGS.items():
            click.echo(f"{code:>4}  {meaning}")


def _print_metrics(as_json: bool) -> None:
    """Print all metrics: unit, family, meaning and formula."""
    from workloads.protocol.metrics import METRICS, metrics_table

    if as_json:
        print_json({name: asdict(kind) for name, kind in METRICS.items()})
    else:
        click.echo(metrics_table())
