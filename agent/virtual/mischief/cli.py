"""`farm virtual mischief`: make trouble on phones that run, list it, take it back."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., object])

CONTROL = click.option(
    "--control",
    required=True,
    envvar="FARM_VIRTUAL_CONTROL",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder that the phones were started with (--control).",
)


def mischief_options(command: Command) -> Command:
    """What a command that starts phones takes for their mischief."""
    script = click.option(
        "--mischief",
        "mischief_script",
        type=click.Path(path_type=Path, dir_okay=False, exists=True),
        help="TOML file of scripted trouble.",
    )
    control = click.option(
        "--control",
        type=click.Path(path_type=Path, file_okay=False),
        help="Folder for the socket that `farm virtual mischief` speaks to.",
    )
    return script(control(command))


@click.group(name="mischief")
def mischief() -> None:
    """Make trouble on virtual phones that run, out of band."""


@mischief.command()
def kinds() -> None:
    """List every kind of trouble with its options."""
    from dataclasses import fields

    from agent.virtual.mischief.kinds import KINDS

    for name, kind in KINDS.items():
        said = " ".join((kind.__doc__ or "").split())
        options = " ".join(f"{each.name}={each.default}" for each in fields(kind) if each.init)
        click.echo(f"{name:<17} {said}" + (f"\n{'':<17} {options}" if options else ""))


@mischief.command()
@CONTROL
@click.argument("kind")
@click.argument("options", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--phone", "phones", multiple=True, help="Serial or glob; every phone if absent.")
@click.option("--at", help="EVENT[:GLOB][#N] or run@50%: service, write, push, command, boot, ...")
@click.option("--after", type=float, help="Seconds of the phone's clock.")
@click.option("--for", "for_", type=float, help="Seconds of the phone's clock; else until cleared.")
def add(
    control: Path,
    kind: str,
    options: tuple[str, ...],
    phones: tuple[str, ...],
    at: str | None,
    after: float | None,
    for_: float | None,
) -> None:
    """Make trouble; all other words of a script (for_host, some, chance, ...) are options too."""
    words: dict[str, object] = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals:
            raise click.UsageError(f"'{option}' is not NAME=VALUE")
        words[name] = value
    words |= {"kind": kind, "phones": list(phones) or ["*"], "at": at, "after": after, "for": for_}
    said = _ask(control, {"do": "add", **words})
    click.echo(f"mischief {said['id']}")


@mischief.command(name="list")
@CONTROL
def list_mischief(control: Path) -> None:
    """List what is armed, at work and over."""
    listed = _ask(control, {"do": "list"})["mischief"]
    assert isinstance(listed, list)
    for each in listed:
        options = " ".join(f"{name}={value}" for name, value in each["options"].items())
        when = f"at {each['at']} " if each["at"] else ""
        click.echo(
            f"{each['id']:>3} {each['phone']} {each['kind']} {each['state']} {when}{options}"
        )


@mischief.command()
@CONTROL
@click.argument("number", type=int, required=False)
@click.option("--phone", help="Only on this phone.")
def clear(control: Path, number: int | None, phone: str | None) -> None:
    """Take one trouble back, or all."""
    click.echo(f"cleared {_ask(control, {'do': 'clear', 'id': number, 'phone': phone})['cleared']}")


@mischief.command()
@CONTROL
@click.argument("phone")
@click.option("--lines", default=20, show_default=True)
def journal(control: Path, phone: str, lines: int) -> None:
    """Show the end of a phone's journal."""
    import json

    told = _ask(control, {"do": "journal", "phone": phone, "lines": lines})["journal"]
    assert isinstance(told, list)
    for line in told:
        click.echo(json.dumps(line, ensure_ascii=True))


def _ask(control: Path, request: Mapping[str, object]) -> dict[str, object]:
    from agent.virtual.mischief.control import ask_control

    try:
        return ask_control(control, request)
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{control}: {error}") from error
