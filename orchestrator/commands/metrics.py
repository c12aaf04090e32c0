"""`farm metrics`: every figure that a run may have, and how it is made."""

import click

from orchestrator.commands.common import json_option, print_json


@click.command()
@json_option
def metrics(as_json: bool) -> None:
    """Show the table of metrics: unit, family, meaning and formula.

    The family decides where a figure may come from: a phone that offers no clock, heat or energy
    has no figure of that family.
    """
    from dataclasses import asdict

    from workloads.protocol.metrics import METRICS, metrics_table

    if as_json:
        print_json({name: asdict(kind) for name, kind in METRICS.items()})
        return
    click.echo(metrics_table())
