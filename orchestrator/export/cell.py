"""Text in a CSV cell. Phones choose their own names, and a spreadsheet runs what begins with `=`.

So text that could be a formula gets a leading apostrophe; numbers go in as they are.
"""

from workloads.text import safe_text

TEXT_MAX = 2000
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def text_cell(text: object) -> str:
    """Make text safe for a spreadsheet."""
    plain = safe_text(text, TEXT_MAX)
    # Both are looked at: cleaning may lay a formula bare that stood behind a space.
    risky = plain.startswith(_FORMULA_STARTS) or str(text).startswith(_FORMULA_STARTS)
    return f"'{plain}" if risky else plain
