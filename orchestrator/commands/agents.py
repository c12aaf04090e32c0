"""`farm agent`: the hosts of the lab; running one's own agent lives in the agent's room."""

from datetime import UTC, datetime
from pathlib import Path

import click

from orchestrator.commands.common import (
    current_user,
    dry_run_option,
    json_option,
    lab_option,
    open_broker,
    open_store,
    print_change,
    print_json,
    print_table,
    read_lab,
)


@click.group()
def agent() -> None:
    """Run the agent of a host with phones; list hosts, and give one no more runs."""


@agent.command("list")
@lab_option
@json_option
def list_agents(lab_folder: Path, as_json: bool) -> None:
    """List the hosts of the lab: what they have, and how they are."""
    from orchestrator.store.leases import drained_hosts
    from orchestrator.store.phone_queries import known_phones

    lab = read_lab(lab_folder)
    db = open_store(lab)
    beats = {beat.host: beat for beat in open_broker(lab).heartbeats()}
    drained = drained_hosts(db)
    known = {phone.host for phone in known_phones(db)}
    now = datetime.now(UTC)
    rows: list[tuple[object, ...]] = []
    for host in sorted({*beats, *known, *drained}):
        beat = beats.get(host)
        phones = beat.phones if beat else ()
        busy = sum(phone.state == "busy" for phone in phones)
        here = sum(phone.state != "away" for phone in phones)
        skew = f"{(beat.sent_at - now).total_seconds():+.1f} s" if beat else ""
        state = "away" if beat is None else "drained" if host in drained else "up"
        rows.append((host, state, here, busy, skew, drained.get(host, "")))
    if as_json:
        names = ("host", "state", "phones", "busy", "clock", "why")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
        return
    print_table(("HOST", "STATE", "PHONES", "BUSY", "CLOCK", "WHY"), rows)


@agent.command()
@click.argument("host")
@click.option("--why", default="", help="The reason, for whoever finds it idle.")
@dry_run_option
@lab_option
def drain(host: str, why: str, dry_run: bool, lab_folder: Path) -> None:
    """Give a HOST no more runs; those it makes now are finished."""
    from orchestrator.store import operator_change, phone_actions

    lab = read_lab(lab_folder)
    db, broker = open_store(lab), open_broker(lab)
    print_change(
        broker,
        phone_actions.drain(db, host, operator_change.Actor(current_user(), dry_run), why),
    )


@agent.command()
@click.argument("host")
@dry_run_option
@lab_option
def undrain(host: str, dry_run: bool, lab_folder: Path) -> None:
    """Give a HOST runs again."""
    from orchestrator.store import operator_change, phone_actions

    lab = read_lab(lab_folder)
    db, broker = open_store(lab), open_broker(lab)
    print_change(
        broker, phone_actions.undrain(db, host, operator_change.Actor(current_user(), dry_run))
    )
