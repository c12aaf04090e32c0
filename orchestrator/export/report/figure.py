"""Pictures made of lines, areas, dots and texts, and the figures that a report is made of.

A picture knows no file format: `picture_files` writes it as SVG, PDF or PNG. Every figure has its
values as a table, and can be drawn at the width of a screen, of a phone or of a paper's column.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from workloads.text import safe_text
from workloads.units import format_ms

WIDE, NARROW = 620.0, 340.0  # of a figure on a screen, and on a phone or in a column of a paper
PANEL, PAPER_PANEL = 320.0, 168.0  # of one of several panels
# Widths of letters in DejaVu Sans, per height: the widest of the fonts that a picture may get.
LETTER, BOLD = 0.62, 1.13
LETTERS = {
    **dict.fromkeys("ijlI'|.,:; ", 0.33),
    **dict.fromkeys("ftr()-/[]", 0.41),
    **dict.fromkeys("ABCDEFGHJKLNOPQRSTUVXYZ", 0.72),
    **dict.fromkeys("mwMW%…+=×±<>", 0.95),
}
GAP = 4.0
Point = tuple[float, float]
CsvValue = str | int | float | None


class Style(NamedTuple):
    """How a line, an area or a text looks; `dark` is its colour on a dark ground."""

    colour: str
    dark: str = ""
    width: float = 0.0
    dash: str = ""
    size: float = 0.0
    bold: bool = False
    opacity: float = 1.0


SERIES = (
    *("#0f766e", "#c2410c", "#2563a8", "#7b5aa6", "#a16207"),
    *("#be185d", "#4d7c0f", "#475569"),
)
DASHES = ("", "6 3", "2 2.5", "8 3 2 3", "1 3", "10 4")
# From light to dark, so that a picture can be read in grey.
SHADES = (
    *("#f1f6fb", "#d9e7f3", "#bcd6ea", "#98c2df", "#6da9cf"),
    *("#468dbd", "#2a6fa3", "#14517f", "#0a3357"),
)
SHADE_DARK = 5  # text inside this shade and darker ones is white
STYLES = {
    "tick": Style("#6b7280", "#9ca3af", size=10.5),
    "label": Style("#374151", "#d1d5db", size=11),
    "name": Style("#111827", "#f3f4f6", size=12, bold=True),
    "small": Style("#111827", "#f3f4f6", size=10, bold=True),
    "stamp": Style("#8b93a1", "#8b93a1", size=8.5),
    "grid": Style("#e5e7eb", "#2b3442", 1),
    "axis": Style("#d1d5db", "#374151", 1),
    "span": Style("#6b7280", "#9ca3af", 1.3),
    "soft": Style("#9ca3af", "#6b7280", 1.4),
    "softdot": Style("#9ca3af", "#6b7280"),
    "absent": Style("#9ca3af", "#6b7280", 0.8, "2 2"),
}
for _i, _colour in enumerate(SERIES):
    _dark = {"#2563a8": "#6da9cf", "#475569": "#94a3b8", "#0f766e": "#2dd4bf"}.get(_colour, "")
    _dark = _dark or {"#c2410c": "#fb923c", "#7b5aa6": "#b79bdc", "#4d7c0f": "#a3e635"}.get(
        _colour, ""
    )
    STYLES[f"l{_i}"] = Style(_colour, _dark, 2.2, DASHES[_i % len(DASHES)])
    STYLES[f"d{_i}"] = Style(_colour, _dark)
    STYLES[f"t{_i}"] = Style(_colour, _dark, size=11, bold=True)
    STYLES[f"b{_i}"] = Style(_colour, _dark, opacity=0.16)
for _i, _colour in enumerate(SHADES):
    STYLES[f"h{_i}"] = Style(_colour)
    STYLES[f"i{_i}"] = Style("#ffffff" if _i >= SHADE_DARK else "#111827", size=11)
    STYLES[f"j{_i}"] = Style("#e5edf5" if _i >= SHADE_DARK else "#4b5563", size=9)


class Item(NamedTuple):
    """A line through points, an area between them, a dot at a point, or a text there."""

    kind: str  # line, area, dot, text
    points: tuple[Point, ...]
    style: str
    text: str = ""  # of a text; of others what a pointer shows
    anchor: str = ""  # of a text: start, middle, end
    radius: float = 0.0


@dataclass
class Picture:
    """What is drawn on a rectangle of some width and height."""

    width: float
    height: float = 0.0
    items: list[Item] = field(default_factory=list)

    def line(self, points: Iterable[Point], style: str, tip: str = "") -> None:
        """Draw a line through points."""
        self.items.append(Item("line", tuple(points), style, tip))

    def area(self, points: Iterable[Point], style: str, tip: str = "") -> None:
        """Fill the area between points."""
        self.items.append(Item("area", tuple(points), style, tip))

    def rect(self, x: float, y: float, width: float, height: float, style: str, tip: str) -> None:
        """Fill a rectangle."""
        right, bottom = x + width, y + height
        self.area(((x, y), (right, y), (right, bottom), (x, bottom)), style, tip)

    def dot(self, x: float, y: float, style: str, tip: str = "", radius: float = 3.4) -> None:
        """Draw a dot."""
        self.items.append(Item("dot", ((x, y),), style, tip, radius=radius))

    def text(self, x: float, y: float, text: str, style: str, anchor: str = "start") -> None:
        """Write a text."""
        self.items.append(Item("text", ((x, y),), style, safe_text(text), anchor))

    def heading(self, text: str) -> None:
        """Write a title across the top, smaller if it is too long."""
        style = "name" if text_width(safe_text(text), 12, bold=True) <= self.width else "small"
        self.text(0, 12, fit_text(text, self.width, STYLES[style].size, bold=True), style)

    def place(self, other: "Picture", left: float, top: float) -> None:
        """Draw another picture at a place of this one."""
        for item in other.items:
            moved = tuple((x + left, y + top) for x, y in item.points)
            self.items.append(item._replace(points=moved))


@dataclass(frozen=True)
class Figure:
    """One or several panels with a legend, and the values that they show as a table."""

    name: str  # of its file
    title: str
    caption: str
    draw: Callable[[float], Sequence[Picture]]  # the panels, each of a width
    headings: tuple[str, ...]
    rows: tuple[tuple[CsvValue, ...], ...]
    panels: int = 1
    legend: tuple[tuple[str, str], ...] = ()  # name and style


def file_name(title: str) -> str:
    """Return a title as the stem of a file's name."""
    return "-".join(re.findall("[a-z0-9]+", title.lower()))[:60] or "figure"


def join_panels(figure: Figure, stamp: str, width: float = NARROW) -> Picture:
    """Return a figure as one picture with its legend, and the source of its numbers inside."""
    columns = min(figure.panels, 2) if width <= NARROW else min(figure.panels, 3)
    across = (width - GAP * (columns - 1)) / columns
    panels = figure.draw(across)
    whole = Picture(width)
    for begin in range(0, len(panels), columns):
        row = panels[begin : begin + columns]
        for index, panel in enumerate(row):
            whole.place(panel, index * (across + GAP), whole.height)
        whole.height += max(panel.height for panel in row)
    below = legend_picture(figure.legend, stamp, width)
    whole.place(below, 0, whole.height)
    whole.height += below.height
    return whole


def legend_picture(legend: Sequence[tuple[str, str]], stamp: str, width: float) -> Picture:
    """Return what stands below the panels: the legend, and the source of the numbers."""
    picture, x, y = Picture(width), 0.0, 11.0
    for name, style in legend:
        shown = fit_text(name, width - 20, 11)
        needed = 30 + text_width(shown, 11)
        if x and x + needed > width:
            x, y = 0.0, y + 15
        if style.startswith("l"):
            picture.line(((x, y - 3), (x + 16, y - 3)), style)
        picture.dot(x + 8, y - 3, f"d{style[1:]}" if style[1:].isdigit() else "softdot")
        picture.text(x + 20, y, shown, "label")
        x += needed
    picture.height = y + 4 if legend else 0.0
    for line in wrap_text(stamp, width, 9.5):
        picture.height += 11
        picture.text(width, picture.height - 2, line, "stamp", "end")
    return picture


def text_width(text: str, size: float, bold: bool = False) -> float:
    """Return about how wide a text is."""
    return size * (BOLD if bold else 1) * sum(LETTERS.get(letter, LETTER) for letter in text)


def fit_text(text: str, width: float, size: float = 11, bold: bool = False) -> str:
    """Shorten a text to a width in its middle: serial numbers and parameters are at its end.

    Whole words are left out while some remain on both sides.
    """
    plain = safe_text(text)
    shorter = [*_without_words(plain.split(" ")), *_without_letters(plain)]
    fits = (one for one in (plain, *shorter) if text_width(one, size, bold) <= width)
    return next(fits, shorter[-1] if shorter else plain)


def _without_words(words: list[str]) -> Iterator[str]:
    for left in range(len(words) - 1, 1, -1):
        tail = left // 2
        yield " ".join([*words[: left - tail], "…", *words[-tail:]])


def _without_letters(text: str) -> Iterator[str]:
    for left in range(len(text) - 1, 1, -1):
        tail = left // 2
        yield f"{text[: left - tail]}…{text[-tail:]}"


def wrap_text(text: str, width: float, size: float) -> list[str]:
    """Divide a text into lines of a width, between its words."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_width(longer, size) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return [line for line in lines if line]


@dataclass(frozen=True)
class PlotAxis:
    """An axis: its title with the unit, its ends, and whether it is logarithmic."""

    title: str
    low: float
    high: float
    log: bool = False
    ticks: tuple[float, ...] = ()

    def position(self, value: float, begin: float, end: float) -> float:
        """Return the position of a value between two coordinates."""
        low, high, value = (
            (math.log(max(v, 1e-12)) for v in (self.low, self.high, value))
            if self.log
            else (self.low, self.high, value)
        )
        share = (value - low) / (high - low) if high > low else 0.5
        return begin + share * (end - begin)


def tick_text(value: float) -> str:
    """Format a round number beside an axis."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def build_axis(
    title: str, values: Iterable[float], log: bool = False, zero: bool = True
) -> PlotAxis:
    """Build an axis for some values, with a few round ticks."""
    known = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    least, most = min(known), max(known)
    if log and least > 0:
        low, high = least / 1.15, most * 1.15
        ticks = _log_ticks(low, high)
        if len(ticks) < 2:
            between = build_axis(title, [low, high], zero=False).ticks
            ticks = tuple(tick for tick in between if low <= tick <= high)
        return PlotAxis(title, low, high, True, ticks)
    low = 0.0 if zero and least >= 0 else least
    step = _tick_step(most - low or abs(most) or 1.0)
    low, high = math.floor(low / step) * step, math.ceil(most / step - 0.02) * step
    count = round((high - low) / step)
    return PlotAxis(title, low, high, False, tuple(low + step * i for i in range(count + 1)))


def _tick_step(span: float) -> float:
    rough = span / 4
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)


def _log_ticks(low: float, high: float) -> tuple[float, ...]:
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    for steps in ((1, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        ticks = tuple(
            step * 10.0**power
            for power in powers
            for step in steps
            if low <= step * 10.0**power <= high
        )
        if len(ticks) <= 6:
            break
    return ticks


def number_text(value: float) -> str:
    """Format a value: three significant digits, everywhere."""
    return format_ms(value)


def percent_text(ratio: float) -> str:
    """Format a ratio as a change."""
    return "0 %" if abs(ratio - 1) < 0.005 else f"{ratio - 1:+.0%}".replace("%", " %")
