"""Charts as SVG, of a few kinds, each at a width that the screen of a phone shows unscaled.

This module knows nothing about the data. Every text is escaped; every mark has its numbers as a
title, which works without scripts, and the phone it belongs to. Colours are classes of the page.
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
NOTE_WIDTH = 150  # for the text beside a bar
WIDE_WIDTH = 470
NAMES_WIDTH = 180.0  # for names on each side of a wide chart
ATTRIBUTE_MAX = 100_000  # characters; the points of a line are long


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
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    text = f"{value:.3g}"
    return text if "e" not in text else f"{value:.1e}"


@dataclass(frozen=True)
class Mark:
    """A point with its tooltip; the interval is drawn where it is known."""

    x: float
    y: float
    tip: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Series:
    """The marks of one phone, or of something else with a colour."""

    name: str
    phone: str
    colour: int
    marks: Sequence[Mark]
    dashed: bool = False
    joined: bool = True


@dataclass(frozen=True)
class PlotAxis:
    """An axis: its title, its ends, and whether it is logarithmic."""

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

    def svg(self) -> Markup:
        """Return the whole image."""
        box = f"0 0 {format_coordinate(self.width)} {format_coordinate(self.height)}"
        label = escape_text(self.label)
        # Everything in the parts is escaped: texts and attributes pass escape_text().
        return Markup(
            f'<svg viewBox="{box}" role="img" aria-label="{label}">{"".join(self.parts)}</svg>'
        )


def _attribute(value: object) -> str:
    if isinstance(value, float):
        return format_coordinate(value)
    return escape_text(value, ATTRIBUTE_MAX)


def tooltip(text: str) -> str:
    """Return the title element of a mark."""
    return f"<title>{escape_text(text, 400)}</title>"


def draw_frame(picture: Picture, x: PlotAxis, y: PlotAxis) -> None:
    """Draw grid, ticks and titles of a chart with two axes."""
    bottom, right = picture.height - BOTTOM, picture.width - RIGHT
    for value in y.ticks:
        height = y.position(value, bottom, TOP)
        picture.add("line", x1=LEFT, x2=right, y1=height, y2=height, class_="grid")
        picture.text(LEFT - 5, height + 3.5, format_short(value), "tick", "end")
    for value in x.ticks:
        left = x.position(value, LEFT, right)
        picture.add("line", x1=left, x2=left, y1=bottom, y2=bottom + 4, class_="grid")
        picture.text(left, bottom + 15, format_short(value), "tick", "middle")
    picture.text(right, picture.height - 4, x.title, "title", "end")
    picture.text(LEFT, picture.height - 4, f"↑ {y.title}", "title")


def draw_chart(
    label: str,
    series: Sequence[Series],
    x: PlotAxis,
    y: PlotAxis,
    *,
    dots: bool = True,
) -> Markup:
    """Draw lines or points over two axes."""
    picture = Picture(230, label)
    draw_frame(picture, x, y)
    bottom, right = picture.height - BOTTOM, picture.width - RIGHT
    for item in series:
        points = [
            (x.position(m.x, LEFT, right), y.position(m.y, bottom, TOP), m) for m in item.marks
        ]
        phone = {"data_phone": item.phone}
        if item.joined and len(points) > 1:
            line = " ".join(
                f"{format_coordinate(left)},{format_coordinate(top)}" for left, top, _ in points
            )
            dashed = " dashed" if item.dashed else ""
            picture.add(
                *("polyline", tooltip(item.name)),
                points=line,
                class_=f"stroke p{item.colour}{dashed}",
                **phone,
            )
        for left, top, mark in points if dots else ():
            if mark.low is not None and mark.high is not None:
                picture.add(
                    "line",
                    x1=left,
                    x2=left,
                    y1=y.position(mark.low, bottom, TOP),
                    y2=y.position(mark.high, bottom, TOP),
                    class_=f"stroke p{item.colour}",
                    **phone,
                )
            picture.add(
                *("circle", tooltip(mark.tip)),
                cx=left,
                cy=top,
                r=4.0,
                class_=f"fill p{item.colour}",
                **phone,
            )
    return picture.svg()


@dataclass(frozen=True)
class Bar:
    """A row of a ranking: a name, a value and its interval."""

    name: str
    phone: str
    colour: int
    value: float
    low: float | None
    high: float | None
    shown: str
    note: str
    tip: str


def draw_bars(label: str, bars: Sequence[Bar]) -> Markup:
    """Draw bars from the best down, each with its interval across its end."""
    row_height = 37
    picture = Picture(row_height * len(bars) + 4, label)
    most = max([bar.high or bar.value for bar in bars] + [bar.value for bar in bars])
    for index, bar in enumerate(bars):
        top = index * row_height
        phone = {"data_phone": bar.phone}
        picture.text(0, top + 13, bar.name, "name")
        picture.text(picture.width, top + 13, bar.shown, "value", "end")
        scale = (picture.width - NOTE_WIDTH) / most if most > 0 else 0.0
        width = max(1.0, bar.value * scale)
        picture.add(
            *("rect", tooltip(bar.tip)),
            x=0,
            y=top + 18,
            width=width,
            height=11.0,
            rx=2,
            class_=f"fill p{bar.colour}",
            **phone,
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


def draw_stacked_bars(label: str, rows: Sequence[tuple[str, str, Sequence[BarPart]]]) -> Markup:
    """Draw rows of parts that add up to a whole; each row is (name, phone, parts)."""
    height = 34
    picture = Picture(height * len(rows) + 2, label)
    for index, (name, phone, parts) in enumerate(rows):
        top, x = index * height, 0.0
        picture.text(0, top + 12, name, "name")
        whole = sum(part.share for part in parts) or 1.0
        for part in parts:
            width = part.share / whole * picture.width
            picture.add(
                *("rect", tooltip(part.tip)),
                x=x,
                y=top + 17,
                width=width,
                height=12.0,
                class_=f"fill q{part.colour}",
                data_phone=phone,
            )
            x += width
    return picture.svg()


@dataclass(frozen=True)
class LaneSegment:
    """A value from one time to another; `vague` ones are drawn lighter."""

    begin: float
    end: float
    value: float
    tip: str
    colour: int = 0
    vague: bool = False


@dataclass(frozen=True)
class Lane:
    """A named row of segments on a common time axis, up to `top`."""

    name: str
    unit: str
    top: float
    segments: Sequence[LaneSegment]


def draw_lanes(label: str, lanes: Sequence[Lane]) -> Markup:
    """Draw lanes above each other on a time axis in ms."""
    height, left = 26.0, 74.0
    picture = Picture(height * len(lanes) + 26, label, WIDE_WIDTH)
    end = max((segment.end for lane in lanes for segment in lane.segments), default=1.0)
    axis = axis_from_zero("ms", [end])
    right = picture.width - RIGHT
    for index, lane in enumerate(lanes):
        bottom = index * height + height - 3
        picture.text(0, bottom - 9, lane.name, "tick")
        if lane.unit:
            picture.text(0, bottom + 1, f"{format_short(lane.top)} {lane.unit}", "tick")
        for segment in lane.segments:
            begin_x, end_x = (axis.position(t, left, right) for t in (segment.begin, segment.end))
            tall = (height - 6) * min(segment.value / lane.top, 1.0)
            picture.add(
                *("rect", tooltip(segment.tip)),
                x=begin_x,
                y=bottom - tall,
                width=max(end_x - begin_x, 0.2),
                height=max(tall, 0.5),
                class_=f"fill q{segment.colour}{' vague' if segment.vague else ''}",
            )
    bottom = height * len(lanes) + 10
    for tick in axis.ticks:
        x = axis.position(tick, left, right)
        picture.text(x, bottom, format_short(tick), "tick", "middle")
    picture.text(right, bottom + 12, "ms", "title", "end")
    return picture.svg()


def draw_slopes(label: str, rows: Sequence[tuple[str, str, int, float, float, str]]) -> Markup:
    """Draw a line per phone from its first value to its second, the best at the top.

    A row is (name, phone, colour, before, after, tip).
    """
    picture = Picture(max(150.0, 34.0 * len(rows) + 40), label, WIDE_WIDTH)
    values = [value for row in rows for value in row[3:5]]
    scale = build_axis("", values, log=min(values, default=0) > 0)
    left, right, bottom = NAMES_WIDTH, picture.width - NAMES_WIDTH, picture.height - 10
    picture.text(left, 12, "cold", "title", "middle")
    picture.text(right, 12, "after ten minutes", "title", "middle")
    ends = [tuple(scale.position(value, 34, bottom) for value in row[3:5]) for row in rows]
    labels = [_spread_labels([pair[side] for pair in ends], bottom) for side in (0, 1)]
    for index, (name, serial, colour, before, after, tip) in enumerate(rows):
        start, end = ends[index]
        phone = {"data_phone": serial}
        picture.add(
            *("line", tooltip(tip)),
            x1=left,
            x2=right,
            y1=start,
            y2=end,
            class_=f"stroke thick p{colour}",
            **phone,
        )
        for x, y in ((left, start), (right, end)):
            dot = {"cx": x, "cy": y, "r": 4.5, "class_": f"fill p{colour}"}
            picture.add("circle", tooltip(tip), **dot, **phone)
        short_name = safe_text(name, 23)
        text = f"{short_name} {format_ms(before)}"
        picture.text(left - 9, labels[0][index] + 4, text, "tick", "end")
        text = f"{format_ms(after)} {short_name}"
        picture.text(right + 9, labels[1][index] + 4, text, "tick")
    return picture.svg()


def _spread_labels(heights: Sequence[float], bottom: float, distance: float = 13.0) -> list[float]:
    """Move labels until none covers another: downwards first, then up from the bottom."""
    moved = list(heights)
    order = sorted(range(len(heights)), key=heights.__getitem__)
    for above, index in pairwise(order):
        moved[index] = max(moved[index], moved[above] + distance)
    limit = bottom
    for index in reversed(order):
        moved[index] = min(moved[index], limit)
        limit = moved[index] - distance
    return moved
