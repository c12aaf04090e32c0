"""Quantities with their units in the type, and the few ways they are read and written."""

import re
from typing import NewType

Seconds = NewType("Seconds", float)

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)")
_SECONDS_PER = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_BYTES = re.compile(r"(\d+(?:\.\d+)?)\s*(B|kB|MB|GB|KiB|MiB|GiB)")
_BYTES_PER = {
    "B": 1,
    "kB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "KiB": 1024,
    "MiB": 1024**2,
    "GiB": 1024**3,
}


def parse_duration(text: str) -> Seconds:
    """Read '90s', '20m', '1.5h' or '250ms'."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"'{text}' is not a duration; write it like 90s, 20m or 1.5h")
    return Seconds(float(match[1]) * _SECONDS_PER[match[2]])


def parse_bytes(text: str) -> int:
    """Read '512MB', '1.5 GB' or '2GiB'."""
    match = _BYTES.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"'{text}' is no amount of memory; write it like 512MB, 1.5GB or 2GiB")
    return int(float(match[1]) * _BYTES_PER[match[2]])


def format_bytes(count: int) -> str:
    """Write an amount of memory with three significant digits."""
    for unit in ("GB", "MB", "kB"):
        if count >= _BYTES_PER[unit]:
            value = count / _BYTES_PER[unit]
            return f"{value:.0f} {unit}" if value >= 100 else f"{value:#.3g} {unit}"
    return f"{count} B"


def format_duration(seconds: float) -> str:
    """Write a duration the way people say it: 8 s, 3 m 20 s, 2 h 05 m, 2 h."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} m {rest:02d} s" if rest else f"{minutes} m"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} m" if minutes else f"{hours} h"


def format_ms(milliseconds: float) -> str:
    """Write a step time with three significant digits."""
    if milliseconds >= 100:
        return f"{milliseconds:,.0f}"
    return f"{milliseconds:#.3g}"
