"""Lines of a screen: text fitted to cells, sparklines, bars, and the same in plain ASCII.

Whatever came from outside goes through `said` first; nothing here reads markup.
"""

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from workloads.text import safe_text

Piece = tuple[str, str]  # text and style

SPARKS = "▁▂▃▄▅▆▇█"
_PLAIN = {
    **dict(zip(SPARKS, "_.-=+*#@", strict=True)),
    **dict(zip("●○✗▶·░▒─│…↑↓→°±×µ⏎≤≥–", "*o!>.:%-|~^v-'~xu><>-", strict=True)),
}


def safe_cell(text: object, limit: int = 200) -> str:
    """Text from outside, on one line and harmless."""
    return safe_text(text, limit)


def fit(text: str, width: int, right: bool = False) -> str:
    """The text in exactly so many cells; what does not fit ends with an ellipsis."""
    if width <= 0:
        return ""
    length = len(text) if text.isascii() else cell_len(text)
    if length > width:
        return set_cell_size(text, width - 1) + "…"
    gap = " " * (width - length)
    return gap + text if right else text + gap


def line(width: int, *pieces: Piece) -> Text:
    """One line of exactly that width."""
    text = Text(no_wrap=True, overflow="crop", end="")
    left = width
    for piece, style in pieces:
        words = piece
        if left <= 0:
            break
        if not words.isprintable():  # the last net: nothing that steers a terminal gets past here
            words = safe_cell(words, 1000)
        length = len(words) if words.isascii() else cell_len(words)
        shown = words if length <= left else fit(words, left)
        text.append(shown, style)
        left -= min(length, left)
    if left > 0:
        text.append(" " * left)
    return text


def between(width: int, left: Sequence[Piece], right: Sequence[Piece]) -> Text:
    """A line with something at both ends; the right end is kept when it gets narrow."""
    ends = sum(cell_len(words) for words, _ in right)
    begins = line(max(0, width - ends - 1), *left)
    begins.append(" ")
    begins.append_text(line(ends, *right))
    return begins if width > ends else line(width, *right)


def rule(width: int, title: str, *more: str) -> Text:
    """A line that parts two panels: its title, and at its end what else is to be known."""
    end = "".join(f" {words} ──" for words in more)
    head = f"── {title} "
    fill = "─" * max(0, width - cell_len(head) - cell_len(end))
    return line(width, (head, "bold"), (fill, "dim"), (end, "dim"))


def spark(values: Sequence[float], width: int) -> str:
    """The last values as a line of little bars, from the lowest to the highest of them."""
    shown = values[-width:] if width > 0 else ()
    if not shown:
        return ""
    low, high = min(shown), max(shown)
    if high - low < 1e-9:
        return SPARKS[3] * len(shown)
    scale = (len(SPARKS) - 1) / (high - low)
    return "".join(SPARKS[round((value - low) * scale)] for value in shown)


def bar(share: float, width: int) -> tuple[str, str]:
    """A progress bar as two strings: what is done, and what is not."""
    done = min(width, max(0, int(share * width)))
    return "█" * done, "░" * (width - done)


def in_ascii(text: Text) -> Text:
    """The same line in ASCII, cell by cell, for terminals that know no more."""
    if text.plain.isascii():
        return text
    plain = Text(no_wrap=True, overflow="crop", end="")
    for start in text.divide(sorted({edge for span in text.spans for edge in span[:2]})):
        style = start.spans[0].style if start.spans else ""
        plain.append("".join(map(_ascii, start.plain)), style)
    return plain


def _ascii(character: str) -> str:
    if character.isascii():
        return character
    return _PLAIN.get(character, "?" * cell_len(character))
