"""Prints the comparison of a fleet, and the clocks that it was measured at."""

import sys
from collections.abc import Mapping, Sequence

import click

from orchestrator.app.compare_results import (
    AppliedCell,
    MeasuredRun,
    condition_table,
    fleet_groups,
    in_order,
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
    """Print clocks, cores and start temperatures, and which levels were one clock."""
    print_conditions(in_order(runs), {run.phone: run.facts.model for run in runs})
    for text in same_clock_texts(same_applied_clocks(runs)):
        print_paragraph(f"{text}, so their results differ only by chance.")


def print_conditions(cells: Sequence[AppliedCell], models: Mapping[str, str]) -> None:
    """Print what conditions mean on each model; phones of one model usually share a row."""
    table = condition_table(cells)
    rows: dict[tuple[str, ...], list[str]] = {}
    for phone, values in table.rows:
        rows.setdefault((safe_text(models[phone], 24), *values), []).append(phone)
    named = [
        (model if len(phones) == 1 else f"{model} ({len(phones)} phones)", *values)
        for (model, *values), phones in rows.items()
    ]
    print_table(("PHONE", *table.columns), named)
