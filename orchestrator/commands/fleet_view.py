"""Prints the comparison of a fleet."""

import sys
from collections.abc import Sequence

import click

from orchestrator.app.compare_results import MeasuredRun, fleet_groups
from orchestrator.commands.common import print_paragraph


def print_comparison(runs: Sequence[MeasuredRun]) -> None:
    """Print the fleet table: Rich on a terminal, tab-separated lines when piped."""
    from rich.console import Console

    from orchestrator.tui.fleet_table import caption, fleet_grid, fleet_tables

    if not any(run.valid and run.metrics for run in runs):
        click.echo("No valid run with results to compare yet.")
        return
    models = {run.phone: run.facts.model for run in runs}
    grid = fleet_grid(fleet_groups(runs), models)
    if sys.stdout.isatty():
        console = Console()
        for table in fleet_tables(grid, console.width):
            console.print(table)
    else:
        headings = ["PHONE", *(", ".join(heading) for heading in grid.headings)]
        for line in (headings, *grid.lines):
            click.echo("\t".join(line))
    print_paragraph(caption(grid))
