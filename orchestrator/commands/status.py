"""`farm status`: how the lab is, on one screen."""

from collections import Counter
from dataclasses import asdict
from pathlib import Path

import click

from orchestrator.commands.common import (
    json_option,
    lab_option,
    open_broker,
    open_store,
    print_json,
    read_lab,
)


@click.command()
@lab_option
@json_option
def status(lab_folder: Path, as_json: bool) -> None:
    """Say how the lab is: services, hosts, phones, sweeps."""
    from orchestrator.lab_view import look

    lab = read_lab(lab_folder)
    view = look(open_store(lab), open_broker(lab))
    states = Counter(item.state for item in view.phones)
    if as_json:
        sweeps = [asdict(item) for item in view.sweeps]
        print_json({"hosts": view.hosts, "phones": states, "sweeps": sweeps})
        return
    click.echo(f"store   {lab.store_url}")
    click.echo(f"broker  {lab.broker_url}")
    hosts = ", ".join(sorted(view.hosts)) or "none; add one with: farm agent run"
    click.echo(f"hosts   {hosts}")
    counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    click.echo(f"phones  {len(view.phones)}{': ' + counts if counts else ''}")
    for item in view.sweeps[:10]:
        text = f"{item.done}/{item.total} done" + (f", {item.failed} failed" if item.failed else "")
        click.echo(f"sweep   {item.id} {item.name}: {text}")
    if not view.sweeps:
        click.echo("sweep   none; submit one with: farm sweep submit FILE")
