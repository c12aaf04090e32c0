"""Make text from phones, hosts and files safe to display, and sort names naturally.

Phones and everything they print are hostile: terminal escapes, bidi overrides and very long names
must never reach a screen, a log or a table. safe_text() is applied where text enters and again
where it is displayed.
"""

import re
import unicodedata
from enum import StrEnum
from functools import lru_cache
from typing import Self

_KEEP = {"\t", "\n"}
_NUMBER = re.compile(r"(\d+)")
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


class TextEnum(StrEnum):
    """Codes, each with the text that is shown for it: NAME = "code", "text"."""

    text: str

    def __new__(cls, code: str, text: str = "") -> Self:
        member = str.__new__(cls, code)
        member._value_ = code
        member.text = text
        return member
