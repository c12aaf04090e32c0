"""`farm config`: shows the effective settings and where each comes from."""

from pathlib import Path
from typing import Any

import click

from orchestrator.commands.common import json_option, lab_option, print_json, print_table, read_lab

DEFAULT = "default"


@click.group()
def config() -> None:
    """Show the settings of a lab."""


@config.command()
@click.option("--origin", is_flag=True, help="Also print where each value comes from.")
@lab_option
@json_option
def show(origin: bool, lab_folder: Path, as_json: bool) -> None:
    """Show the effective settings, without passwords.

    Example: farm config show --origin
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

    from workloads.connection_url import without_password
    from workloads.lab_settings import SETTINGS_FILE, VARIABLES, read_toml

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
