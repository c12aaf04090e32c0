"""The charts of a report: lines in small multiples, bars, stacked bars, lanes and slopes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from orchestrator.export.report.svg import (
    BOTTOM,
    LEFT,
    LETTER,
    NAME_LETTER,
    RIGHT,
    TOP,
    WIDE_WIDTH,
    WIDTH,
    Drawing,
    Picture,
    PlotAxis,
    axis_from_zero,
    build_axis,
    fit_text,
    format_coordinate,
    format_short,
    legend_height,
    tooltip,
)
from workloads.units import format_ms

NOTE_WIDTH = 150  # for the text beside a bar
NAMES_WIDTH = 180.0  # for names on each side of a wide chart
PANEL_WIDTH, PANEL_HEIGHT = 250, 200
ROW_WIDTH = 960  # of panels side by side; a wider image is too small to read
DOTS_MAX = 40  # a line with more points has marks on some of them only
MARKS_ON_LINE = 6
LABEL_DISTANCE = 13.0


@dataclass(frozen=True)
class Mark:
    """A point with its tooltip; the interval is drawn where it is known."""

    x: float
    y: float
    tip: str
    low: float | None = None
    high: float | None = None
    source: str = ""


@dataclass(frozen=True)
class Series:
    """The marks of one phone, or of something else with a colour."""

    name: str
    phone: str
    colour: int
    marks: Sequence[Mark]
    joined: bool = True


@dataclass(frozen=True)
class Panel:
    """One of several charts with the same axes."""

    title: str
    series: Sequence[Series]


@dataclass(frozen=True)
class PanelPlace:
    """Where a panel lies in its image."""

    left: float
    top: float
    width: float
    height: float


def place_panels(count: int, width: float, height: float) -> Iterator[PanelPlace]:
    """Place panels in rows; a single one has the width of a card."""
    for index in range(count):
        row, column = divmod(index, _columns(count, width))
        yield PanelPlace(column * width, row * height, width, height)


def panels_size(count: int, width: float, height: float) -> tuple[float, float]:
    """Return the size of all panels together."""
    columns = _columns(count, width)
    return width * columns, height * -(-count // columns)


def _columns(count: int, width: float) -> int:
    return max(1, min(count, int(ROW_WIDTH // width)))


def draw_chart(label: str, panels: Sequence[Panel], x: PlotAxis, y: PlotAxis) -> Drawing:
    """Draw lines or points over two axes that all panels share."""
    alone = len(panels) == 1
    width, height = (WIDTH, 230) if alone else (PANEL_WIDTH, PANEL_HEIGHT)
    all_width, all_height = panels_size(len(panels), width, height)
    shown = {item.name: item for panel in panels for item in panel.series}
    legend = [(item.name, "mark", item.colour) for item in shown.values()]
    names = [name for name, _, _ in legend]
    picture = Picture(all_height + legend_height(names, all_width), label, all_width)
    for panel, place in zip(panels, place_panels(len(panels), width, height), strict=True):
        _draw_frame(picture, place, panel.title, x, y)
        for item in panel.series:
            _draw_series(picture, place, item, x, y)
    picture.legend(legend, all_height)
    rows = [
        (panel.title, item.name, mark.x, mark.y, mark.low, mark.high, mark.source)
        for panel in panels
        for item in panel.series
        for mark in item.marks
    ]
    headings = ("panel", "series", x.title, y.title, "low", "high", "source")
    return Drawing(picture.svg(), headings, tuple(rows))


def _draw_frame(picture: Picture, place: PanelPlace, title: str, x: PlotAxis, y: PlotAxis) -> None:
    """Draw grid, ticks and titles of a chart with two axes."""
    left, right = place.left + LEFT, place.left + place.width - RIGHT
    top, bottom = place.top + TOP + 12 * bool(title), place.top + place.height - BOTTOM
    if title:
        shown = fit_text(title, place.width - 8, NAME_LETTER)
        picture.text(place.left, place.top + 11, shown, "name")
    picture.text(place.left, top - 11, fit_text(y.title, place.width), "title")
    for value in y.ticks:
        height = y.position(value, bottom, top)
        picture.line(left, height, right, height, "grid")
        picture.text(left - 5, height + 3.5, format_short(value), "tick", "end")
    free = place.left  # where the last label ends
    for value in x.ticks:
        at, label = x.position(value, left, right), format_short(value)
        picture.line(at, bottom, at, bottom + 4, "grid")
        half = LETTER * len(label) / 2
        if at - half >= free and at + half <= place.left + place.width:
            picture.text(at, bottom + 15, label, "tick", "middle")
            free = at + half + 4
    shown = fit_text(x.title, right - left + RIGHT)
    picture.text((left + right) / 2, bottom + 29, shown, "title", "middle")


def _draw_series(
    picture: Picture, place: PanelPlace, item: Series, x: PlotAxis, y: PlotAxis
) -> None:
    left, right = place.left + LEFT, place.left + place.width - RIGHT
    top = place.top + TOP + 12 * bool(place.width == PANEL_WIDTH)
    bottom = place.top + place.height - BOTTOM
    points = [(x.position(m.x, left, right), y.position(m.y, bottom, top), m) for m in item.marks]
    style = f"stroke p{item.colour % 10} d{item.colour % 6}"
    if item.joined and len(points) > 1:
        line = " ".join(f"{format_coordinate(px)},{format_coordinate(py)}" for px, py, _ in points)
        kind = {"points": line, "class_": style, "data_phone": item.phone}
        picture.add("polyline", tooltip(item.name), **kind)
    every = 1 if len(points) <= DOTS_MAX else -(-len(points) // MARKS_ON_LINE)
    for px, py, mark in points[every // 2 :: every]:
        if mark.low is not None and mark.high is not None:
            ends = (y.position(end, bottom, top) for end in (mark.low, mark.high))
            low, high = (min(max(end, top), bottom) for end in ends)
            picture.line(px, low, px, high, style.rpartition(" ")[0], item.phone)
        picture.mark(px, py, item.colour, mark.tip, item.phone)


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
    source: str = ""


def draw_bars(label: str, bars: Sequence[Bar], title: str) -> Drawing:
    """Draw bars from the best down, each with its interval across its end."""
    row_height = 37
    picture = Picture(row_height * len(bars) + 18, label)
    most = max([bar.high or bar.value for bar in bars] + [bar.value for bar in bars])
    for index, bar in enumerate(bars):
        top = index * row_height
        name_width = picture.width - NAME_LETTER * (len(bar.shown) + 2)
        picture.text(0, top + 13, fit_text(bar.name, name_width, NAME_LETTER), "name")
        picture.text(picture.width, top + 13, bar.shown, "value", "end")
        scale = (picture.width - NOTE_WIDTH) / most if most > 0 else 0.0
        box = (0, top + 18, max(1.0, bar.value * scale), 11)
        picture.rect(box, f"fill p{bar.colour % 10}", bar.tip, bar.phone, rx=2)
        if bar.low is not None and bar.high is not None:
            middle, low, high = top + 23.5, max(0.0, bar.low) * scale, bar.high * scale
            draw_interval(picture, low, high, middle)
        picture.text(picture.width, top + 27, bar.note, "tick", "end")
    picture.text(0, row_height * len(bars) + 12, f"{title}; line: 95 % interval", "title")
    rows = ((b.name, b.value, b.low, b.high, b.note, b.source) for b in bars)
    return Drawing(picture.svg(), ("name", title, "low", "high", "note", "source"), tuple(rows))


def draw_interval(picture: Picture, low: float, high: float, middle: float) -> None:
    """Draw an interval as a line with ends."""
    picture.line(low, middle, high, middle, "span")
    for end in (low, high):
        picture.line(end, middle - 4, end, middle + 4, "span")


@dataclass(frozen=True)
class BarPart:
    """A share of a stacked row."""

    name: str
    share: float
    shade: int
    tip: str


def draw_stacked_bars(
    label: str, rows: Sequence[tuple[str, str, Sequence[BarPart]]], title: str
) -> Drawing:
    """Draw rows of parts that add up to a whole; each row is (name, phone, parts)."""
    height = 34
    entries = {part.name: part.shade for _, _, parts in rows for part in parts}
    legend = [(name, "shade s", shade) for name, shade in entries.items()]
    below = height * len(rows) + 16
    picture = Picture(below + legend_height(list(entries), WIDTH), label)
    for index, (name, phone, parts) in enumerate(rows):
        top, x = index * height, 0.0
        picture.text(0, top + 12, fit_text(name, picture.width, NAME_LETTER), "name")
        whole = sum(part.share for part in parts) or 1.0
        for part in parts:
            width = part.share / whole * picture.width
            picture.rect((x, top + 17, width, 12), f"shade s{part.shade}", part.tip, phone)
            x += width
    picture.text(0, below - 4, title, "title")
    picture.legend(legend, below)
    values = ((name, part.name, part.share) for name, _, parts in rows for part in parts)
    return Drawing(picture.svg(), ("row", "part", title), tuple(values))


@dataclass(frozen=True)
class LaneSegment:
    """A value from one time to another; `vague` ones are drawn lighter."""

    begin: float
    end: float
    value: float
    name: str
    tip: str
    vague: bool = False


@dataclass(frozen=True)
class Lane:
    """A named row of segments on a common time axis, up to `top`."""

    name: str
    unit: str
    top: float
    segments: Sequence[LaneSegment]


def draw_lanes(label: str, lanes: Sequence[Lane]) -> Drawing:
    """Draw lanes above each other on a time axis in ms; wide segments of the first have names."""
    height, left = 26.0, 74.0
    picture = Picture(height * len(lanes) + 44, label, WIDE_WIDTH)
    end = max((segment.end for lane in lanes for segment in lane.segments), default=1.0)
    axis = axis_from_zero("time in the step, ms", [end])
    right = picture.width - RIGHT
    for index, lane in enumerate(lanes):
        bottom = index * height + height - 3
        picture.text(0, bottom - 9, fit_text(lane.name, left), "tick")
        if lane.unit:
            picture.text(0, bottom + 1, f"up to {format_short(lane.top)} {lane.unit}", "tick")
        for number, segment in enumerate(lane.segments):
            begin_x, end_x = (axis.position(t, left, right) for t in (segment.begin, segment.end))
            tall = (height - 6) * min(segment.value / lane.top, 1.0)
            shade = 1 + number % 2 if not lane.unit else 2
            box = (begin_x, bottom - tall, max(end_x - begin_x, 0.2), max(tall, 0.5))
            vague = " vague" if segment.vague else ""
            picture.rect(box, f"shade h{2 * shade}{vague}", segment.tip)
            if not lane.unit and end_x - begin_x > 5.5 * len(segment.name) + 4:
                middle = (begin_x + end_x) / 2
                picture.text(middle, bottom - 7, segment.name, f"inside i{2 * shade}", "middle")
    bottom = height * len(lanes) + 10
    for tick in axis.ticks:
        x = axis.position(tick, left, right)
        picture.text(x, bottom, format_short(tick), "tick", "middle")
    picture.text((left + right) / 2, bottom + 14, axis.title, "title", "middle")
    rows = (
        (lane.name, lane.unit, segment.name, segment.begin, segment.end, segment.value)
        for lane in lanes
        for segment in lane.segments
    )
    headings = ("lane", "unit", "operation", "begin, ms", "end, ms", "value")
    return Drawing(picture.svg(), headings, tuple(rows))


def draw_slopes(label: str, rows: Sequence[tuple[str, str, int, float, float, str]]) -> Drawing:
    """Draw a line per phone from its first value to its second, the best at the top.

    A row is (name, phone, colour, before, after, tip).
    """
    picture = Picture(max(150.0, 34.0 * len(rows) + 40), label, WIDE_WIDTH)
    values = [value for row in rows for value in row[3:5]]
    scale = build_axis("", values, log=min(values, default=0) > 0)
    left, right, bottom = NAMES_WIDTH, picture.width - NAMES_WIDTH, picture.height - 10
    picture.text(left, 12, "cold, ms", "title", "middle")
    picture.text(right, 12, "hot, ms", "title", "middle")
    ends = [tuple(scale.position(value, 34, bottom) for value in row[3:5]) for row in rows]
    labels = [_spread_labels([pair[side] for pair in ends], bottom) for side in (0, 1)]
    for index, (name, phone, colour, before, after, tip) in enumerate(rows):
        start, end = ends[index]
        picture.line(left, start, right, end, f"stroke thick p{colour % 10}", phone)
        for x, y in ((left, start), (right, end)):
            picture.mark(x, y, colour, tip, phone)
        for side, value in enumerate((format_ms(before), format_ms(after))):
            short = fit_text(name, NAMES_WIDTH - 9 - LETTER * (len(value) + 1))
            text, x = (f"{value} {short}", right + 9) if side else (f"{short} {value}", left - 9)
            anchor = "" if side else "end"
            picture.text(x, labels[side][index] + 4, text, "tick", anchor)
    headings = ("phone", "cold, ms per step", "after ten minutes, ms per step")
    return Drawing(picture.svg(), headings, tuple((row[0], row[3], row[4]) for row in rows))


def _spread_labels(heights: Sequence[float], bottom: float) -> list[float]:
    """Move labels until none covers another: downwards first, then up from the bottom."""
    moved = list(heights)
    order = sorted(range(len(heights)), key=heights.__getitem__)
    for above, index in pairwise(order):
        moved[index] = max(moved[index], moved[above] + LABEL_DISTANCE)
    limit = bottom
    for index in reversed(order):
        moved[index] = min(moved[index], limit)
        limit = moved[index] - LABEL_DISTANCE
    return moved
