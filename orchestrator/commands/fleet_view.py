"""How commands print a fleet comparison."""

import sys
from collections.abc import Sequence

import click

from orchestrator.analysis.measurements import MeasuredRun


def print_comparison(runs: Sequence[MeasuredRun]) -> None:
    """Print the fleet table: Rich on a terminal, tab-separated lines when piped."""
    from rich.console import Console

    from orchestrator.tui.fleet_table import caption, fleet_grid, fleet_tables

    timed = [run for run in runs if run.metrics]
    if not any(run.valid for run in timed):
        click.echo("There is no valid run with figures to compare yet.")
        return
    grid = fleet_grid(timed)
    if sys.stdout.isatty():
        console = Console()
        for table in fleet_tables(grid, console.width):
            console.print(table)
    else:
        headings = ["PHONE", *(", ".join(heading) for heading in grid.headings)]
        for line in (headings, *grid.lines):
            click.echo("\t".join(line))
    click.echo(caption(grid))
