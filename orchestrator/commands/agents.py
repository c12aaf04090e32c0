"""`farm agent list|drain|undrain`: the hosts of the lab. `farm agent run` is in agent/cli.py."""

from pathlib import Path

import click

from orchestrator.commands.common import (
    change_options,
    connect,
    json_option,
    lab_option,
    print_change,
    print_items,
    reason_option,
)


@click.group()
def agent() -> None:
    """Run the agent of this host; list and drain hosts."""


@agent.command("list")
@lab_option
@json_option
def list_agents(lab_folder: Path, as_json: bool) -> int:
    """List the hosts of the lab with their phones and clocks.

    Example: farm agent list
    """
    from orchestrator.app.control_hosts import list_hosts

    hosts = list_hosts(connect(lab_folder))
    rows = [
        (
            *(host.host, host.state, host.phones, host.busy),
            "" if host.clock_offset_s is None else f"{host.clock_offset_s:+.1f} s",
            host.software,
            "; ".join(filter(None, (host.drain_reason, *(item.text for item in host.problems)))),
        )
        for host in hosts
    ]
    headings = ("HOST", "STATE", "PHONES", "BUSY", "CLOCK", "VERSION", "REASON")
    return print_items(hosts, as_json, headings, rows, "no host yet; add one with: farm agent run")


@agent.command()
@click.argument("host")
@reason_option
@change_options
def drain(host: str, reason: str, dry_run: bool, lab_folder: Path) -> None:
    """Stop sending runs to HOST; running ones finish.

    Example: farm agent drain host-b --why "new hub"
    """
    from orchestrator.app.control_hosts import drain_host

    print_change(drain_host(connect(lab_folder), host, reason, dry_run))


@agent.command()
@click.argument("host")
@change_options
def undrain(host: str, dry_run: bool, lab_folder: Path) -> None:
    """Send runs to HOST again.

    Example: farm agent undrain host-b
    """
    from orchestrator.app.control_hosts import undrain_host

    print_change(undrain_host(connect(lab_folder), host, dry_run))
