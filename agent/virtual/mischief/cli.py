"""`farm virtual mischief`: injects faults into running virtual phones."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import click

from workloads.cli_options import DurationUpTo

DURATION = DurationUpTo(1e9, or_zero=True)
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


@click.command()
@CONTROL
@click.argument("kind", default="")
@click.argument("options", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--phone", "phones", multiple=True, help="Serial or glob. Default: every phone.")
@click.option(
    "--at",
    "trigger",
    help="Trigger: EVENT[:GLOB][#N] or run@50%. Events: service, write, push, command, boot, ...",
)
@click.option("--after", type=DURATION, help="Delay on the phone's clock, such as 20s.")
@click.option("--for", "for_", type=DURATION, help="Duration on it. Default: until cleared.")
@click.option("--clear", is_flag=True, help="End all faults of all phones.")
def mischief(  # noqa: PLR0913, PLR0917 (click hands options over one by one)
    control: Path,
    kind: str,
    options: tuple[str, ...],
    phones: tuple[str, ...],
    trigger: str | None,
    after: float | None,
    for_: float | None,
    clear: bool,
) -> None:
    """Inject one fault of a KIND into virtual phones.

    Without KIND, list the kinds. Options of the fault and other keys of a script (for_host, some,
    chance) are NAME=VALUE. Starts and ends are in the journal of the phone.

    \b
    Examples:
      farm virtual mischief
      farm virtual mischief unplug --at run@50% --for 20s
      farm virtual mischief sensor value=frozen zone='cpu*' --for 90s
      farm virtual mischief --clear
    """
    if clear:
        click.echo(f"cleared {_send(control, {})}")
    elif kind:
        timing = {"at": trigger, "after": after, "for": for_}
        _add_fault(control, kind, options, {"phones": list(phones) or ["*"], **timing})
    else:
        _list_kinds()


def _list_kinds() -> None:
    """List the kinds of faults, each with its options and their defaults."""
    from dataclasses import fields

    from agent.virtual.mischief.fault_registry import FAULT_TYPES

    for name, fault_type in FAULT_TYPES.items():
        description = " ".join((fault_type.__doc__ or "").split())
        options = " ".join(
            f"{option.name}={option.default}" for option in fields(fault_type) if option.init
        )
        click.echo(f"{name:<17} {description}" + (f"\n{'':<17} {options}" if options else ""))


def _add_fault(
    control: Path, kind: str, options: tuple[str, ...], keys: Mapping[str, object]
) -> None:
    entry: dict[str, object] = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals:
            raise click.UsageError(f"'{option}' is not NAME=VALUE")
        entry[name] = value
    click.echo(f"mischief {_send(control, {**entry, 'kind': kind, **keys})}")


def _send(control: Path, entry: Mapping[str, object]) -> int:
    from agent.virtual.mischief.control_socket import send_entry

    try:
        return send_entry(control, entry)
    except OSError as error:
        raise PhonesNotReached(
            f"no virtual phones can be reached in {control} ({error.strerror}); start them with "
            "'farm up --virtual', or name their folder with --control"
        ) from error
    except ValueError as error:
        raise click.UsageError(str(error)) from error
