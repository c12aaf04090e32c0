"""Draws SVG images: axes, marks, legends, and the image as a separate file.

Every image has its axis titles, its units and its legend inside, and its values as a table, so that
both can be taken out of the page. Marks have a `<title>`, which works without scripts, and the
phone they belong to. Series differ in colour, in the shape of their marks and in the dashes of
their lines, and shades in lightness, so that an image can be read in grey.
"""

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from workloads.text import safe_text

WIDTH = 360
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 24, 36
WIDE_WIDTH = 470
ATTRIBUTE_MAX = 100_000  # characters; the points of a line are long
LETTER, NAME_LETTER = 6.1, 7.0  # width of a letter at the size of ticks, and of names
LEGEND_HEIGHT, LEGEND_LETTERS = 15, 40

CsvValue = str | int | float | None


@dataclass(frozen=True)
class Drawing:
    """An image, and the values that it shows as a table."""

    svg: Markup
    headings: tuple[str, ...]
    rows: tuple[tuple[CsvValue, ...], ...]


def escape_text(text: object, limit: int = 200) -> str:
    """Escape text for a page."""
    return html.escape(safe_text(text, limit))


def format_coordinate(value: float) -> str:
    """Format a coordinate."""
    return f"{value:.1f}".removesuffix(".0")


def format_short(value: float) -> str:
    """Format a value with three significant digits, without trailing zeros."""
    if value == 0:
        return "0"
    if 1000 <= abs(value) < 999_999.5:
        return f"{value:,.0f}"
    digits, _, exponent = f"{value:.3g}".partition("e")
    return f"{digits}e{int(exponent)}" if exponent else digits


def fit_text(text: str, width: float, letter: float = LETTER) -> str:
    """Shorten a text to a width in its middle: serial numbers and parameters are at its end."""
    plain, most = safe_text(text), max(3, int(width / letter))
    if len(plain) <= most:
        return plain
    tail = (most - 1) // 2
    return f"{plain[: most - 1 - tail]}…{plain[-tail:]}"


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


def axis_from_zero(title: str, values: Iterable[float]) -> PlotAxis:
    """Build an axis from zero to the largest of some values, and no further."""
    known = [*values]
    full = build_axis(title, known)
    most = max(known, default=0.0) or full.high
    return PlotAxis(title, 0.0, most, False, tuple(tick for tick in full.ticks if tick <= most))


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


@dataclass
class Picture:
    """An SVG image under construction."""

    height: float
    label: str
    width: float = WIDTH
    parts: list[str] = field(default_factory=list)

    def add(self, tag: str, inner: str = "", **attributes: object) -> None:
        """Add an element; an underscore in the name of an attribute becomes a hyphen."""
        text = "".join(
            f' {name.rstrip("_").replace("_", "-")}="{_attribute(value)}"'
            for name, value in attributes.items()
            if value is not None
        )
        self.parts.append(f"<{tag}{text}>{inner}</{tag}>")

    def text(self, x: float, y: float, text: object, kind: str = "", anchor: str = "") -> None:
        """Add a text."""
        escaped = escape_text(text)
        self.add("text", escaped, x=x, y=y, class_=kind or None, text_anchor=anchor or None)

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str, phone: str = "") -> None:
        """Add a line."""
        self.add("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=kind, data_phone=phone or None)

    def rect(
        self,
        box: tuple[float, float, float, float],
        kind: str,
        tip: str = "",
        phone: str | None = None,
        rx: int | None = None,
    ) -> None:
        """Add a rectangle; the box is (x, y, width, height)."""
        x, y, width, height = box
        size = {"x": x, "y": y, "width": width, "height": height, "rx": rx}
        self.add("rect", tooltip(tip) if tip else "", **size, class_=kind, data_phone=phone)

    def legend(self, entries: Sequence[tuple[str, str, int]], top: float) -> None:
        """Add a legend below `top`; an entry is (name, class of its box or 'mark', colour)."""
        for (x, y), (name, kind, colour) in zip(
            legend_places([name for name, _, _ in entries], self.width), entries, strict=True
        ):
            middle = top + y + 8
            if kind == "mark":
                self.line(x, middle, x + 22, middle, f"stroke p{colour % 10} d{colour % 6}")
                self.mark(x + 11, middle, colour)
            else:
                self.rect((x, middle - 5, 14, 10), f"{kind}{colour}")
            shown = fit_text(name, LEGEND_LETTERS * LETTER)
            self.text(x + (27 if kind == "mark" else 19), middle + 3.5, shown, "tick")

    def mark(self, x: float, y: float, colour: int, tip: str = "", phone: str = "") -> None:
        """Add a mark whose shape belongs to its colour."""
        self.add(
            *("path", tooltip(tip) if tip else ""),
            d=_shape(colour, x, y),
            class_=f"fill p{colour % 10}",
            data_phone=phone or None,
        )

    def svg(self) -> Markup:
        """Return the whole image."""
        box = f"0 0 {format_coordinate(self.width)} {format_coordinate(self.height)}"
        label = escape_text(self.label)
        is_broad = self.width > WIDE_WIDTH  # shown in its own size, so that it can be read
        wide = f' class="broad" width="{self.width:.0f}"' if is_broad else ""
        # Everything in the parts is escaped: texts and attributes pass escape_text().
        return Markup(
            f'<svg viewBox="{box}"{wide} role="img" aria-label="{label}">'
            f"{''.join(self.parts)}</svg>"
        )


def legend_places(names: Sequence[str], width: float) -> list[tuple[float, float]]:
    """Return the place of every entry of a legend: in columns, line by line."""
    cell = 30 + LETTER * max((min(len(n), LEGEND_LETTERS) for n in names), default=0) + 8
    columns = max(1, int(width // cell))
    return [
        (index % columns * cell, float(index // columns * LEGEND_HEIGHT))
        for index in range(len(names))
    ]


def legend_height(names: Sequence[str], width: float) -> float:
    """Return the height of a legend."""
    places = legend_places(names, width)
    return places[-1][1] + LEGEND_HEIGHT + 6 if places else 0.0


_SHAPES: tuple[tuple[tuple[float, float], ...], ...] = (
    ((-3.4, -3.4), (3.4, -3.4), (3.4, 3.4), (-3.4, 3.4)),
    ((0, -4.6), (4.2, 3.2), (-4.2, 3.2)),
    ((0, -4.8), (4.8, 0), (0, 4.8), (-4.8, 0)),
    ((0, 4.6), (4.2, -3.2), (-4.2, -3.2)),
    (
        *((-1.5, -4.4), (1.5, -4.4), (1.5, -1.5), (4.4, -1.5), (4.4, 1.5), (1.5, 1.5)),
        *((1.5, 4.4), (-1.5, 4.4), (-1.5, 1.5), (-4.4, 1.5), (-4.4, -1.5), (-1.5, -1.5)),
    ),
    ((-4.4, -4.4), (0, -1.6), (4.4, -4.4), (1.6, 0), (4.4, 4.4), (0, 1.6), (-4.4, 4.4), (-1.6, 0)),
)


def _shape(colour: int, x: float, y: float) -> str:
    """Return the outline of a mark: a circle, a square, a triangle, a diamond, and so on."""
    index = colour % (len(_SHAPES) + 1)
    if index == 0:
        left, top = format_coordinate(x - 4), format_coordinate(y)
        return f"M{left} {top}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z"
    points = " ".join(
        f"{format_coordinate(x + dx)} {format_coordinate(y + dy)}" for dx, dy in _SHAPES[index - 1]
    )
    return f"M{points}z"


def _attribute(value: object) -> str:
    if isinstance(value, float):
        return format_coordinate(value)
    return escape_text(value, ATTRIBUTE_MAX)


def tooltip(text: str) -> str:
    """Return the title element of a mark."""
    return f"<title>{escape_text(text, 400)}</title>"
