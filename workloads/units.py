"""Parse and format durations, amounts of memory, clocks and step times."""

import re
from collections.abc import Iterable

from workloads.text import safe_text

_NUMBER = r"([0-9]{1,15}(?:\.[0-9]{1,15})?)"
_DURATION = re.compile(rf"{_NUMBER}\s*(ms|s|m|h|d)")
_SECONDS_PER = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = re.compile(rf"{_NUMBER}\s*(B|kB|MB|GB|TB|KiB|MiB|GiB|TiB)")
_BYTES_PER = {
    "B": 1,
    "kB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
    "KiB": 1024,
    "MiB": 1024**2,
    "GiB": 1024**3,
    "TiB": 1024**4,
}


def parse_duration(text: str) -> float:
    """Parse '90s', '20m', '1.5h' or '250ms'."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            f"'{safe_text(text, 40)}' is not a duration; use for example 90s, 20m or 1.5h"
        )
    return float(match[1]) * _SECONDS_PER[match[2]]


def parse_bytes(text: str) -> int:
    """Parse '512MB', '1.5 GB' or '2GiB'."""
    match = _BYTES.fullmatch(text.strip())
    if match is None:
        shown = safe_text(text, 40)
        raise ValueError(
            f"'{shown}' is not an amount of memory; use for example 512MB, 1.5GB or 2GiB"
        )
    return int(float(match[1]) * _BYTES_PER[match[2]])


def format_bytes(count: int) -> str:
    """Format an amount of memory with three significant digits."""
    for unit in ("TB", "GB", "MB", "kB"):
        if count >= _BYTES_PER[unit]:
            value = count / _BYTES_PER[unit]
            return f"{value:.0f} {unit}" if value >= 100 else f"{value:#.3g} {unit}"
    return f"{count} B"


def format_duration(seconds: float) -> str:
    """Format a duration: 8 s, 3 m 20 s, 2 h 05 m, 2 h."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} m {rest:02d} s" if rest else f"{minutes} m"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} m" if minutes else f"{hours} h"


def short_duration(seconds: float) -> str:
    """Format a duration as a file or a command takes it: 90s, 20m, 24h."""
    unit = next((u for u in ("h", "m") if seconds and seconds % _SECONDS_PER[u] == 0), "s")
    return f"{seconds / _SECONDS_PER[unit]:.15g}{unit}"


def format_ms(milliseconds: float) -> str:
    """Format a step time with three significant digits."""
    if milliseconds >= 100:
        return f"{milliseconds:,.0f}"
    return f"{milliseconds:#.3g}"


def format_ghz(clocks_khz: Iterable[int]) -> str:
    """Format clocks in GHz without rounding, so that different steps never look the same."""
    return "+".join(f"{khz / 1e6:.7g}" for khz in clocks_khz)


def step_time_text(metric: str, milliseconds: float) -> str:
    """Format a step time with what it is: the median of all steps, or of the last minute."""
    part = ", last minute" if metric == "last_minute_step_ms" else ""
    return f"{format_ms(milliseconds)} ms/step{part}"


def count_text(count: int, noun: str) -> str:
    """Format a count with its noun: 1 run, 1,250 runs."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
