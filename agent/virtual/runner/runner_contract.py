"""The words of kernels/runner/runner.h: exit codes, faults, lines, options.

Said once here, so that every verb says a thing the same way.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

CONTRACT = 1
WINDOWS_MAX = 4096
PERIOD_MIN_MS = 10.0
VERSION = "farmhand 0.1.0"

Line = Mapping[str, object]


class Exit(IntEnum):
    """Exit status; the lower-case name is the fault's code."""

    DONE = 0
    USAGE = 2
    BAD_PLAN = 3
    UNSUPPORTED = 4
    OUT_OF_MEMORY = 5
    WRONG_ANSWER = 6
    STOPPED = 7
    IO = 8
    NO_RUNNER = 9
    GUARD_RESTORED = 10
    DEVICE = 11


class RunnerFault(Exception):
    """The runner gives up, with a code and one sentence."""

    def __init__(self, exit_code: Exit, text: str) -> None:
        super().__init__(text)
        self.exit_code = exit_code
        self.text = text

    def line(self) -> Line:
        return {"line": "fault", "code": self.exit_code.name.lower(), "text": self.text}


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What `run` may be told."""

    warmup: int = 3
    steps: int = 20
    seconds: float = 0.0
    max_seconds: float = 600.0
    window_ms: float = 50.0
    period_ms: float = 200.0
    trace_steps: int = 0

    @property
    def period_s(self) -> float:
        """How often nodes are sampled; nobody may ask for more than the contract gives."""
        return max(self.period_ms, PERIOD_MIN_MS) / 1000

    @property
    def window_s(self) -> float:
        """The window, widened so that the longest run fits in the permitted number."""
        return max(self.window_ms / 1000, self.max_seconds / WINDOWS_MAX)


def encode_line(line: Line) -> str:
    return json.dumps(line, separators=(",", ":"))


def read_options(
    words: list[str], known: Mapping[str, float], texts: frozenset[str] = frozenset()
) -> dict[str, float]:
    """--name value pairs over their defaults; anything else is a usage fault.

    What `texts` names takes any word: a phone that computes nothing needs no data either.
    """
    options = dict(known)
    rest = list(words)
    while rest:
        name = rest.pop(0)
        if name not in {*known, *texts} or not rest:
            raise RunnerFault(Exit.USAGE, f"'{name}' is no option of this verb; see runner.h")
        text = rest.pop(0)
        if name in texts:
            continue
        try:
            options[name] = float(text)
        except ValueError:
            raise RunnerFault(Exit.USAGE, f"'{name} {text}' is not a number") from None
        if not 0 <= options[name] < 1e9:
            raise RunnerFault(Exit.USAGE, f"'{name} {text}' is out of range")
    return options
