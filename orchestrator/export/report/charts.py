"""The charts of a report: slopes, dots in rows, lines, and tables of shades."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from orchestrator.export.report.figure import (
    SHADES,
    Picture,
    PlotAxis,
    build_axis,
    fit_text,
    number_text,
    percent_text,
    text_width,
    tick_text,
)

LABEL_DISTANCE = 14.0
ROW, NARROW_ROW = 22.0, 34.0
SMALL = 220.0  # a narrower picture has its names above its rows
DOTS_MAX = 40  # a line with more points has no dots


@dataclass(frozen=True)
class SlopeRow:
    """A name with two values; a style in colour draws attention."""

    name: str
    before: float
    after: float
    tip: str
    style: int | None = None


def draw_slopes(width: float, rows: Sequence[SlopeRow], titles: tuple[str, str]) -> Picture:
    """Draw a line per row from its first value to its second, the least at the top."""
    picture = Picture(width, max(150.0, 27.0 * len(rows) + 60))
    values = [value for row in rows for value in (row.before, row.after)]
    scale = build_axis("", values, log=True)
    names = max(text_width(f"{row.name} {number_text(row.before)}", 11, bold=True) for row in rows)
    left = min(names + 14, width * 0.52)
    right, top, bottom = width - 88, 34.0, picture.height - 12
    for x in (left, right):
        picture.line(((x, 22), (x, bottom + 6)), "axis")
    free = width - text_width(titles[1], 12, bold=True) - 10
    picture.text(min(left + 18, free), 14, titles[0], "name", "end")
    picture.text(width, 14, titles[1], "name", "end")
    ends = [tuple(scale.position(v, top, bottom) for v in (r.before, r.after)) for r in rows]
    labels = [_spread([end[side] for end in ends], bottom) for side in (0, 1)]
    order = sorted(range(len(rows)), key=lambda index: rows[index].style is not None)
    for index in order:
        row, (begin, end) = rows[index], ends[index]
        line, dot, text = ("soft", "softdot", "label")
        if row.style is not None:
            line, dot, text = f"l{row.style}", f"d{row.style}", f"t{row.style}"
        picture.line(((left, begin), (right, end)), line)
        for x, y in ((left, begin), (right, end)):
            picture.dot(x, y, dot, row.tip)
        before, after = number_text(row.before), number_text(row.after)
        bold = row.style is not None
        name = fit_text(row.name, left - 9 - text_width(f" {before}", 11, bold), bold=bold)
        picture.text(left - 9, labels[0][index] + 4, f"{name} {before}", text, "end")
        change = percent_text(row.after / row.before)
        picture.text(right + 9, labels[1][index] + 4, f"{after}  {change}", text)
    return picture


def _spread(heights: Sequence[float], bottom: float) -> list[float]:
    """Move labels until none covers another: downwards first, then up from the bottom."""
    moved = list(heights)
    order = sorted(range(len(heights)), key=heights.__getitem__)
    for above, index in pairwise(order):
        moved[index] = max(moved[index], moved[above] + LABEL_DISTANCE)
    limit = bottom + 4
    for index in reversed(order):
        moved[index] = min(moved[index], limit)
        limit = moved[index] - LABEL_DISTANCE
    return moved


@dataclass(frozen=True)
class DotMark:
    """A value in a row; the interval is drawn where it is known."""

    value: float
    style: int | None
    tip: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class DotRow:
    """A named row of values, with a text at its end."""

    name: str
    marks: Sequence[DotMark]
    text: str = ""


def draw_dots(
    width: float,
    rows: Sequence[DotRow],
    title: str,
    heading: str = "",
    scale: Sequence[float] = (),
) -> Picture:
    """Draw rows of dots over one axis, of `scale` if several panels share it.

    The axis is logarithmic if the values are far apart.
    """
    small = width < SMALL
    height, top = (NARROW_ROW if small else ROW), 20.0 if heading else 4.0
    picture = Picture(width, top + height * len(rows) + 34)
    if heading:
        picture.heading(heading)
    marks = [mark for row in rows for mark in row.marks]
    values = [v for m in marks for v in (m.value, m.low, m.high) if v is not None and v > 0]
    values += scale
    log = bool(values) and max(values) > 4 * min(values)
    axis = build_axis(title, values, log=log)
    widest = max((text_width(row.name, 11) for row in rows), default=0) + 10
    left = 4.0 if small else min(widest, width * 0.42)
    texts = max((text_width(row.text, 11) for row in rows), default=0)
    right = width - (4.0 if small else max(texts + 12, 14.0))
    bottom = top + height * len(rows)
    _draw_ticks(picture, axis, (left, right), (top, bottom))
    for index, row in enumerate(rows):
        y = top + height * (index + (0.72 if small else 0.5))
        name_y = y - 9 if small else y + 4
        side = text_width(row.text, 11) if small else 0.0
        shown = fit_text(row.name, (width - side if small else left) - 8)
        picture.text(0 if small else left - 8, name_y, shown, "label", "start" if small else "end")
        picture.text(width, name_y, row.text, "label", "end")
        _draw_marks(picture, row, axis, (left, right), y)
    picture.text((left + right) / 2, bottom + 28, fit_text(title, width), "tick", "middle")
    return picture


def _draw_marks(
    picture: Picture, row: DotRow, axis: PlotAxis, ends: tuple[float, float], y: float
) -> None:
    places = [axis.position(mark.value, *ends) for mark in row.marks]
    if len(places) > 1:
        picture.line(((min(places), y), (max(places), y)), "axis")
    for x, mark in zip(places, row.marks, strict=True):
        if mark.low is not None and mark.high is not None and mark.high > mark.low:
            low, high = (
                min(max(axis.position(v, *ends), ends[0]), ends[1]) for v in (mark.low, mark.high)
            )
            picture.line(((low, y), (high, y)), "span")
        picture.dot(x, y, "softdot" if mark.style is None else f"d{mark.style}", mark.tip)


def _draw_ticks(
    picture: Picture, axis: PlotAxis, ends: tuple[float, float], span: tuple[float, float]
) -> None:
    free = 0.0
    for value in axis.ticks:
        x, label = axis.position(value, *ends), tick_text(value)
        picture.line(((x, span[0]), (x, span[1])), "grid")
        half = text_width(label, 10.5) / 2
        if x - half >= free and x + half <= picture.width:
            picture.text(x, span[1] + 14, label, "tick", "middle")
            free = x + half + 4


@dataclass(frozen=True)
class LinePoint:
    """A point of a line, with its interval or spread where it is known."""

    x: float
    y: float
    tip: str = ""
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class LineSeries:
    """The points of a line."""

    name: str
    style: int
    points: Sequence[LinePoint]


def draw_lines(
    width: float, heading: str, series: Sequence[LineSeries], x: PlotAxis, y: PlotAxis
) -> Picture:
    """Draw lines over two axes; a band or a bar shows the spread."""
    picture = Picture(width, min(210.0, max(150.0, width * 0.62)))
    labels = max(text_width(tick_text(tick), 10.5) for tick in y.ticks) if y.ticks else 10.0
    left, right, top, bottom = labels + 8, width - 8, 34.0, picture.height - 34
    picture.heading(heading)
    picture.text(0, 26, fit_text(y.title, width, 10.5), "tick")
    for value in y.ticks:
        height = y.position(value, bottom, top)
        picture.line(((left, height), (right, height)), "grid")
        picture.text(left - 5, height + 3.5, tick_text(value), "tick", "end")
    _draw_ticks(picture, x, (left, right), (bottom, bottom + 4))
    picture.text((left + right) / 2, bottom + 28, fit_text(x.title, width), "tick", "middle")
    for one in series:
        places = [
            (x.position(p.x, left, right), y.position(p.y, bottom, top), p) for p in one.points
        ]
        if len(places) > 1:
            picture.line([(px, py) for px, py, _ in places], f"l{one.style}", one.name)
        for px, py, point in places if len(places) <= DOTS_MAX else ():
            if point.low is not None and point.high is not None and point.high > point.low:
                ends = (y.position(end, bottom, top) for end in (point.low, point.high))
                low, high = (min(max(end, top), bottom) for end in ends)
                picture.line(((px, low), (px, high)), "span")
            picture.dot(px, py, f"d{one.style}", point.tip)
    return picture


@dataclass(frozen=True)
class GridCell:
    """A cell of a table of shades: its value, what stands below it, or why it is empty."""

    value: float | None
    text: str
    below: str
    tip: str


@dataclass(frozen=True)
class GridNames:
    """The titles and values of rows and columns."""

    rows_title: str
    rows: Sequence[str]
    columns_title: str
    columns: Sequence[str]


def draw_grid(
    width: float,
    heading: str,
    names: GridNames,
    cells: Mapping[tuple[int, int], GridCell],
    span: tuple[float, float],
) -> Picture:
    """Draw a table of shades; the darker a cell, the larger its value among all panels."""
    height = 34.0
    left = max(text_width(name, 10.5) for name in [*names.rows, names.rows_title]) + 8
    left = min(left, width * 0.36)
    across = (width - left) / len(names.columns)
    picture = Picture(width, 50 + height * len(names.rows) + 8)
    picture.heading(heading)
    middle = (left + width) / 2
    picture.text(middle, 28, fit_text(names.columns_title, width - left, 10.5), "tick", "middle")
    picture.text(0, 43, fit_text(names.rows_title, left, 10.5), "tick")
    for index, name in enumerate(names.columns):
        shown = fit_text(name, across - 2, 10.5)
        picture.text(left + across * (index + 0.5), 43, shown, "tick", "middle")
    for index, name in enumerate(names.rows):
        shown = fit_text(name, left - 6, 10.5)
        picture.text(left - 6, 50 + height * (index + 0.5) + 4, shown, "label", "end")
    for (row, column), cell in cells.items():
        _draw_cell(picture, (left + across * column, 50 + height * row, across), cell, span)
    return picture


def _draw_cell(
    picture: Picture,
    place: tuple[float, float, float],
    cell: GridCell,
    span: tuple[float, float],
) -> None:
    x, y, width = place
    shade = shade_of(cell.value, *span)
    middle = x + width / 2
    style = "absent" if cell.value is None else f"h{shade}"
    picture.rect(x + 1, y + 1, width - 2, 32, style, cell.tip)
    text, below = (f"i{shade}", f"j{shade}") if cell.value is not None else ("tick", "tick")
    picture.text(middle, y + (16 if cell.below else 21), cell.text, text, "middle")
    if cell.below:
        picture.text(middle, y + 28, fit_text(cell.below, width - 2, 9), below, "middle")


def shade_of(value: float | None, low: float, high: float) -> int:
    """Return the shade of a value between the least and the largest."""
    if not value or high <= low:
        return 0
    return round((len(SHADES) - 1) * math.log(value / low) / math.log(high / low))
