"""`farm help`: help pages that are longer than the help of a command."""

import importlib
import inspect

import click

from orchestrator.commands.exit_codes import MEANINGS

# Modules whose docstrings are written for users.
PAGES = {
    "sweep-file": "orchestrator.sweepfile.sweep_file",
    "selectors": "orchestrator.sweepfile.selector",
}
TOPICS = ("exit-codes", *PAGES)


@click.command("help")
@click.argument("topic", type=click.Choice(TOPICS), required=False)
@click.pass_context
def topics(ctx: click.Context, topic: str | None) -> None:
    """Explain exit codes, sweep files or selectors.

    Example: farm help sweep-file
    """
    if topic is None:
        parent = ctx.parent or ctx
        click.echo(parent.get_help())
        click.echo(f"\nMore: farm help {' | '.join(TOPICS)}")
    elif topic in PAGES:
        click.echo(inspect.getdoc(importlib.import_module(PAGES[topic])))
    else:
        for code, meaning in MEANINGS.items():
            click.echo(f"{code:>4}  {meaning}")
