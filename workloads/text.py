"""Text that came from a phone, made safe to show.

Phones and everything they print are hostile: terminal escapes, bidi overrides and very long names
must never reach a screen, a log or a table. Applied where text enters and again where it is shown.
"""

import re
import unicodedata
from functools import lru_cache

_KEEP = {"\t", "\n"}
_NUMBER = re.compile(r"(\d+)")
_MARKS_MAX = 2  # on one letter; more of them pile up over the lines above and below


def safe_text(text: object, limit: int = 200, lines: bool = False) -> str:
    """Drop control, bidi and invisible characters; cut at the limit; one line unless asked."""
    raw = str(text)[: limit * 4]
    harmless = raw.isascii() and raw.isprintable()  # as nearly everything is
    plain = (raw if harmless else "".join(_kept(raw, lines))).strip()
    return plain if len(plain) <= limit else plain[: limit - 1] + "…"


def _kept(raw: str, lines: bool) -> list[str]:
    kept, marks = [], 0
    for character in raw:
        category = unicodedata.category(character)
        marks = marks + 1 if category in {"Mn", "Me"} else 0
        if character in _KEEP:
            kept.append(character if lines else " ")
        elif category in {"Cs", "Cn", "Co"}:
            kept.append("\N{REPLACEMENT CHARACTER}")
        elif not category.startswith(("C", "Zl", "Zp")) and marks <= _MARKS_MAX:
            kept.append(character)
    return kept


@lru_cache(4096)
def natural(text: str) -> tuple[tuple[int, str], ...]:
    """A key that sorts names the way people count: batch 32 before batch 256."""
    return tuple(
        (int(piece), "") if piece.isdecimal() else (-1, piece) for piece in _NUMBER.split(text)
    )
