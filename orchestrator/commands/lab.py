"""`farm lab`: the settings of a lab, its certificates, its audit log and who has access."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from orchestrator.commands.common import (
    connect,
    json_option,
    lab_option,
    print_items,
    print_json,
    print_table,
    read_lab,
    wide_option,
)
from orchestrator.commands.notice import notices
from orchestrator.commands.token import token
from workloads.cli_options import value_option
from workloads.command_output import say
from workloads.text import safe_text, toml_value
from workloads.units import count_text

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"  # a link, and files in the wheel
DEFAULT = "default"


@click.group()
def lab() -> None:
    """Create and show the settings of a lab, and control access to it."""


lab.add_command(token)
lab.add_command(notices)


@lab.command()
@click.option("--tls", is_flag=True, help="Create certificates and passwords for several hosts.")
@click.option(
    "--name",
    "names",
    multiple=True,
    help="Name or address of the servers, as other computers use it; can be repeated.",
)
@click.option("--broker", default="", help="Name of the broker's host. Default: the first --name.")
@click.option("--store", default="", help="Name of PostgreSQL's host. Default: SQLite.")
@click.option("--renew", is_flag=True, help="Also renew certificates that do not expire soon.")
@lab_option
def init(
    tls: bool, names: tuple[str, ...], broker: str, store: str, renew: bool, lab_folder: Path
) -> None:
    """Create a lab folder, or with --tls a lab's secrets.

    The folder has all settings, commented out, and example sweeps. With --tls, create the
    authority, certificates and passwords of a lab of several hosts instead, and a lab.toml that
    uses them. Existing files are not replaced, except certificates that expire within 30 days, and
    with --name the server's.

    \b
    Examples:
      farm lab init
      farm lab init --tls --name centre.lab --store centre.lab
    """
    if tls:
        _create_secure_lab(lab_folder, names, broker, store, renew)
    elif names or broker or store or renew:
        raise click.UsageError("--name, --broker, --store and --renew need --tls")
    else:
        _create_lab(lab_folder)


def _create_lab(folder: Path) -> None:
    from orchestrator.app.app_errors import InvalidState
    from workloads.lab.settings import SETTINGS_FILE

    file = folder / SETTINGS_FILE
    if file.exists():
        raise InvalidState(f"{file} already exists; nothing was changed")
    sweeps = folder / "sweeps"
    sweeps.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(commented_settings()) + "\n", encoding="utf-8")
    file.chmod(0o600)  # it may contain a password
    click.echo(f"{file}: all settings, commented out")
    for example in sorted(EXAMPLES.glob("*.yaml")):
        if not (sweeps / example.name).exists():
            shutil.copyfile(example, sweeps / example.name)
    click.echo(f"{sweeps}: {len(list(sweeps.glob('*.yaml')))} example sweeps")
    say(f"Start the lab with: farm up --lab {folder}", err=True)
    click.echo(f"To undo, delete {folder}.", err=True)


def _create_secure_lab(
    folder: Path, names: Sequence[str], broker: str, store: str, renew: bool
) -> None:
    from orchestrator.app.lab_secrets import create_secrets, secure_settings
    from workloads.lab.certificates import write_private
    from workloads.lab.settings import SETTINGS_FILE

    named = tuple(dict.fromkeys((*names, *filter(None, (broker, store))))) if names else ()
    for written in create_secrets(folder, named, renew):
        click.echo(str(written))
    file = folder / SETTINGS_FILE
    if names and not file.exists():
        values = secure_settings(names[0], broker or names[0], store)
        write_private(file, ("\n".join(commented_settings(values)) + "\n").encode())
        click.echo(f"{file}: settings that use these files")
    click.echo("Keep tls/ca.key secret: it can be used to impersonate every server.", err=True)


def commented_settings(values: Mapping[str, object] | None = None) -> Iterator[str]:
    """Yield the lines of a settings file: every setting, commented out unless it has a value."""
    from workloads.lab.settings import LabSettings

    yield "# Settings of this lab, all optional. FARM_BROKER and FARM_STORE override them."
    for section, model in LabSettings.model_fields.items():
        yield ""
        yield f"[{section}]"
        settings = model.default
        for name, field in type(settings).model_fields.items():
            yield f"# {field.description}"
            value = (values or {}).get(f"{section}.{name}")
            given = toml_value(getattr(settings, name) if value is None else value)
            yield f"{'# ' * (value is None)}{name} = {given}"


@lab.command()
@click.option("--origin", is_flag=True, help="Also print where each value comes from.")
@lab_option
@json_option
def config(origin: bool, lab_folder: Path, as_json: bool) -> None:
    """Show the effective settings, without passwords.

    Example: farm lab config --origin
    """
    rows = effective_settings(lab_folder)
    if as_json:
        print_json(
            [{"setting": name, "value": value, "origin": origin} for name, value, origin in rows]
        )
        return
    headings = ("SETTING", "VALUE", "ORIGIN")
    shown = 3 if origin else 2
    print_table(headings[:shown], [row[:shown] for row in rows])


def effective_settings(folder: Path) -> list[tuple[str, str, str]]:
    """Return every setting: its name, its value, and where the value comes from."""
    import os

    from workloads.lab.connection_url import without_password
    from workloads.lab.settings import SETTINGS_FILE, VARIABLES, read_toml

    lab = read_lab(folder)
    file = folder / SETTINGS_FILE
    in_file: dict[str, Any] = read_toml(file) if file.exists() else {}
    urls = {"broker.url": lab.broker_url, "store.url": lab.store_url}
    variables = {".".join(setting): name for name, setting in VARIABLES.items()}
    rows = []
    for section, values in lab.settings.model_dump().items():
        for key, value in values.items():
            name = f"{section}.{key}"
            origin = str(file) if key in in_file.get(section, {}) else DEFAULT
            if os.environ.get(variables.get(name, "")):
                origin = f"${variables[name]}"
            effective = urls.get(name, value)
            shown = ", ".join(effective) if isinstance(effective, tuple | dict) else str(effective)
            rows.append((name, without_password(shown), origin))
    return rows


@lab.command()
@click.argument("target", metavar="[SWEEP|PHONE|HOST]", required=False)
@value_option(
    "--limit", type=click.IntRange(1, 10_000), default=30, help="Maximum number of entries."
)
@wide_option
@lab_option
@json_option
def audit(target: str | None, limit: int, lab_folder: Path, as_json: bool) -> int:
    """List operators' changes, newest first.

    Each entry has the command that undoes it.

    Example: farm lab audit smoke
    """
    from orchestrator.app.control_sweeps import list_audit

    entries = list_audit(connect(lab_folder), target, limit)
    rows = [
        (
            f"{entry.occurred_at:%Y-%m-%d %H:%M:%S}",
            *(entry.actor, entry.action, entry.target, entry.undo or "-"),
            entry.after.get("reason") or "-",
        )
        for entry in entries
    ]
    about = f" of {safe_text(target)}" if target else ""
    headings = ("TIME (UTC)", "WHO", "ACTION", "TARGET", "UNDO", "REASON")
    summary = f"{count_text(len(rows), 'change')}, newest first."
    if_empty = f"no change{about} is recorded"
    hide = ("REASON", "UNDO")
    return print_items(entries, as_json, headings, rows, if_empty, summary, hide)
