"""Prints the comparison of a fleet, and the clocks that it was measured at."""

import sys
from collections.abc import Sequence

import click

from orchestrator.app.compare_results import (
    MeasuredRun,
    clock_table,
    fleet_groups,
    same_applied_clocks,
)
from orchestrator.commands.common import print_paragraph, print_table
from workloads.protocol.same_clocks import same_clock_texts
from workloads.text import safe_text


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


def print_clocks(runs: Sequence[MeasuredRun]) -> None:
    """Print the clocks that were set, and which levels were one clock."""
    table = clock_table(runs)
    models = {run.phone: safe_text(run.facts.model, 24) for run in runs}
    if table.columns:
        rows = [(models[phone], *clocks) for phone, clocks in table.rows.items()]
        print_table(("CLOCK, GHz", *table.columns), rows)
    for text in same_clock_texts(same_applied_clocks(runs)):
        print_paragraph(f"{text}, so their results differ only by chance.")
