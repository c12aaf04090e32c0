"""`farm phone`: the phones of the lab."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import (
    json_option,
    lab_option,
    open_broker,
    open_store,
    print_json,
    print_table,
    read_lab,
)
from orchestrator.exits import FAILURES, NotNow, TimedOut
from workloads.fault import Refused
from workloads.text import safe_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    from orchestrator.nouns import KnownPhone
    from orchestrator.plan.health import Standing

ANSWER_S = 90.0
_PHONE = click.argument("serial", metavar="PHONE")


@click.group()
def phone() -> None:
    """List phones, tell what can be held on each, check them and put them back."""


@phone.command("list")
@lab_option
@json_option
def list_phones(lab_folder: Path, as_json: bool) -> None:
    """List every phone the lab has met, and how it is now."""
    from orchestrator.lab_view import look

    lab = read_lab(lab_folder)
    phones = look(open_store(lab), open_broker(lab)).phones
    if as_json:
        print_json([asdict(item) | {"facts": item.facts.model_dump()} for item in phones])
        return
    headings = ("PHONE", "MODEL", "SOC", "HOST", "STATE", "TEMP", "BATTERY", "CONTROL", "NUMBERS")
    print_table(headings, [_row(item) for item in phones])


@phone.command()
@_PHONE
@lab_option
@json_option
def show(serial: str, lab_folder: Path, as_json: bool) -> None:
    """Show one PHONE: what it is, what the farm holds on it, and what not and why."""
    from orchestrator.lab_view import look

    lab = read_lab(lab_folder)
    found = find_phone(look(open_store(lab), open_broker(lab)).phones, serial)
    if as_json:
        print_json(asdict(found) | {"facts": found.facts.model_dump()})
        return
    for line in describe(found):
        click.echo(safe_text(line, 400))


@phone.command()
@_PHONE
@lab_option
def check(serial: str, lab_folder: Path) -> int:
    """Look a PHONE over now; a suspect one works again if all is well."""
    return _ask_agent(serial, lab_folder, "check")


@phone.command()
@_PHONE
@lab_option
def restore(serial: str, lab_folder: Path) -> int:
    """Put back whatever a dead run left changed on a PHONE."""
    return _ask_agent(serial, lab_folder, "restore")


@phone.command()
@_PHONE
@click.option("--why", required=True, help="the reason, for whoever finds it idle")
@lab_option
def quarantine(serial: str, why: str, lab_folder: Path) -> None:
    """Give a PHONE no more runs; the one it makes now is finished."""
    from orchestrator.plan.health import Health, Standing

    _mark(serial, lab_folder, Standing(Health.QUARANTINED, safe_text(why, 400)))
    click.echo(f"{serial} is quarantined; 'farm phone release {serial}' lets it work again.")


@phone.command()
@_PHONE
@lab_option
def release(serial: str, lab_folder: Path) -> None:
    """Let a PHONE work again."""
    from orchestrator.plan.health import Standing

    _mark(serial, lab_folder, Standing())
    click.echo(f"{serial} gets runs again.")


def _mark(serial: str, lab_folder: Path, standing: "Standing") -> None:
    from orchestrator.store import health

    health.mark(open_store(read_lab(lab_folder)), serial, standing)


def _ask_agent(serial: str, lab_folder: Path, verb: 'Literal["check", "restore"]') -> int:
    """Send a command to the phone's host and wait for what it finds."""
    import secrets
    import time

    from orchestrator.dispatch.queue import Queue
    from orchestrator.lab_view import look
    from orchestrator.store import health
    from workloads.messages import Command

    lab = read_lab(lab_folder)
    store, broker = open_store(lab), open_broker(lab)
    found = find_phone(look(store, broker).phones, serial)
    if found.state not in {"idle", "busy"}:
        raise NotNow(f"{found.serial} is {found.state}; its host has to see it first")
    command = Command(verb=verb, phone=found.serial, id=secrets.token_hex(8))
    Queue(broker.url).send_command(found.host, command)
    until = time.monotonic() + ANSWER_S
    while (answer := health.find_checkup(store, command.id)) is None:
        if time.monotonic() > until:
            raise TimedOut(f"{found.host} did not answer within {ANSWER_S:.0f} s")
        time.sleep(0.1)
    good, text = answer
    click.echo(safe_text(text, 600), err=not good)
    return 0 if good else FAILURES


def find_phone(phones: "Sequence[KnownPhone]", serial: str) -> "KnownPhone":
    """A phone by its serial, or by the beginning of it."""
    begun = [item for item in phones if item.serial.startswith(serial)]
    exact = [item for item in begun if item.serial == serial]
    if len(exact or begun) == 1:
        return (exact or begun)[0]
    if begun:
        raise Refused(f"'{serial}' is the beginning of {len(begun)} phones; write more of it")
    raise Refused(f"there is no phone '{serial}'; 'farm phone list' shows all")


def describe(phone: "KnownPhone") -> "list[str]":
    """A phone in words."""
    facts = phone.facts
    root = "rooted" if facts.rooted else "not rooted"
    lines = [
        f"{phone.serial}  {facts.model}, {facts.soc}, Android {facts.android}, {root}",
        f"at {phone.host}: {phone.state} {phone.why}".rstrip(),
        *([f"{phone.health}: {phone.health_why}"] if phone.health != "good" else []),
        f"{facts.ram_mb} MB of memory, {facts.abi}",
    ]
    for cluster in facts.clusters:
        cpus = ", ".join(map(str, cluster.cpus))
        clocks = _ladder(cluster.ladder_khz)
        lines.append(f"policy{cluster.policy}: cpu {cpus}; {clocks}; capacity {cluster.capacity}")
    if facts.gpu is not None:
        lines.append(f"GPU: {facts.gpu.name}; {_ladder(facts.gpu.ladder_khz)}")
    lines.append(f"CPU heat: {', '.join(zone.type for zone in facts.cpu_zones) or 'nothing'}")
    if facts.gauge is not None:
        sign = "negative" if facts.gauge.discharge_sign < 0 else "positive"
        unit = "µA" if facts.gauge.unit_a < 1e-5 else "mA"
        lines.append(f"gauge: {sign} while discharging, in {unit}, each {facts.gauge.period_s:g} s")
    lines.append(f"control: {facts.control.value}")
    lines += [f"  holds  {text}" for text in facts.controlled]
    lines += [f"  lacks  {text}" for text in facts.uncontrolled]
    if facts.runner_absent:
        lines.append(f"  lacks  {facts.runner_absent}")
    return lines


def _ladder(steps_khz: tuple[int, ...]) -> str:
    if not steps_khz:
        return "no clocks are told"
    return f"{len(steps_khz)} clocks, {steps_khz[0] // 1000} to {steps_khz[-1] // 1000} MHz"


def _row(phone: "KnownPhone") -> tuple[str, ...]:
    facts = phone.facts
    time = facts.provenance.time if facts.provenance else None
    return (
        phone.serial,
        facts.model,
        facts.soc,
        phone.host,
        f"{phone.state} {phone.why}".strip() if phone.health == "good" else phone.health,
        "" if phone.temp_c is None else f"{phone.temp_c:.1f}",
        "" if phone.battery_pct is None else f"{phone.battery_pct} %",
        facts.control.value,
        facts.runner_absent or (str(time) if time else "none"),
    )
