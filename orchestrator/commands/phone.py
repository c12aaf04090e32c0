"""`farm phone`: lists, inspects and controls the phones of the lab."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import (
    change_options,
    confirm,
    connect,
    count_words,
    json_option,
    lab_option,
    print_change,
    print_json,
    print_list,
    reason_option,
    wide_option,
    yes_option,
)
from orchestrator.commands.completion import complete_phone
from orchestrator.commands.exit_codes import FAILURES, NOTHING
from orchestrator.planning.states import PhoneAvailability
from workloads.cli_options import DurationUpTo
from workloads.command_output import say, show_wait
from workloads.text import safe_text
from workloads.units import count_text

if TYPE_CHECKING:
    from orchestrator.app.control_phones import CommandOutcome, KnownPhone

HEADINGS = (
    *("PHONE", "MODEL", "SOC", "HOST", "STATE", "TEMP", "BATTERY", "CONTROL", "SOURCE", "TAGS"),
    "REASON",
)
HIDE = ("SOURCE", "CONTROL", "SOC", "TAGS", "HOST", "REASON", "BATTERY", "TEMP")
COMMISSION_POLL_S = 0.5
RESERVED_MAX_S = 365 * 24 * 3600.0
COMMISSION_LOST_S = 60.0  # it takes as long as the phone needs to cool, but it shows as busy

_PHONE = click.argument("serial", metavar="PHONE", shell_complete=complete_phone)
_REASON = click.option("--why", "reason", required=True, help="Reason, shown to other users.")
_HOST = click.option("--host", default="", help="Host that connects it. Default: the only one.")


@click.group()
def phone() -> None:
    """List, connect, inspect, check, tag, reserve and restore phones."""


@phone.command("list")
@click.option(
    "--select", "selector", default="", help="List only these; see 'farm help selectors'."
)
@wide_option
@lab_option
@json_option
def list_phones(selector: str, lab_folder: Path, as_json: bool) -> int:
    """List all known phones and their current state.

    Phones that are connected but cannot be used are listed at the end, with a remedy.

    \b
    Examples:
      farm phone list
      farm phone list --select "root and ram_mb >= 6000"
    """
    from orchestrator.app.control_phones import list_phones, list_unusable_phones

    lab = connect(lab_folder)
    phones = list_phones(lab, selector)
    problems = () if selector else list_unusable_phones(lab)
    if as_json:
        unusable = [{"serial": item.address, "facts": None, **asdict(item)} for item in problems]
        print_json([*(asdict(item) for item in phones), *unusable])
        return 0 if phones else NOTHING
    rows = [_row(item) for item in phones]
    states = count_words(f"{item.availability}" for item in phones)
    others = f"; {len(problems)} more cannot be used" if problems else ""
    summary = f"{count_text(len(phones), 'phone')}: {states}{others}."
    if_empty = "no phone yet; connect one, or: farm up --virtual"
    code = print_list(HEADINGS, rows, if_empty, summary, HIDE)
    for item in problems:
        say(safe_text(f"{item.address} on {item.host} cannot be used: {item.text}", 500))
    return code


@phone.command()
@_PHONE
@lab_option
@json_option
def show(serial: str, lab_folder: Path, as_json: bool) -> None:
    """Show the hardware and the control level of a PHONE.

    Example: farm phone show VM16T
    """
    from orchestrator.app.control_phones import find_phone
    from orchestrator.tui.phone_detail import describe_phone

    found = find_phone(connect(lab_folder), serial)
    if as_json:
        print_json(asdict(found))
        return
    for line in describe_phone(found):
        say(safe_text(line, 400))


@phone.command()
@_PHONE
@lab_option
@json_option
def check(serial: str, lab_folder: Path, as_json: bool) -> int:
    """Test a PHONE now.

    The phone must answer, report temperatures and accept files. A held phone gets runs again if
    the check passes; a phone that fails it is quarantined. A busy phone is not checked.

    Example: farm phone check VM16T
    """
    from orchestrator.app.control_phones import check_phone

    with show_wait("the host of the phone to answer"):
        outcome = check_phone(connect(lab_folder), serial)
    return _print_outcome(outcome, as_json)


@phone.command()
@_PHONE
@click.option("--quick", is_flag=True, help="Measure only canaries and gauge; skip the cooling.")
@lab_option
def commission(serial: str, quick: bool, lab_folder: Path) -> int:
    """Measure a PHONE's speed, cooling, fuel gauge and idle power.
    Later runs are compared with these values; the runs of a physical phone that was never
    commissioned are suspect. The phone gets no runs until the command has finished. Repeat it after
    a permanent change, such as a system update.

    \b
    Examples:
      farm phone commission VM16T
      farm phone commission VM16T --quick
    """
    from orchestrator.app.app_errors import TimedOut
    from orchestrator.app.control_phones import commission_phone, find_command_outcome, find_phone

    lab = connect(lab_folder)
    serial = find_phone(lab, serial).serial
    command, shown = commission_phone(lab, serial, quick), ""
    busy_at = time.monotonic()
    while (outcome := find_command_outcome(lab, command)) is None:
        status = find_phone(lab, serial).status
        stage = status.stage
        if stage and stage != shown:
            shown = stage
            click.echo(f"{serial}: {stage}", err=True)
        if status.state == "busy":
            busy_at = time.monotonic()
        elif time.monotonic() - busy_at > COMMISSION_LOST_S:
            raise TimedOut(f"{serial} was not commissioned: its agent did not answer; repeat it")
        time.sleep(COMMISSION_POLL_S)
    return _print_outcome(outcome)


@phone.command("connect")
@click.argument("address", metavar="HOST[:PORT]")
@click.option("--pair", "code", default="", help="Pair first, with this code; -: ask for it.")
@click.option("--off", is_flag=True, help="Disconnect the phone instead.")
@_HOST
@lab_option
def connect_(address: str, code: str, off: bool, host: str, lab_folder: Path) -> int:
    """Connect a phone over Wi-Fi and keep it connected.

    Without a port, 5555 is used. The agent connects it again after every start, until
    'farm phone connect --off'. To pair (Android 11), take HOST:PORT and the code from Developer
    options, Wireless debugging, Pair device with pairing code.

    \b
    Examples:
      farm phone connect 192.168.1.23
      farm phone connect 192.168.1.23:41915 --pair 482924
      farm phone connect 192.168.1.23 --off
    """
    from orchestrator.app import control_phones

    if code and off:
        raise click.UsageError("--pair and --off exclude each other")
    lab = connect(lab_folder)
    code = click.prompt("Code on the phone's screen") if code == "-" else code
    with show_wait("the host to reach the phone"):
        if off:
            outcome = control_phones.disconnect_phone(lab, address, host)
        elif code:
            outcome = control_phones.pair_phone(lab, address, code, host)
        else:
            outcome = control_phones.connect_phone(lab, address, host)
    return _print_outcome(outcome)


@phone.command()
@_PHONE
@lab_option
@json_option
def restore(serial: str, lab_folder: Path, as_json: bool) -> int:
    """Restore the settings of a PHONE after an interrupted run.

    Example: farm phone restore VM16T
    """
    from orchestrator.app.control_phones import restore_phone

    with show_wait("the host of the phone to answer"):
        outcome = restore_phone(connect(lab_folder), serial)
    return _print_outcome(outcome, as_json)


@phone.command()
@_PHONE
@click.argument("host", metavar="HOST")
@change_options
def move(serial: str, host: str, dry_run: bool, lab_folder: Path) -> None:
    """Say that a PHONE belongs to a HOST now.

    A phone whose cable you move to another host follows by itself. Say so when two hosts show it,
    or when the host that it left is off: such a host may come back, so its phones wait for it.

    Example: farm phone move VM16T host-b
    """
    from orchestrator.app.control_phones import move_phone

    print_change(move_phone(connect(lab_folder), serial, host, dry_run))


@phone.command()
@_PHONE
@_REASON
@change_options
def quarantine(serial: str, reason: str, dry_run: bool, lab_folder: Path) -> None:
    """Send a PHONE no more runs; a run in progress finishes.

    Example: farm phone quarantine VM16T --why "swollen battery"
    """
    from orchestrator.app.control_phones import quarantine_phone

    print_change(quarantine_phone(connect(lab_folder), serial, reason, dry_run))


@phone.command()
@_PHONE
@click.option("--forget", is_flag=True, help="Forget it; only a phone without trials can be.")
@reason_option
@yes_option
@change_options
def retire(
    serial: str, forget: bool, reason: str, yes: bool, dry_run: bool, lab_folder: Path
) -> None:
    """Take a PHONE out of the lab permanently; its results are kept.

    Its queued runs are skipped, and new sweeps do not use it. A forgotten phone that is still
    connected is announced again by its host.

    \b
    Examples:
      farm phone retire VM16T --why "the battery is worn out"
      farm phone retire VMI90001 --forget --dry-run
    """
    from orchestrator.app.control_phones import retire_phone
    from orchestrator.app.maintain_store import remove_phone

    if forget:
        confirm(f"Forget {serial}?", yes or dry_run)
        print_change(remove_phone(connect(lab_folder), serial, dry_run))
    elif not reason:
        raise click.UsageError("--why is missing: the reason, shown to other users")
    else:
        print_change(retire_phone(connect(lab_folder), serial, reason, dry_run))


@phone.command()
@_PHONE
@change_options
def release(serial: str, dry_run: bool, lab_folder: Path) -> None:
    """Return a held, quarantined or retired PHONE to service.

    Example: farm phone release VM16T
    """
    from orchestrator.app.control_phones import release_phone

    print_change(release_phone(connect(lab_folder), serial, dry_run))


@phone.command(context_settings={"ignore_unknown_options": True})
@_PHONE
@click.argument("tags", nargs=-1, required=True)
@change_options
def tag(serial: str, tags: tuple[str, ...], dry_run: bool, lab_folder: Path) -> None:
    """Add TAGS to a PHONE; -NAME removes one. Sweeps select phones by tags.

    Example: farm phone tag VM16T rooted -new
    """
    from orchestrator.app.control_phones import tag_phone

    remove = [name[1:] for name in tags if name.startswith("-")]
    add = [name for name in tags if not name.startswith("-")]
    print_change(tag_phone(connect(lab_folder), serial, add, remove, dry_run))


@phone.command()
@_PHONE
@click.option("--person", default="", help="For whom. Default: you.")
@click.option(
    "--for",
    "duration_s",
    type=DurationUpTo(RESERVED_MAX_S),
    help="How long: 90m, 2h, 7d. Default: until --off.",
)
@click.option("--off", is_flag=True, help="End the reservation.")
@reason_option
@change_options
def reserve(
    serial: str,
    person: str,
    duration_s: float | None,
    off: bool,
    reason: str,
    dry_run: bool,
    lab_folder: Path,
) -> None:
    """Reserve a PHONE for a person.

    The phone gets no runs until the reservation ends.

    \b
    Examples:
      farm phone reserve VM16T --for 2h
      farm phone reserve VM16T --person alice --for 7d
      farm phone reserve VM16T --off
    """
    from orchestrator.app.control_phones import reserve_phone, unreserve_phone

    lab = connect(lab_folder)
    if off:
        print_change(unreserve_phone(lab, serial, dry_run))
        return
    hours = (duration_s or 0.0) / 3600
    print_change(reserve_phone(lab, serial, person, hours, reason, dry_run))


def _print_outcome(outcome: "CommandOutcome", as_json: bool = False) -> int:
    if as_json:
        print_json({"succeeded": outcome.succeeded, "text": outcome.text})
        return 0 if outcome.succeeded else FAILURES
    say(safe_text(outcome.text, 600), err=not outcome.succeeded)
    return 0 if outcome.succeeded else FAILURES


def _row(phone: "KnownPhone") -> tuple[str, ...]:
    facts, status = phone.facts, phone.status
    source = facts.provenance.time if facts.provenance else None
    reserved = (
        f"for {phone.reserved_by}" if phone.availability == PhoneAvailability.RESERVED else ""
    )
    reason = status.reason if phone.availability == PhoneAvailability.AWAY else phone.health_reason
    return (
        phone.serial,
        facts.model,
        facts.soc,
        phone.host,
        f"{phone.availability}",
        "" if status.temp_c is None else f"{status.temp_c:.1f}",
        "" if status.battery_pct is None else f"{status.battery_pct} %",
        facts.control.value,
        facts.runner_error or (str(source) if source else "none"),
        " ".join(phone.tags),
        reserved or reason,
    )
