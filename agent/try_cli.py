"""`farm phone try`: the first command for a phone; it needs no running lab."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agent.phone.capture_cli import NO_PHONE, find_address, phone
from workloads.cli_options import PORT, FiniteRange, lab_folder_option
from workloads.command_output import say
from workloads.protocol.faults import InvalidRequest

if TYPE_CHECKING:
    from agent.phone.adb import AdbServer
    from agent.phone.phone_driver import Phone
    from agent.try_phone import Tryout

NOT_VALID = 5  # exit code: something failed or is missing
_CONNECT_S = 60.0


@phone.command("try")
@click.argument("serial", metavar="[PHONE]", default="")
@click.option("--report", is_flag=True, help="Also write what the phone exposes, for a report.")
@click.option("--adb-port", type=PORT, default=None, help="Use the adb server on this port.")
@click.option(
    "--patience",
    type=FiniteRange(1, 1000),
    default=1.0,
    help="Factor for the limits of answers; virtual phones on a busy computer need 10.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@lab_folder_option("Keep what is learned for the lab in this folder.")
def try_(
    serial: str,
    report: bool,
    adb_port: int | None,
    patience: float,
    as_json: bool,
    lab_folder: Path,
) -> int:
    """Check a PHONE, learn its noise, and train once.

    It takes two to five minutes and ends with a measured time and its verdict. What stands in the
    way is named with the place to tap on this phone. A sweep file that suits the phone is written
    to the present folder. PHONE is a serial number or an address; without one, the only phone that
    adb lists. Every changed setting is restored. The output names neither phone nor owner.

    \b
    Examples:
      farm phone try
      farm phone try R58M123ABC --report
    """
    from agent.deadline import Deadline
    from agent.phone.adb import AdbServer
    from agent.phone.phone_driver import Phone
    from agent.timeouts import DEFAULT_TIMEOUTS

    with AdbServer(Path(), private=False, port=adb_port or 0) as server:
        deadline = Deadline.after(_CONNECT_S)
        address = find_address(server, serial or _only_phone(server), deadline)
        timeouts = DEFAULT_TIMEOUTS.with_patience(patience)
        reached = Phone(server.open(address), timeouts)
        try:
            tried = _try(reached, lab_folder, as_json)
            files = list(_write_files(reached, tried, report))
        finally:
            reached.close()
    if as_json:
        found = {"model": tried.model, "valid": tried.is_valid, "number": tried.number}
        found |= {"answer": tried.answer, "files": files, "checks": [*map(asdict, tried.checks)]}
        click.echo(_plain(json.dumps(found, indent=1), reached))
    return 0 if tried.is_valid else NOT_VALID


def _only_phone(server: "AdbServer") -> str:
    states = server.list()
    if len(states) == 1:
        return next(iter(states))
    if not states:
        raise InvalidRequest(f"adb lists no phone{NO_PHONE}")
    raise InvalidRequest(f"adb lists {len(states)} phones; name one of {', '.join(states)}")


def _try(reached: "Phone", lab_folder: Path, quiet: bool) -> "Tryout":
    from agent.cli import lock_folder
    from agent.lane_context import LaneContext
    from agent.try_phone import try_phone
    from workloads.lab.settings import Lab

    lab = Lab.read(lab_folder, dict(os.environ))
    host = lab.host_name("")
    folder = lab.agent_folder(host)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = lock_folder(folder)
    if lock is None:
        raise InvalidRequest(
            f"the lab in {lab_folder} runs and has this phone; stop it with 'farm down', or use "
            "'farm phone commission'"
        )
    context = LaneContext(host=host, state_dir=folder, timeouts=reached.timeouts)

    def tell(text: str) -> None:
        if not quiet:
            say(_plain(text, reached))

    try:
        tried = try_phone(reached, context, tell)
    finally:
        os.close(lock)
    for text in _control_lines(reached):
        tell(text)
    tell("")
    tell(tried.answer)
    return tried


def _control_lines(reached: "Phone") -> list[str]:
    if not reached.is_probed:
        return []
    facts = reached.facts
    lines = [f"control     {facts.control.value}"]
    lines += [f"  yes       {text}" for text in facts.controlled]
    return lines + [f"  no        {text}" for text in facts.uncontrolled]


def _write_files(reached: "Phone", tried: "Tryout", with_report: bool) -> list[str]:
    """Write the sweep file, and with a report the facts file; a file that exists is replaced."""
    from agent.deadline import Deadline
    from agent.phone.capture import capture_phone
    from agent.phone.facts_file import format_facts
    from agent.try_phone import sweep_name, sweep_text

    texts: dict[str, str] = {}
    if reached.is_probed and (sweep := sweep_text(tried, reached.facts.serial)):
        texts[f"{sweep_name(tried.model)}.yaml"] = sweep
    if with_report and reached.is_probed:
        facts = capture_phone(reached, Deadline.after(_CONNECT_S))
        texts[f"{sweep_name(tried.model)}.toml"] = format_facts(facts)
    for name, text in texts.items():
        try:
            Path(name).write_text(text, encoding="utf-8")
        except OSError as error:
            raise InvalidRequest(f"{name} cannot be written: {error.strerror}") from error
        what = "its facts, for a report" if name.endswith(".toml") else "a sweep that suits it"
        say(f"{name}: {what}", err=True)
    return list(texts)


def _plain(text: str, reached: "Phone") -> str:
    """A text without the names that identify the phone."""
    serial = reached.facts.serial if reached.is_probed else reached.address
    return text.replace(serial, "the phone").replace(reached.address, "the phone")
