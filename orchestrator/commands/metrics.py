"""`farm metrics`: lists every metric of a run with its formula."""

import click

from orchestrator.commands.common import json_option, print_json


@click.command()
@json_option
def metrics(as_json: bool) -> None:
    """Show all metrics: unit, family, meaning and formula.

    A phone without readable clocks, temperatures or energy has no metrics of that family.

    Example: farm metrics
    """
    from dataclasses import asdict

    from workloads.protocol.metrics import METRICS, metrics_table

    if as_json:
        print_json({name: asdict(kind) for name, kind in METRICS.items()})
        return
    click.echo(metrics_table())
