"""`farm config`: the settings that are in force, and where each of them comes from."""

import tomllib
from pathlib import Path
from typing import Any

import click

from orchestrator.commands.common import (
    json_option,
    lab_option,
    print_json,
    print_table,
    read_lab,
)

DEFAULT = "default"
VARIABLES = {"broker.url": "FARM_BROKER", "store.url": "FARM_STORE"}


@click.group()
def config() -> None:
    """Show settings."""


@config.command()
@click.option("--origin", is_flag=True, help="Say of each value where it comes from.")
@lab_option
@json_option
def show(origin: bool, lab_folder: Path, as_json: bool) -> None:
    """Show every setting that is in force. Passwords are left out."""
    rows = settings(lab_folder)
    if as_json:
        print_json(
            [{"setting": name, "value": value, "from": where} for name, value, where in rows]
        )
        return
    headings = ("SETTING", "VALUE", "FROM")
    shown = 3 if origin else 2
    print_table(headings[:shown], [row[:shown] for row in rows])


@config.command()
@lab_option
def path(lab_folder: Path) -> None:
    """Say where the settings file is, or would be."""
    from workloads.lab_settings import SETTINGS_FILE

    click.echo(lab_folder.absolute() / SETTINGS_FILE)


def settings(folder: Path) -> list[tuple[str, str, str]]:
    """Every setting: its name, its value, and where that comes from."""
    import os

    from workloads.lab_settings import SETTINGS_FILE
    from workloads.redis_connection import without_password

    lab = read_lab(folder)
    file = folder / SETTINGS_FILE
    said: dict[str, Any] = tomllib.loads(file.read_text()) if file.exists() else {}
    in_force = {"broker.url": lab.broker_url, "store.url": lab.store_url}
    rows = []
    for section, values in lab.settings.model_dump().items():
        for key, value in values.items():
            name = f"{section}.{key}"
            where = str(file) if key in said.get(section, {}) else DEFAULT
            if os.environ.get(VARIABLES.get(name, "")):
                where = f"${VARIABLES[name]}"
            shown = in_force.get(name, value)
            listed = ", ".join(shown) if isinstance(shown, tuple) else str(shown)
            rows.append((name, without_password(listed), where))
    return rows
