"""`farm phone capture`: captures a phone, and shows how a captured one is interpreted."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from workloads.cli_options import PORT
from workloads.command_output import say
from workloads.protocol.faults import InvalidRequest, PhoneTrouble
from workloads.text import safe_text

if TYPE_CHECKING:
    from agent.deadline import Deadline
    from agent.phone.adb import AdbServer
    from agent.phone.phone_reading import PhoneReading
    from agent.phone.thermal_zones import ExaminedZone
    from workloads.protocol.phone_facts import PhoneFacts

NO_PHONE = (
    ". Turn on USB debugging in the phone's developer options, connect it with a data cable, and "
    "tap Allow on its screen"
)
_CAPTURE_S, _SETTLE_S = 120.0, 3.0


@click.group()
def phone() -> None:
    """Capture phones."""


@phone.command()
@click.argument("serial", metavar="[PHONE]", default="")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write this file (default: the model's name, with .toml).",
)
@click.option("--adb-port", type=PORT, default=None, help="Use the adb server on this port.")
@click.option(
    "--from",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Show how the agent interprets this facts file instead: clusters, thermal zones with the "
    "reason if one is not used, and the control level.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the interpretation as JSON.")
def capture(
    serial: str, output: Path | None, adb_port: int | None, path: Path | None, as_json: bool
) -> None:
    """Write the values that a PHONE exposes to a facts file.

    The file is for a bug report, or runs as a virtual phone. PHONE is a serial number, or the
    address of a phone on the network. Serial numbers, accounts and addresses are left out. The
    phone is only read; do not capture a phone during a run.

    \b
    Examples:
      farm phone capture R58M123ABC
      farm phone capture 192.168.0.7:5555 -o pixel8.toml
      farm phone capture --from pixel8.toml
    """
    if (path is None) == (not serial):
        raise click.UsageError("name a PHONE, or a facts file with --from")
    if path is None:
        _capture(serial, output, adb_port)
    else:
        _interpret(path, as_json)


def _capture(serial: str, output: Path | None, adb_port: int | None) -> None:
    from agent.deadline import Deadline
    from agent.phone.adb import AdbServer
    from agent.phone.capture import capture_phone
    from agent.phone.facts_file import format_facts
    from agent.phone.phone_driver import Phone

    deadline = Deadline.after(_CAPTURE_S)
    with AdbServer(Path(), private=False, port=adb_port or 0) as server:
        reached = Phone(server.open(find_address(server, serial, deadline)))
        try:
            facts = capture_phone(reached, deadline)
        finally:
            reached.close()
    name = re.sub(r"[^a-z0-9]+", "-", facts.name.lower()).strip("-") or "phone"
    path = output or Path(f"{name}.toml")
    write_new_file(path, format_facts(facts))
    zones = f"{len(facts.zone)} zones, {len(facts.unreadable)} unreadable nodes"
    click.echo(f"{path}: {safe_text(facts.name)}, {len(facts.nodes)} nodes, {zones}")
    say(f"run it as a virtual phone: farm virtual up {path}", err=True)


def _interpret(path: Path, as_json: bool) -> None:
    from agent.phone.facts_file import read_facts_file, reading_of
    from agent.phone.probe import interpret_reading
    from agent.phone.thermal_zones import examine_zones

    reading = reading_of(read_facts_file(path))
    facts = interpret_reading(reading, "captured", "it was not started: this is a file")
    if not facts.clusters:
        raise InvalidRequest(f"{path} shows no cores; capture the phone again")
    if as_json:
        click.echo(facts.model_dump_json(indent=1))
        return
    for line in describe(facts, examine_zones(reading.nodes), reading):
        click.echo(line)


def find_address(server: "AdbServer", serial: str, deadline: "Deadline") -> str:
    """The adb address of a phone; every obstacle is reported in one sentence."""
    from agent.phone.phone_driver import Phone
    from workloads.protocol.unusable_phone import READY, PhoneProblem, problem_of_state

    states = server.list()
    if serial not in states and ":" in serial:
        server.connect(serial, deadline)
        states = _settled_states(server, serial, deadline.within(_SETTLE_S))
    shown = safe_text(serial, 80)
    if serial in states:
        problem = problem_of_state(states[serial])
        if problem is not None:
            raise PhoneTrouble(f"{shown} cannot be used: {problem.text}")
        return serial
    if ":" in serial:
        raise PhoneTrouble(f"{shown} cannot be used: {PhoneProblem.UNREACHABLE.text}")
    for address in (address for address, state in states.items() if state == READY):
        reached = Phone(server.open(address))
        try:
            if reached.shell(["getprop", "ro.serialno"], deadline).text.strip() == serial:
                return address
        finally:
            reached.close()
    names = ", ".join(safe_text(name, 40) for name in states) or "none"
    raise InvalidRequest(
        f"adb does not list {shown}; it lists: {names}{'' if states else NO_PHONE}"
    )


def _settled_states(server: "AdbServer", address: str, deadline: "Deadline") -> dict[str, str]:
    """adb's list of phones, once a phone that was just connected is more than half there."""
    from workloads.protocol.unusable_phone import READY, PhoneProblem, problem_of_state

    passing = {PhoneProblem.OFFLINE, PhoneProblem.STARTING}
    while True:
        states = server.list()
        if problem_of_state(states.get(address, READY)) not in passing or deadline.expired:
            return states
        time.sleep(0.05)


def write_new_file(path: Path, text: str) -> None:
    """Write a file that does not exist yet."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InvalidRequest(f"{path} exists; name another file with --output") from None
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be written: {error.strerror}") from error


def describe(
    facts: "PhoneFacts", zones: "tuple[ExaminedZone, ...]", reading: "PhoneReading"
) -> list[str]:
    """The findings of a probe, line by line."""
    from agent.phone.kernel_nodes import hottest_c

    memory = f"{facts.ram_mb} MB" if facts.ram_mb else "memory unknown"
    lines = [f"{facts.model}: {facts.soc}, Android {facts.android}, {memory}"]
    for cluster in facts.clusters:
        ladder = cluster.ladder_khz
        steps = f"{len(ladder)} steps, {ladder[0]} to {ladder[-1]} kHz" if ladder else "no clock"
        steps = f"at most {ladder[0]} kHz, steps unknown" if len(ladder) == 1 else steps
        cpus = f"cpu{cluster.cpus[0]}" + (f"-{cluster.cpus[-1]}" if len(cluster.cpus) > 1 else "")
        lines.append(f"cluster    {cpus}: {steps}, capacity {cluster.capacity}")
    if "64" not in facts.abi:
        lines.append(f"program    {facts.runner_error}")
    values = dict(reading.nodes) | _service_values(reading)
    chosen = [("CPU", facts.cpu_zones), ("body", (facts.body_zone,) if facts.body_zone else ())]
    for title, group in chosen:
        temp_c = hottest_c(group, values)
        shown = f"; {'hottest: ' * (len(group) > 1)}{temp_c:.1f} °C" if temp_c is not None else ""
        names = ", ".join(safe_text(zone.type, 40) for zone in group) or "none"
        lines.append(f"{title:<10} {names}{shown}")
    lines.append(f"daemons    {', '.join(facts.perf_daemons) or 'none'}")
    lines.append(f"control    {facts.control.value}")
    lines += [f"  yes      {text}" for text in facts.controlled]
    lines += [f"  no       {text}" for text in facts.uncontrolled]
    unused = [at for at in zones if at.use.text]
    lines += [f"unused     {safe_text(at.zone.type, 40)}: {at.use.text}" for at in unused]
    lines += [f"unused     {name}: {why}" for name, why in _unused_rows(facts, reading)]
    return lines


def _unused_rows(facts: "PhoneFacts", reading: "PhoneReading") -> Iterator[tuple[str, str]]:
    """The sensors of the thermal service that are not used, with the reason, if it is needed."""
    from agent.phone.thermal_zones import ZoneUse
    from agent.phone.thermalservice import is_thermalservice, service_temperatures

    used = {zone.type for zone in (*facts.cpu_zones, facts.body_zone) if zone is not None}
    if any(is_thermalservice(zone.path) for zone in facts.cpu_zones) or not facts.cpu_zones:
        for row in service_temperatures(reading.thermalservice):
            if row.name not in used:
                unclear = "its name contradicts its type, or its type is unknown"
                yield safe_text(row.name, 40), unclear if row.kind is None else ZoneUse.OTHER.text


def _service_values(reading: "PhoneReading") -> dict[str, str]:
    from agent.phone.thermalservice import parse_thermalservice

    return parse_thermalservice(reading.thermalservice)
