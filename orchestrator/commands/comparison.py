"""How commands print a fleet comparison."""

import sys
from collections.abc import Sequence

import click

from orchestrator.nouns import MeasuredRun


def print_comparison(runs: Sequence[MeasuredRun]) -> None:
    """Print the fleet table: Rich on a terminal, tab-separated lines when piped."""
    from rich.console import Console

    from orchestrator.tui.fleet import fleet_grid, fleet_table, source_note

    grid = fleet_grid(runs)
    if sys.stdout.isatty():
        Console().print(fleet_table(grid))
    else:
        headings = ["PHONE", *(", ".join(heading) for heading in grid.headings)]
        for line in (headings, *grid.lines):
            click.echo("\t".join(line))
    click.echo(source_note(grid))
