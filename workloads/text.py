"""Text that came from a phone, made safe to show.

Phones and everything they print are hostile: terminal escapes, bidi overrides and very long names
must never reach a screen, a log or a table. Applied where text enters and again where it is shown.
"""

import unicodedata

_KEEP = {"\t", "\n"}


def safe_text(text: object, limit: int = 200, lines: bool = False) -> str:
    """Drop control, bidi and invisible characters; cut at the limit; one line unless asked."""
    raw = str(text)[: limit * 4]
    harmless = raw.isascii() and raw.isprintable()  # as nearly everything is
    plain = (raw if harmless else "".join(_kept(raw, lines))).strip()
    return plain if len(plain) <= limit else plain[: limit - 1] + "…"


def _kept(raw: str, lines: bool) -> list[str]:
    kept = []
    for character in raw:
        if character in _KEEP:
            kept.append(character if lines else " ")
        elif unicodedata.category(character) in {"Cs", "Cn", "Co"}:
            kept.append("\N{REPLACEMENT CHARACTER}")
        elif not unicodedata.category(character).startswith(("C", "Zl", "Zp")):
            kept.append(character)
    return kept
