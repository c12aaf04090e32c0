"""`farm phone`: the phones of the lab."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.app.app_errors import InvalidState, NoPhoneMatches, TimedOut
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
from orchestrator.commands.completion import complete_phone
from orchestrator.commands.exit_codes import FAILURES
from workloads.protocol.faults import InvalidRequest
from workloads.text import safe_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.store.database import Database
    from orchestrator.store.operator_change import Actor, OperatorChange
    from orchestrator.store.phone_health import CommandOutcome
    from orchestrator.store.phone_queries import KnownPhone
    from workloads.protocol.messages import CommandKind

ANSWER_S = 90.0
_PHONE = click.argument("serial", metavar="PHONE", shell_complete=complete_phone)


@click.group()
def phone() -> None:
    """List phones, tell what can be held on each, check, tag, reserve and put them back."""


@phone.command("list")
@click.option("--select", "selector", default="", help="Only these: see 'farm help selectors'.")
@lab_option
@json_option
def list_phones(selector: str, lab_folder: Path, as_json: bool) -> None:
    """List every phone the lab has met, and how it is now."""
    from orchestrator.app.lab_status import read_lab_status
    from orchestrator.sweepfile.selector import parse_selector

    wanted = parse_selector(selector) if selector else None
    lab = read_lab(lab_folder)
    phones = [
        item
        for item in read_lab_status(open_store(lab), open_broker(lab)).phones
        if wanted is None or wanted.matches(item.facts, item.tags)
    ]
    if wanted is not None and not phones:
        raise NoPhoneMatches(
            f"no phone matches '{safe_text(selector)}'; 'farm phone list' shows all"
        )
    if as_json:
        print_json([asdict(item) for item in phones])
        return
    headings = ("PHONE", "MODEL", "SOC", "HOST", "STATE", "TEMP", "BATTERY", "CONTROL", "NUMBERS")
    print_table((*headings, "TAGS"), [_row(item) for item in phones])


@phone.command()
@_PHONE
@lab_option
@json_option
def show(serial: str, lab_folder: Path, as_json: bool) -> None:
    """Show one PHONE: what it is, what the farm holds on it, and what not and why."""
    from orchestrator.tui.phone_detail import describe_phone

    _, found = _find(serial, lab_folder)
    if as_json:
        print_json(asdict(found))
        return
    for line in describe_phone(found):
        click.echo(safe_text(line, 400))


@phone.command()
@_PHONE
@lab_option
def check(serial: str, lab_folder: Path) -> int:
    """Look a PHONE over now; a suspect one works again if all is well."""
    from workloads.protocol.messages import CommandKind

    return _ask_agent(serial, lab_folder, CommandKind.CHECK)


@phone.command()
@_PHONE
@lab_option
def restore(serial: str, lab_folder: Path) -> int:
    """Put back whatever a dead run left changed on a PHONE."""
    from workloads.protocol.messages import CommandKind

    return _ask_agent(serial, lab_folder, CommandKind.RESTORE)


@phone.command()
@_PHONE
@click.option("--why", required=True, help="the reason, for whoever finds it idle")
@dry_run_option
@lab_option
def quarantine(serial: str, why: str, dry_run: bool, lab_folder: Path) -> None:
    """Give a PHONE no more runs; the one it makes now is finished."""
    from orchestrator.store import phone_actions

    _decide(
        serial, lab_folder, dry_run, lambda db, of, by: phone_actions.quarantine(db, of, by, why)
    )


@phone.command()
@_PHONE
@dry_run_option
@lab_option
def release(serial: str, dry_run: bool, lab_folder: Path) -> None:
    """Let a PHONE work again."""
    from orchestrator.store import phone_actions

    _decide(serial, lab_folder, dry_run, phone_actions.release)


@phone.command(context_settings={"ignore_unknown_options": True})
@_PHONE
@click.argument("tags", nargs=-1, required=True)
@dry_run_option
@lab_option
def tag(serial: str, tags: tuple[str, ...], dry_run: bool, lab_folder: Path) -> None:
    """Put TAGS on a PHONE; -NAME takes one off. Sweeps choose phones by them."""
    from orchestrator.store import phone_actions

    off = [name[1:] for name in tags if name.startswith("-")]
    on = [name for name in tags if not name.startswith("-")]
    _check_tags([*on, *off])
    _decide(serial, lab_folder, dry_run, lambda db, of, by: phone_actions.tag(db, of, by, on, off))


@phone.command()
@_PHONE
@click.option("--for", "person", default="", help="For whom (default: you).")
@click.option("--hours", type=click.FloatRange(0, 24 * 365), default=0.0, help="For how long.")
@click.option("--why", default="", help="The reason, for whoever finds it idle.")
@dry_run_option
@lab_option
def reserve(
    serial: str, person: str, hours: float, why: str, dry_run: bool, lab_folder: Path
) -> None:
    """Keep a PHONE for somebody: it gets no runs until then, or until it is given back."""
    import time

    from orchestrator.store import phone_actions

    until = time.time() + hours * 3600 if hours else 0.0
    whom = person or current_user()
    _decide(
        *(serial, lab_folder, dry_run),
        lambda db, of, by: phone_actions.reserve(db, of, whom, by, until, why),
    )


@phone.command()
@_PHONE
@dry_run_option
@lab_option
def unreserve(serial: str, dry_run: bool, lab_folder: Path) -> None:
    """Give a reserved PHONE back to the lab."""
    from orchestrator.store import phone_actions

    _decide(serial, lab_folder, dry_run, phone_actions.unreserve)


def _check_tags(tags: "Sequence[str]") -> None:
    import re

    from orchestrator.sweepfile.policy import TAG_PATTERN

    for name in tags:
        if re.fullmatch(TAG_PATTERN, name) is None:
            raise InvalidRequest(f"'{safe_text(name)}' is no tag; use a-z, 0-9, '.', '_' and '-'")


def _find(serial: str, lab_folder: Path) -> "tuple[Database, KnownPhone]":
    from orchestrator.app.lab_status import read_lab_status

    lab = read_lab(lab_folder)
    db = open_store(lab)
    return db, find_phone(read_lab_status(db, open_broker(lab)).phones, serial)


def _decide(
    serial: str,
    lab_folder: Path,
    dry_run: bool,
    deed: "Callable[[Database, str, Actor], OperatorChange]",
) -> None:
    """Find the phone, carry the decision out, and say what came of it."""
    from orchestrator.store.operator_change import Actor

    db, found = _find(serial, lab_folder)
    change = deed(db, found.serial, Actor(current_user(), dry_run))
    print_change(open_broker(read_lab(lab_folder)), change)


def _ask_agent(serial: str, lab_folder: Path, kind: "CommandKind") -> int:
    """Have the phone's host do something, and say what it found."""
    answer = ask_agent(serial, lab_folder, kind)
    click.echo(safe_text(answer.text, 600), err=not answer.succeeded)
    return 0 if answer.succeeded else FAILURES


def ask_agent(
    serial: str,
    lab_folder: Path,
    kind: "CommandKind",
    sizes: "tuple[int, ...]" = (),
    patience_s: float = ANSWER_S,
) -> "CommandOutcome":
    """Send a command to the phone's host and wait for its answer."""
    import secrets
    import time

    from orchestrator.dispatch.job_queue import JobQueue
    from orchestrator.store import phone_health
    from workloads.protocol.messages import Command

    store, found = _find(serial, lab_folder)
    if found.status.state not in {"idle", "busy"}:
        raise InvalidState(f"{found.serial} is {found.status.state}; its host has to see it first")
    command = Command(kind=kind, phone=found.serial, id=secrets.token_hex(8), sizes=sizes)
    JobQueue(read_lab(lab_folder).broker_url).send_command(found.host, command)
    click.echo(f"asking {found.host} ...", err=True)
    until = time.monotonic() + patience_s
    while (answer := phone_health.find_command_result(store, command.id)) is None:
        if time.monotonic() > until:
            raise TimedOut(f"{found.host} did not answer within {patience_s:.0f} s")
        time.sleep(0.1)
    return answer


def find_phone(phones: "Sequence[KnownPhone]", serial: str) -> "KnownPhone":
    """A phone by its serial, or by the beginning of it."""
    begun = [item for item in phones if item.serial.startswith(serial)]
    exact = [item for item in begun if item.serial == serial]
    if len(exact or begun) == 1:
        return (exact or begun)[0]
    if begun:
        raise InvalidRequest(
            f"'{serial}' is the beginning of {len(begun)} phones; write more of it"
        )
    raise InvalidRequest(f"there is no phone '{serial}'; 'farm phone list' shows all")


def _row(phone: "KnownPhone") -> tuple[str, ...]:
    facts = phone.facts
    time = facts.provenance.time if facts.provenance else None
    held = (
        f"{phone.status.state}, reserved for {phone.reserved_by}"
        if phone.reserved_by
        else phone.status.state
    )
    return (
        phone.serial,
        facts.model,
        facts.soc,
        phone.host,
        f"{held} {phone.status.reason}".strip() if phone.health == "good" else phone.health,
        "" if phone.status.temp_c is None else f"{phone.status.temp_c:.1f}",
        "" if phone.status.battery_pct is None else f"{phone.status.battery_pct} %",
        facts.control.value,
        facts.runner_error or (str(time) if time else "none"),
        " ".join(phone.tags),
    )
