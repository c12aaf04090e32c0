"""`farm workload`: what can be run."""

import click

from orchestrator.commands.common import json_option, print_json, print_table


@click.group()
def workload() -> None:
    """List what can be run."""


@workload.command("list")
@json_option
def list_workloads(as_json: bool) -> None:
    """List every workload with its parameters and their defaults."""
    from workloads.catalogue import CATALOGUE, bind, work_of

    found = [CATALOGUE[name] for name in sorted(CATALOGUE)]
    if as_json:
        print_json(
            {
                item.name: {
                    "text": item.text,
                    "parameters": {each.name: each.default for each in item.parameters},
                    "flops_per_step": work_of(bind(item.name, {})).flops,
                }
                for item in found
            }
        )
        return
    rows = []
    for item in found:
        choices = ", ".join(
            f"{each.name}={each.default} ({each.least}..{each.most})" for each in item.parameters
        )
        mflops = work_of(bind(item.name, {})).flops / 1e6
        rows.append((item.name, choices or "-", f"{mflops:,.0f}", item.text))
    print_table(("WORKLOAD", "PARAMETERS", "MFLOP/STEP", "WHAT IT DOES"), rows)
