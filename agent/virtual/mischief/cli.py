"""`farm virtual mischief`: injects faults into running virtual phones, lists and clears them."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import click

from workloads.cli_options import COUNT, FiniteRange

SECONDS = FiniteRange(0, 1e9, max_open=True)
Command = TypeVar("Command", bound=Callable[..., object])


class PhonesNotReached(click.ClickException):
    """No virtual phones listen in a directory."""

    exit_code = 4


CONTROL = click.option(
    "--control",
    default=lambda: Path(os.environ.get("FARM_LAB", "lab"), "virtual"),
    show_default="lab/virtual",
    envvar="FARM_VIRTUAL_CONTROL",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory that the phones were started with (farm virtual up --control). The phones of a "
    "lab use 'virtual' in the lab folder.",
)


def mischief_options(command: Command) -> Command:
    """Add the options --mischief and --control to a command that starts phones."""
    script = click.option(
        "--mischief",
        "mischief_script",
        type=click.Path(path_type=Path, dir_okay=False, exists=True),
        help="TOML file with the faults to inject.",
    )
    control = click.option(
        "--control",
        type=click.Path(path_type=Path, file_okay=False),
        help="Directory for the socket that `farm virtual mischief` connects to.",
    )
    return script(control(command))


@click.group(name="mischief")
def mischief() -> None:
    """Inject faults into running virtual phones.

    \b
    Examples:
      farm virtual mischief kinds
      farm virtual mischief add hang for_host=5
    """


@mischief.command()
def kinds() -> None:
    """List the kinds of faults.

    Each kind is printed with its options and their defaults.

    \b
    Example:
      farm virtual mischief kinds
    """
    from dataclasses import fields

    from agent.virtual.mischief.fault_registry import FAULT_TYPES

    for name, fault_type in FAULT_TYPES.items():
        description = " ".join((fault_type.__doc__ or "").split())
        options = " ".join(
            f"{option.name}={option.default}" for option in fields(fault_type) if option.init
        )
        click.echo(f"{name:<17} {description}" + (f"\n{'':<17} {options}" if options else ""))


@mischief.command()
@CONTROL
@click.argument("kind")
@click.argument("options", nargs=-1, metavar="[NAME=VALUE]...")
@click.option(
    "--phone", "phones", multiple=True, help="Serial number or glob. Default: every phone."
)
@click.option(
    "--at",
    "trigger",
    help="Trigger: EVENT[:GLOB][#N] or run@50%. Events: service, write, push, command, boot, ...",
)
@click.option("--after", type=SECONDS, help="Delay in seconds of the phone's clock.")
@click.option(
    "--for",
    "for_",
    type=SECONDS,
    help="Duration in seconds of the phone's clock. Default: until cleared.",
)
def add(
    control: Path,
    kind: str,
    options: tuple[str, ...],
    phones: tuple[str, ...],
    trigger: str | None,
    after: float | None,
    for_: float | None,
) -> None:
    """Inject one fault.

    Options of the fault and other keys of a script (for_host, some, chance) are NAME=VALUE.

    \b
    Examples:
      farm virtual mischief add unplug --at run@50% for_host=3
      farm virtual mischief add sensor value=frozen zone='cpu*'
    """
    entry: dict[str, object] = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals:
            raise click.UsageError(f"'{option}' is not NAME=VALUE")
        entry[name] = value
    entry |= {
        "kind": kind,
        "phones": list(phones) or ["*"],
        "at": trigger,
        "after": after,
        "for": for_,
    }
    response = _request(control, {"action": "add", **entry})
    click.echo(f"mischief {response['id']}")


@mischief.command(name="list")
@CONTROL
def list_mischief(control: Path) -> None:
    """List faults and their states.

    A fault is armed (waits for its trigger), waiting (for its delay), active or done.

    \b
    Example:
      farm virtual mischief list --control lab/virtual
    """
    faults = _request(control, {"action": "list"})["mischief"]
    assert isinstance(faults, list)
    for fault in faults:
        options = " ".join(f"{name}={value}" for name, value in fault["options"].items())
        when = f"at {fault['at']} " if fault["at"] else ""
        click.echo(
            f"{fault['id']:>3} {fault['phone']} {fault['kind']} {fault['state']} {when}{options}"
        )


@mischief.command()
@CONTROL
@click.argument("number", type=COUNT, required=False)
@click.option("--phone", help="Clear the faults of this phone only.")
def clear(control: Path, number: int | None, phone: str | None) -> None:
    """Stop one fault by its NUMBER, or all.

    \b
    Examples:
      farm virtual mischief clear 2
      farm virtual mischief clear --phone VM16T0001
    """
    click.echo(
        f"cleared {_request(control, {'action': 'clear', 'id': number, 'phone': phone})['cleared']}"
    )


@mischief.command()
@CONTROL
@click.argument("phone")
@click.option("--lines", type=COUNT, default=20, show_default=True, help="Number of lines.")
def journal(control: Path, phone: str, lines: int) -> None:
    """Print the end of a phone's journal.

    One JSON object per line.

    \b
    Example:
      farm virtual mischief journal VM16T0001 --lines 5
    """
    import json

    events = _request(control, {"action": "journal", "phone": phone, "lines": lines})["journal"]
    assert isinstance(events, list)
    for event in events:
        click.echo(json.dumps(event, ensure_ascii=True))


def _request(control: Path, request: Mapping[str, object]) -> dict[str, object]:
    from agent.virtual.mischief.control_socket import send_control_request

    try:
        return send_control_request(control, request)
    except OSError as error:
        raise PhonesNotReached(
            f"no virtual phones can be reached in {control} ({error.strerror}); start them with "
            "'farm up --virtual', or name their folder with --control"
        ) from error
    except ValueError as error:
        raise click.UsageError(str(error)) from error
