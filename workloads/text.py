"""Make text from phones, hosts and files safe to display, sort names naturally, write TOML.

Phones and everything they print are hostile: terminal escapes, bidi overrides and very long names
must never reach a screen, a log or a table. safe_text() is applied where text enters and again
where it is displayed.
"""

import difflib
import json
import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any, Self

_KEEP = {"\t", "\n"}
_NUMBER = re.compile(r"(\d+)")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
LISTED_MAX = 16  # of the words that a message lists
_MARKS_MAX = 2  # combining marks per letter; more of them cover the lines above and below


def safe_text(text: object, limit: int = 200, lines: bool = False) -> str:
    """Remove control, bidi and invisible characters and truncate; `lines` keeps line breaks."""
    raw = str(text)[: limit * 4]
    is_plain = raw.isascii() and raw.isprintable()  # nearly always
    plain = (raw if is_plain else "".join(_safe_characters(raw, lines))).strip()
    return plain if len(plain) <= limit else plain[: limit - 1] + "…"


def _safe_characters(raw: str, lines: bool) -> list[str]:
    safe, marks = [], 0
    for character in raw:
        category = unicodedata.category(character)
        marks = marks + 1 if category in {"Mn", "Me"} else 0
        if character in _KEEP:
            safe.append(character if lines else " ")
        elif category in {"Cs", "Cn", "Co"}:
            safe.append("\N{REPLACEMENT CHARACTER}")
        elif not category.startswith(("C", "Zl", "Zp")) and marks <= _MARKS_MAX:
            safe.append(character)
    return safe


@lru_cache(4096)
def natural_sort_key(text: str) -> tuple[tuple[int, str], ...]:
    """Return a key that sorts numbers in names by value: batch 32 before batch 256."""
    return tuple(
        (int(piece), "") if piece.isdecimal() else (-1, piece) for piece in _NUMBER.split(text)
    )


def list_text(names: Sequence[str], most: int) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def one_of(words: Collection[str]) -> str:
    """Return a choice as a message lists it."""
    if len(words) == 2:
        return " or ".join(words)
    return f"one of {list_text(list(words), LISTED_MAX)}"


def suggestion(wrong: str, known: Collection[str]) -> str:
    """Return which of the known words was probably meant, or the words to choose from."""
    close = difflib.get_close_matches(wrong[:60].lower(), sorted(known), n=1)
    return f"did you mean '{close[0]}'?" if close else f"use {one_of(known)}"


class TextEnum(StrEnum):
    """Codes, each with the text that is shown for it: NAME = "code", "text"."""

    text: str

    def __new__(cls, code: str, text: str = "") -> Self:
        member = str.__new__(cls, code)
        member._value_ = code
        member.text = text
        return member


def format_toml(content: Mapping[str, Any]) -> str:
    """Write a TOML document: simple values first, then tables; None is left out."""
    simple = {key: value for key, value in content.items() if not _is_table(value)}
    parts = ["".join(_toml_lines(simple))]
    for key, value in content.items():
        if isinstance(value, dict):
            parts.append("".join([f"[{_toml_key(key)}]\n", *_toml_lines(value)]))
        elif _is_table(value):
            heading = f"[[{_toml_key(key)}]]\n"
            parts += ["".join([heading, *_toml_lines(item)]) for item in value]
    return "\n".join(parts)


def toml_value(value: object) -> str:
    """Write a value on one line; the tables of a list get one line each."""
    if isinstance(value, dict):
        items = value.items()
        pairs = [f"{_toml_key(key)} = {toml_value(v)}" for key, v in items if v is not None]
        return f"{{ {', '.join(pairs)} }}" if pairs else "{}"
    if isinstance(value, list | tuple):
        if value and isinstance(value[0], dict):
            return "[\n" + "".join(f"    {toml_value(item)},\n" for item in value) + "]"
        return f"[{', '.join(map(toml_value, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _is_table(value: object) -> bool:
    """Return whether a value is written as tables; a list of short tables is written in lines."""
    if isinstance(value, list | tuple) and value and isinstance(value[0], dict):
        return any(isinstance(item, dict | list | tuple) for item in value[0].values())
    return isinstance(value, dict)


def _toml_lines(items: Mapping[str, Any]) -> list[str]:
    return [
        f"{_toml_key(key)} = {toml_value(value)}\n"
        for key, value in items.items()
        if value is not None
    ]


def _toml_key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else toml_value(name)
