"""Quantities with their units in the type, and the few ways they are read and written."""

import re
from typing import NewType

Seconds = NewType("Seconds", float)

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)")
_SECONDS_PER = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(text: str) -> Seconds:
    """Read '90s', '20m', '1.5h' or '250ms'."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"'{text}' is not a duration; write it like 90s, 20m or 1.5h")
    return Seconds(float(match[1]) * _SECONDS_PER[match[2]])


def format_duration(seconds: float) -> str:
    """Write a duration the way people say it: 8 s, 3 m 20 s, 2 h 05 m."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} m {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} m"


def format_ms(milliseconds: float) -> str:
    """Write a step time with three significant digits."""
    if milliseconds >= 100:
        return f"{milliseconds:,.0f}"
    return f"{milliseconds:#.3g}"
