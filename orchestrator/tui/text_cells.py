"""Lines of the screen: text fitted to cells, sparklines, bars, and their ASCII form.

Text from phones and hosts goes through `safe_cell`; no function interprets markup.
"""

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from rich.text import Span, Text

from orchestrator.app.screen.phone_state_text import SERIAL_MARK
from workloads.text import safe_text

Piece = tuple[str, str]  # text and style

SPARKS = "▁▂▃▄▅▆▇█"
_PLAIN = {
    **dict(zip(SPARKS, "_.-=+*#@", strict=True)),
    **dict(zip("●○✗▶·░▒─│…↑↓→°±×µ⏎≤≥–", "*o!>.:%-|~^v-'~xu><>-", strict=True)),
}


def safe_cell(text: object, limit: int = 200) -> str:
    """Return untrusted text on one line, without control characters."""
    return safe_text(text, limit)


def cells(text: str) -> int:
    """Return how many cells of the screen a text takes."""
    return len(text) if text.isascii() else cell_len(text)


def fit(text: str, width: int, right: bool = False) -> str:
    """Pad or cut text to exactly this many cells; a cut ends with an ellipsis."""
    if width <= 0:
        return ""
    length = cells(text)
    if length > width:
        return set_cell_size(text, width - 1) + "…"
    gap = " " * (width - length)
    return gap + text if right else text + gap


def fit_name(name: str, cells: int) -> str:
    """Fit a name into a number of cells; the end of the serial is kept."""
    model, mark, serial = name.rpartition(f" {SERIAL_MARK}")
    if not mark or len(name) <= cells:
        return fit(name, cells)
    return fit(model, cells - len(serial) - 2) + f" {SERIAL_MARK}{serial}"


def line(width: int, *pieces: Piece) -> Text:
    """Return one line of exactly this width."""
    shown, spans, at, left = "", [], 0, width
    for piece, style in pieces:
        content = piece
        if left <= 0:
            break
        if not content.isprintable():  # last line of defence against terminal control sequences
            content = safe_cell(content, 1000)
        length = cells(content)
        if length > left:
            content, length = fit(content, left), left
        shown += content
        if style:
            spans.append(Span(at, len(shown), style))
        at, left = len(shown), left - length
    return Text(shown + " " * left, spans=spans, no_wrap=True, overflow="crop", end="")


def between(width: int, left: Sequence[Piece], right: Sequence[Piece]) -> Text:
    """Return a line with text at both ends; if it is too narrow, the right end is kept."""
    right_cells = sum(cells(text) for text, _ in right)
    both = line(max(0, width - right_cells - 1), *left)
    both.append(" ")
    both.append_text(line(right_cells, *right))
    return both if width > right_cells else line(width, *right)


def rule(width: int, title: str, *more: str) -> Text:
    """Return a line that separates two panels: a title, and details at its end."""
    end = "".join(f" {text} ──" for text in more)
    head = f"── {title} "
    fill = "─" * max(0, width - cell_len(head) - cell_len(end))
    return line(width, (head, "bold"), (fill, "dim"), (end, "dim"))


def spark(values: Sequence[float], width: int) -> str:
    """Return the last values as a sparkline, scaled from their minimum to their maximum."""
    shown = values[-width:] if width > 0 else ()
    if not shown:
        return ""
    low, high = min(shown), max(shown)
    if high - low < 1e-9:
        return SPARKS[3] * len(shown)
    scale = (len(SPARKS) - 1) / (high - low)
    return "".join(SPARKS[round((value - low) * scale)] for value in shown)


def bar(share: float, width: int) -> tuple[str, str]:
    """Return a progress bar as two strings: the filled part and the empty part."""
    filled = min(width, max(0, int(share * width)))
    return "█" * filled, "░" * (width - filled)


def in_ascii(text: Text) -> Text:
    """Return the line in ASCII, cell by cell, for terminals without Unicode."""
    if text.plain.isascii():
        return text
    plain = Text(no_wrap=True, overflow="crop", end="")
    for part in text.divide(sorted({edge for span in text.spans for edge in span[:2]})):
        style = part.spans[0].style if part.spans else ""
        plain.append("".join(map(_ascii, part.plain)), style)
    return plain


def _ascii(character: str) -> str:
    if character.isascii():
        return character
    return _PLAIN.get(character, "?" * cell_len(character))
