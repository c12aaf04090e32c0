"""Pictures as SVG: a few kinds of charts, each at a size that a phone's screen shows as it is.

Nothing here knows what is drawn. Every text is escaped, every mark carries its numbers as a title
(which works without any script) and the phone it belongs to. Colours are classes of the page.
"""

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from markupsafe import Markup

from workloads.text import safe_text
from workloads.units import format_ms

WIDTH = 360
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 10, 34
NOTE = 150  # room beside a bar
WIDE = 470
NAMES = 180.0  # room for names on either side of it
ATTRIBUTE_MAX = 100_000  # of a line: its points


def plain(text: object, limit: int = 200) -> str:
    """Text that may stand in a page."""
    return html.escape(safe_text(text, limit))


def number(value: float) -> str:
    """A coordinate."""
    return f"{value:.1f}".removesuffix(".0")


def short(value: float) -> str:
    """A figure with three significant digits, and no more zeros than it needs."""
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    text = f"{value:.3g}"
    return text if "e" not in text else f"{value:.1e}"


@dataclass(frozen=True)
class Mark:
    """A point with what is to be said of it; the interval is drawn where it is known."""

    x: float
    y: float
    tip: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Series:
    """Marks of one phone (or of something else that has a colour)."""

    name: str
    phone: str
    colour: int
    marks: Sequence[Mark]
    dashed: bool = False
    joined: bool = True


@dataclass(frozen=True)
class PlotAxis:
    """A direction: its title, its ends, and whether each step multiplies."""

    title: str
    low: float
    high: float
    log: bool = False
    ticks: tuple[float, ...] = ()

    def at(self, value: float, begin: float, end: float) -> float:
        """Where a value lies between two coordinates."""
        low, high, value = (
            (math.log(max(v, 1e-12)) for v in (self.low, self.high, value))
            if self.log
            else (self.low, self.high, value)
        )
        share = (value - low) / (high - low) if high > low else 0.5
        return begin + share * (end - begin)


def span_of(title: str, values: Iterable[float]) -> PlotAxis:
    """An axis from zero to the last of some values, and no further."""
    found = [*values]
    round_ = axis_of(title, found)
    most = max(found, default=0.0) or round_.high
    return PlotAxis(title, 0.0, most, False, tuple(tick for tick in round_.ticks if tick <= most))


def axis_of(title: str, values: Iterable[float], log: bool = False, zero: bool = True) -> PlotAxis:
    """An axis that holds some values, with a few round ticks."""
    found = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    least, most = min(found), max(found)
    if log and least > 0:
        low, high = least / 1.15, most * 1.15
        ticks = _log_ticks(low, high)
        if len(ticks) < 2:
            between = axis_of(title, [low, high], zero=False).ticks
            ticks = tuple(tick for tick in between if low <= tick <= high)
        return PlotAxis(title, low, high, True, ticks)
    low = 0.0 if zero and least >= 0 else least
    step = _step(most - low or abs(most) or 1.0)
    low, high = math.floor(low / step) * step, math.ceil(most / step - 0.02) * step
    count = round((high - low) / step)
    return PlotAxis(title, low, high, False, tuple(low + step * at for at in range(count + 1)))


def _step(span: float) -> float:
    rough = span / 4
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * nice for nice in (1, 2, 2.5, 5, 10) if power * nice >= rough * 0.999)


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
    """An SVG that grows."""

    height: float
    label: str
    width: float = WIDTH
    parts: list[str] = field(default_factory=list)

    def add(self, tag: str, inner: str = "", **attributes: object) -> None:
        """Add an element; an underscore in a name stands for a hyphen."""
        told = "".join(
            f' {name.rstrip("_").replace("_", "-")}="{_attribute(value)}"'
            for name, value in attributes.items()
            if value is not None
        )
        self.parts.append(f"<{tag}{told}>{inner}</{tag}>")

    def text(self, x: float, y: float, words: object, kind: str = "", anchor: str = "") -> None:
        """Add words."""
        self.add("text", plain(words), x=x, y=y, class_=kind or None, text_anchor=anchor or None)

    def svg(self) -> Markup:
        """The whole of it."""
        box = f"0 0 {number(self.width)} {number(self.height)}"
        label = plain(self.label)
        # Nothing unescaped gets in: texts and attributes pass plain() on their way.
        return Markup(
            f'<svg viewBox="{box}" role="img" aria-label="{label}">{"".join(self.parts)}</svg>'
        )


def _attribute(value: object) -> str:
    return number(value) if isinstance(value, float) else plain(value, ATTRIBUTE_MAX)


def tip(text: str) -> str:
    """What a mark says when it is pointed at."""
    return f"<title>{plain(text, 400)}</title>"


def frame(picture: Picture, x: PlotAxis, y: PlotAxis) -> None:
    """Grid, ticks and titles of a chart with two axes."""
    bottom, right = picture.height - BOTTOM, picture.width - RIGHT
    for value in y.ticks:
        at = y.at(value, bottom, TOP)
        picture.add("line", x1=LEFT, x2=right, y1=at, y2=at, class_="grid")
        picture.text(LEFT - 5, at + 3.5, short(value), "tick", "end")
    for value in x.ticks:
        at = x.at(value, LEFT, right)
        picture.add("line", x1=at, x2=at, y1=bottom, y2=bottom + 4, class_="grid")
        picture.text(at, bottom + 15, short(value), "tick", "middle")
    picture.text(right, picture.height - 4, x.title, "title", "end")
    picture.text(LEFT, picture.height - 4, f"↑ {y.title}", "title")


def chart(
    label: str,
    series: Sequence[Series],
    x: PlotAxis,
    y: PlotAxis,
    *,
    dots: bool = True,
) -> Markup:
    """Lines or points over two axes."""
    picture = Picture(230, label)
    frame(picture, x, y)
    bottom, right = picture.height - BOTTOM, picture.width - RIGHT
    for each in series:
        places = [(x.at(m.x, LEFT, right), y.at(m.y, bottom, TOP), m) for m in each.marks]
        about = {"data_phone": each.phone}
        if each.joined and len(places) > 1:
            line = " ".join(f"{number(a)},{number(b)}" for a, b, _ in places)
            dashed = " dashed" if each.dashed else ""
            picture.add(
                *("polyline", tip(each.name)),
                points=line,
                class_=f"stroke p{each.colour}{dashed}",
                **about,
            )
        for a, b, mark in places if dots else ():
            if mark.low is not None and mark.high is not None:
                ends = (y.at(mark.low, bottom, TOP), y.at(mark.high, bottom, TOP))
                picture.add(
                    "line",
                    x1=a,
                    x2=a,
                    y1=ends[0],
                    y2=ends[1],
                    class_=f"stroke p{each.colour}",
                    **about,
                )
            picture.add(
                *("circle", tip(mark.tip)),
                cx=a,
                cy=b,
                r=4.0,
                class_=f"fill p{each.colour}",
                **about,
            )
    return picture.svg()


@dataclass(frozen=True)
class Bar:
    """A row of a ranking: a name, a figure, and where the figure may lie."""

    name: str
    phone: str
    colour: int
    value: float
    low: float | None
    high: float | None
    shown: str
    note: str
    tip: str


def ranked(label: str, bars: Sequence[Bar]) -> Markup:
    """Bars from the best down, each with its interval across its end."""
    rows = 37
    picture = Picture(rows * len(bars) + 4, label)
    most = max([each.high or each.value for each in bars] + [each.value for each in bars])
    for at, bar in enumerate(bars):
        top = at * rows
        about = {"data_phone": bar.phone}
        picture.text(0, top + 13, bar.name, "name")
        picture.text(picture.width, top + 13, bar.shown, "value", "end")
        scale = (picture.width - NOTE) / most if most > 0 else 0.0
        width = max(1.0, bar.value * scale)
        picture.add(
            *("rect", tip(bar.tip)),
            x=0,
            y=top + 18,
            width=width,
            height=11.0,
            rx=2,
            class_=f"fill p{bar.colour}",
            **about,
        )
        if bar.low is not None and bar.high is not None:
            middle, low, high = top + 23.5, max(0.0, bar.low) * scale, bar.high * scale
            picture.add("line", x1=low, x2=high, y1=middle, y2=middle, class_="span")
            for end in (low, high):
                picture.add("line", x1=end, x2=end, y1=middle - 4, y2=middle + 4, class_="span")
        picture.text(picture.width, top + 27, bar.note, "tick", "end")
    return picture.svg()


@dataclass(frozen=True)
class BarPart:
    """A share of a stacked row."""

    name: str
    share: float
    colour: int
    tip: str


def stacked(label: str, rows: Sequence[tuple[str, str, Sequence[BarPart]]]) -> Markup:
    """Rows of parts that make a whole; each row is (name, phone, parts)."""
    height = 34
    picture = Picture(height * len(rows) + 2, label)
    for at, (name, phone, parts) in enumerate(rows):
        top, x = at * height, 0.0
        picture.text(0, top + 12, name, "name")
        whole = sum(part.share for part in parts) or 1.0
        for part in parts:
            width = part.share / whole * picture.width
            picture.add(
                *("rect", tip(part.tip)),
                x=x,
                y=top + 17,
                width=width,
                height=12.0,
                class_=f"fill q{part.colour}",
                data_phone=phone,
            )
            x += width
    return picture.svg()


def slopes(label: str, rows: Sequence[tuple[str, str, int, float, float, str]]) -> Markup:
    """What becomes of each phone: a line from the first value to the second, best at the top.

    A row is (name, phone, colour, before, after, tip).
    """
    picture = Picture(max(150.0, 34.0 * len(rows) + 40), label, WIDE)
    values = [value for row in rows for value in row[3:5]]
    scale = axis_of("", values, log=min(values, default=0) > 0)
    left, right, bottom = NAMES, picture.width - NAMES, picture.height - 10
    picture.text(left, 12, "cold", "title", "middle")
    picture.text(right, 12, "after ten minutes", "title", "middle")
    places = []
    for row in rows:
        ends = tuple(scale.at(value, 34, bottom) for value in row[3:5])
        places.append((row, ends))
    labels = [_apart([ends[side] for _, ends in places], bottom) for side in (0, 1)]
    for at, ((name, phone, colour, before, after, says), ends) in enumerate(places):
        about = {"data_phone": phone}
        picture.add(
            *("line", tip(says)),
            x1=left,
            x2=right,
            y1=ends[0],
            y2=ends[1],
            class_=f"stroke thick p{colour}",
            **about,
        )
        for x, y in ((left, ends[0]), (right, ends[1])):
            picture.add("circle", tip(says), cx=x, cy=y, r=4.5, class_=f"fill p{colour}", **about)
        picture.text(
            left - 9, labels[0][at] + 4, f"{safe_text(name, 23)} {format_ms(before)}", "tick", "end"
        )
        picture.text(
            right + 9, labels[1][at] + 4, f"{format_ms(after)} {safe_text(name, 23)}", "tick"
        )
    return picture.svg()


def _apart(places: Sequence[float], bottom: float, least: float = 13.0) -> list[float]:
    """Move labels until none covers another: downwards first, then up from the bottom."""
    moved = list(places)
    order = sorted(range(len(places)), key=places.__getitem__)
    for before, here in pairwise(order):
        moved[here] = max(moved[here], moved[before] + least)
    limit = bottom
    for here in reversed(order):
        moved[here] = min(moved[here], limit)
        limit = moved[here] - least
    return moved
