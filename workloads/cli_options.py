"""Options of the command line that the commands of the agent and of the orchestrator share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.decorators import FC

DEFAULT_LAB = Path("lab")


def value_option(*names: str, **settings: Any) -> Callable[[FC], FC]:
    """Return an option whose help shows its default."""
    return click.option(*names, show_default=True, **settings)


def lab_folder_option(text: str) -> Callable[[FC], FC]:
    """Return the option --lab with a help text."""
    names, folder = ("--lab", "lab_folder"), click.Path(file_okay=False, path_type=Path)
    return value_option(*names, type=folder, default=DEFAULT_LAB, envvar="FARM_LAB", help=text)
