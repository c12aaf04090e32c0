"""The contract of kernels/runner/runner.h in Python: exit codes, faults, records and options."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType

CONTRACT = 1
WINDOWS_MAX = 4096
PERIOD_MIN_MS = 5.0
VERSION = "farmhand 0.1.0"

RunnerRecord = Mapping[str, object]


class RunnerExit(IntEnum):
    """Exit status; the lower-case name is the code of the fault."""

    DONE = 0
    USAGE = 2
    BAD_PLAN = 3
    UNSUPPORTED = 4
    OUT_OF_MEMORY = 5
    WRONG_ANSWER = 6
    STOPPED = 7
    IO = 8
    GUARD_RESTORED = 10
    DEVICE = 11
    BAD_CHECKPOINT = 12


class RunnerFailure(Exception):
    """The runner gives up, with a code and a message."""

    def __init__(self, exit_code: RunnerExit, text: str) -> None:
        super().__init__(text)
        self.exit_code = exit_code
        self.text = text

    def record(self) -> RunnerRecord:
        return {"line": "fault", "code": self.exit_code.name.lower(), "text": self.text}


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The options of `run`."""

    warmup: int = 3
    steps: int = 20
    seconds: float = 0.0
    max_seconds: float = 600.0
    window_ms: float = 50.0
    period_ms: float = 200.0
    trace_steps: int = 0

    @property
    def period_s(self) -> float:
        """Return the sampling period, which the contract limits."""
        return max(self.period_ms, PERIOD_MIN_MS) / 1000

    @property
    def window_s(self) -> float:
        """Return the window length, widened so that the longest run has a permitted number of
        windows.
        """
        return max(self.window_ms / 1000, self.max_seconds / WINDOWS_MAX)


def encode_record(record: RunnerRecord) -> str:
    return json.dumps(record, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class ParsedOptions:
    """The options of a command, by name."""

    numbers: dict[str, float]
    texts: dict[str, str]


def parse_options(
    arguments: list[str],
    defaults: Mapping[str, float],
    text_options: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> ParsedOptions:
    """Parse --name value pairs over their defaults; anything else is a usage fault.

    `text_options` has the names of the options with text, each with its choices or with none.
    """
    options = ParsedOptions(dict(defaults), {})
    remaining = list(arguments)
    while remaining:
        name = remaining.pop(0)
        if name not in {*defaults, *text_options} or not remaining:
            raise RunnerFailure(RunnerExit.USAGE, f"unknown option '{name}'; see runner.h")
        text = remaining.pop(0)
        if name in defaults:
            options.numbers[name] = _parse_number(name, text)
            continue
        choices = text_options[name]
        if choices and text not in choices:
            use = ", ".join(choices)
            raise RunnerFailure(RunnerExit.USAGE, f"'{name} {text}' is not possible; use {use}")
        options.texts[name] = text
    return options


def _parse_number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise RunnerFailure(RunnerExit.USAGE, f"'{name} {text}' is not a number") from None
    if not 0 <= number < 1e9:
        raise RunnerFailure(RunnerExit.USAGE, f"'{name} {text}' is out of range")
    return number
