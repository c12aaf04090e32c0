"""Options of the command line that the commands of the agent and of the orchestrator share."""

from collections.abc import Callable
from math import inf, isfinite
from pathlib import Path
from typing import Any

import click
from click.decorators import FC

from workloads.units import parse_duration

DEFAULT_LAB = Path("lab")
PORT = click.IntRange(1, 65_535)
SEED = click.IntRange(0, 2**32 - 1)
COUNT = click.IntRange(1, 1_000_000)
# The speed of virtual phones whose clock goes from event to event, as fast as the computer can.
EVENTS, EVENT_TIME = "events", inf


class FiniteRange(click.FloatRange):
    """A range of numbers that refuses nan, which is neither below nor above its limits."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if not isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


class PhoneSpeed(FiniteRange):
    """The speed of a virtual phone's clock; `events` is as fast as this computer can."""

    name = "speed"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        return EVENT_TIME if value in {EVENTS, EVENT_TIME} else super().convert(value, param, ctx)


def speed_text(speed: float) -> str:
    """Return the speed of phones as the option takes it."""
    return EVENTS if speed == EVENT_TIME else f"{speed:g}"


class DurationUpTo(click.ParamType[float]):
    """A duration such as 90s or 2h, in seconds; longer than nothing unless `or_zero`."""

    name = "duration"

    def __init__(self, longest_s: float, *, or_zero: bool = False) -> None:
        self._longest_s, self._or_zero = longest_s, or_zero

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            seconds = parse_duration(str(value))
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)
        if seconds > self._longest_s or seconds < 0 or (seconds == 0 and not self._or_zero):
            self.fail(f"{value} is too {'long' if seconds else 'short'}.", param, ctx)
        return seconds


def value_option(*names: str, **settings: Any) -> Callable[[FC], FC]:
    """Return an option whose help shows its default."""
    return click.option(*names, show_default=True, **settings)


def lab_folder_option(text: str) -> Callable[[FC], FC]:
    """Return the option --lab with a help text."""
    names, folder = ("--lab", "lab_folder"), click.Path(file_okay=False, path_type=Path)
    return value_option(*names, type=folder, default=DEFAULT_LAB, envvar="FARM_LAB", help=text)
