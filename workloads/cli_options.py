"""Options of the command line that the commands of the agent and of the orchestrator share."""

from collections.abc import Callable
from math import isfinite
from pathlib import Path
from typing import Any

import click
from click.decorators import FC

DEFAULT_LAB = Path("lab")
PORT = click.IntRange(1, 65_535)
SEED = click.IntRange(0, 2**32 - 1)
COUNT = click.IntRange(1, 1_000_000)


class FiniteRange(click.FloatRange):
    """A range of numbers that refuses nan, which is neither below nor above its limits."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if not isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


def value_option(*names: str, **settings: Any) -> Callable[[FC], FC]:
    """Return an option whose help shows its default."""
    return click.option(*names, show_default=True, **settings)


def lab_folder_option(text: str) -> Callable[[FC], FC]:
    """Return the option --lab with a help text."""
    names, folder = ("--lab", "lab_folder"), click.Path(file_okay=False, path_type=Path)
    return value_option(*names, type=folder, default=DEFAULT_LAB, envvar="FARM_LAB", help=text)
