"""`farm status`: how the lab is, on one screen and at once."""

from pathlib import Path

import click

from orchestrator.commands.common import json_option, lab_option, open_broker, print_json, read_lab


@click.command()
@lab_option
@json_option
def status(lab_folder: Path, as_json: bool) -> None:
    """Say how the lab is: hosts, phones, sweeps."""
    from workloads.fault import FarmTrouble

    lab = read_lab(lab_folder)
    board = open_broker(lab).board()
    if board is None:
        raise FarmTrouble("the scheduler is silent, so nothing is dispatched; start it: farm up")
    if as_json:
        print_json(board)
        return
    counts = ", ".join(f"{count} {state}" for state, count in board["phones"].items())
    hosts = ", ".join(sorted(board["hosts"])) or "none; add one with: farm agent run"
    click.echo(f"lab     {lab.root}")
    click.echo(f"hosts   {hosts}")
    click.echo(f"phones  {counts or 'none yet'}")
    for sweep in board["sweeps"]:
        failed = f", {sweep['failed']} failed" if sweep["failed"] else ""
        text = f"{sweep['done']}/{sweep['total']} done{failed}"
        click.echo(f"sweep   {sweep['id']} {sweep['name']}: {text}")
    if not board["sweeps"]:
        click.echo("sweep   none; submit one with: farm sweep submit FILE")
