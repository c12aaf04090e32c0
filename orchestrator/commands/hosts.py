"""`farm host`: which hosts belong to the lab. `farm host join` is in agent/join_cli.py."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import (
    change_options,
    connect,
    json_option,
    lab_option,
    print_change,
    print_json,
    print_table,
)
from workloads.cli_options import FiniteRange, value_option

if TYPE_CHECKING:
    from orchestrator.app.enrol_hosts import HostOffer

minutes_option = value_option(
    "--minutes",
    type=FiniteRange(0, 10080, min_open=True),
    default=60.0,
    help="Minutes within which the host has to join.",
)


@click.group()
def host() -> None:
    """Add hosts to the lab; renew and revoke their access."""


@host.command()
@click.argument("name")
@minutes_option
@lab_option
@json_option
def add(name: str, minutes: float, lab_folder: Path, as_json: bool) -> None:
    """Print a one-time command with which a host joins the lab.

    Run the printed command on the host NAME. The host gets its own broker user, a
    certificate and a results queue.

    Example: farm host add host-a
    """
    from orchestrator.app.enrol_hosts import add_host

    _print_offer(add_host(connect(lab_folder), name, minutes), as_json)


@host.command()
@click.argument("name")
@minutes_option
@lab_option
@json_option
def rotate(name: str, minutes: float, lab_folder: Path, as_json: bool) -> None:
    """Print a command that replaces the secrets of a host.

    The secrets of the host NAME and its certificate remain valid until the command has run there.

    Example: farm host rotate host-a
    """
    from orchestrator.app.enrol_hosts import rotate_host

    _print_offer(rotate_host(connect(lab_folder), name, minutes), as_json)


def _print_offer(offer: "HostOffer", as_json: bool) -> None:
    pinned = f" --authority {offer.authority}" if offer.authority else ""
    command = f"FARM_TOKEN={offer.secret} farm host join {offer.url}{pinned}"
    until = f"{datetime.fromtimestamp(offer.until_s, UTC):%Y-%m-%d %H:%M} UTC"
    if as_json:
        print_json({"host": offer.host, "command": command, "until": until})
        return
    click.echo(command)
    click.echo(f"Run it on {offer.host}; it works once, until {until}.", err=True)


@host.command()
@click.argument("name")
@change_options
def revoke(name: str, dry_run: bool, lab_folder: Path) -> None:
    """Revoke the access of the host NAME; it gets no more runs.

    Example: farm host revoke host-a
    """
    from orchestrator.app.enrol_hosts import revoke_host

    print_change(revoke_host(connect(lab_folder), name, dry_run))


@host.command("list")
@lab_option
@json_option
def list_all(lab_folder: Path, as_json: bool) -> None:
    """List hosts that were added, and others that were seen.

    Example: farm host list
    """
    from orchestrator.app.control_hosts import list_hosts
    from orchestrator.app.enrol_hosts import list_host_accesses

    lab = connect(lab_folder)
    accesses, states = list_host_accesses(lab), {item.host: item for item in list_hosts(lab)}
    rows: list[tuple[str, ...]] = [
        (
            *(item.host, item.access, _day(item.enrolled_at_s), _day(item.certificate_until_s)),
            states[item.host].state if item.host in states else "",
        )
        for item in accesses
    ]
    added = {item.host for item in accesses}
    rows += [
        (name, "not added", "", "", item.state)
        for name, item in states.items()
        if name not in added
    ]
    headings = ("HOST", "ACCESS", "SINCE", "CERTIFICATE ENDS", "STATE")
    if as_json:
        keys = [heading.lower().replace(" ", "_") for heading in headings]
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
        return
    print_table(headings, rows)


def _day(epoch_s: float) -> str:
    return f"{datetime.fromtimestamp(epoch_s, UTC):%Y-%m-%d}" if epoch_s else ""
