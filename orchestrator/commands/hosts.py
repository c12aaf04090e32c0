"""`farm host`: the hosts of the lab and their access. `farm host join` is in agent/join_cli.py."""

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import (
    change_options,
    connect,
    count_words,
    json_option,
    lab_option,
    print_change,
    print_json,
    print_list,
    reason_option,
    wide_option,
)
from orchestrator.commands.exit_codes import NOTHING
from workloads.cli_options import DurationUpTo, value_option
from workloads.units import count_text

if TYPE_CHECKING:
    from orchestrator.app.control_hosts import HostSummary
    from orchestrator.app.enrol_hosts import HostAccess, HostOffer

ACCESS_HEADINGS = ("ACCESS", "SINCE", "CERTIFICATE ENDS")
NOT_ADDED, NOT_CONNECTED = "not added", "none is connected"
OFFER_MAX_S = 7 * 24 * 3600.0


@click.group()
def host() -> None:
    """List hosts, add them to the lab, drain them and revoke their access."""


@host.command()
@click.argument("name")
@click.option("--renew", is_flag=True, help="Replace the secrets of a host that has joined.")
@value_option(
    "--within",
    "offer_s",
    type=DurationUpTo(OFFER_MAX_S),
    default="1h",
    help="Time within which the host has to join.",
)
@lab_option
@json_option
def add(name: str, renew: bool, offer_s: float, lab_folder: Path, as_json: bool) -> None:
    """Print a one-time command with which a host joins the lab.

    Run the printed command on the host NAME. The host gets its own broker user, a certificate and
    a results queue. With --renew, its old secrets and certificate remain valid until the command
    has run there.

    \b
    Examples:
      farm host add host-a
      farm host add host-a --renew --within 2h
    """
    from orchestrator.app.enrol_hosts import add_host, rotate_host

    offer = rotate_host if renew else add_host
    _print_offer(offer(connect(lab_folder), name, offer_s / 60), as_json)


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


@host.command()
@click.argument("name")
@click.option("--off", is_flag=True, help="Send runs to it again.")
@reason_option
@change_options
def drain(name: str, off: bool, reason: str, dry_run: bool, lab_folder: Path) -> None:
    """Stop sending runs to the host NAME; running ones finish.

    \b
    Examples:
      farm host drain host-b --why "new hub"
      farm host drain host-b --off
    """
    from orchestrator.app.control_hosts import drain_host, undrain_host

    lab = connect(lab_folder)
    change = undrain_host(lab, name, dry_run) if off else drain_host(lab, name, reason, dry_run)
    print_change(change)


@host.command("list")
@wide_option
@lab_option
@json_option
def list_all(lab_folder: Path, as_json: bool) -> int:
    """List hosts with their phones, clocks and access to the lab.

    Example: farm host list
    """
    from orchestrator.app.control_hosts import list_hosts
    from orchestrator.app.enrol_hosts import list_host_accesses

    lab = connect(lab_folder)
    states = {item.host: item for item in list_hosts(lab)}
    accesses = {item.host: item for item in list_host_accesses(lab)}
    names = sorted({*states, *accesses})
    if as_json:
        print_json([_as_json(name, states.get(name), accesses.get(name)) for name in names])
        return 0 if names else NOTHING
    rows = [_row(name, states.get(name), accesses.get(name)) for name in names]
    headings = ("HOST", "STATE", "PHONES", "BUSY", "CLOCK", "VERSION", *ACCESS_HEADINGS, "REASON")
    words = count_words(f"{item.state}" for item in states.values())
    summary = f"{count_text(len(names), 'host')}: {words or NOT_CONNECTED}."
    hide = ("SINCE", "CERTIFICATE ENDS", "VERSION", "CLOCK", "ACCESS", "BUSY")
    if_empty = "no host yet; start one with: farm service agent"
    return print_list(headings, rows, if_empty, summary, hide)


def _as_json(
    name: str, state: "HostSummary | None", access: "HostAccess | None"
) -> dict[str, object]:
    since, until = (access.enrolled_at_s, access.certificate_until_s) if access else (0.0, 0.0)
    return {
        **({"host": name, "state": ""} if state is None else asdict(state)),
        "access": access.access if access else NOT_ADDED,
        "since": _day(since),
        "certificate_ends": _day(until),
    }


def _row(name: str, state: "HostSummary | None", access: "HostAccess | None") -> tuple[object, ...]:
    shown = _as_json(name, state, access)
    allowed = (shown["access"], shown["since"], shown["certificate_ends"])
    if state is None:
        return (name, "", "", "", "", "", *allowed, "")
    clock = "" if state.clock_offset_s is None else f"{state.clock_offset_s:+.1f} s"
    reasons = filter(None, (state.drain_reason, *(item.text for item in state.problems)))
    live = (state.state, state.phones, state.busy, clock, state.software)
    return (name, *live, *allowed, "; ".join(reasons))


def _day(epoch_s: float) -> str:
    return f"{datetime.fromtimestamp(epoch_s, UTC):%Y-%m-%d}" if epoch_s else ""
