"""Charts of a sweep's axes: a heat map over two axes, and bars side by side for a few values."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.export.report.charts import draw_interval, panels_size, place_panels
from orchestrator.export.report.svg import (
    LETTER,
    NAME_LETTER,
    Drawing,
    Picture,
    fit_text,
    format_short,
    legend_height,
    tooltip,
)
from workloads.text import safe_text

SHADES = 9
CELL_HEIGHT, CELL_WIDTH_MIN = 30, 46
BAR_HEIGHT, GROUP_GAP, VALUE_WIDTH = 14, 20, 116
BARS_WIDTH = 320
NAME_MAX = 22


@dataclass(frozen=True)
class CellMark:
    """The value of a cell on a phone, or in a word why there is none."""

    value: float | None
    tip: str
    low: float | None = None
    high: float | None = None
    why: str = ""
    source: str = ""
    clock_ghz: str = ""  # that was set
    same_as: str = ""  # an earlier value of the axis that is the same clock

    @property
    def text(self) -> str:
        """The value for a picture; the value of the same clock is named beside it."""
        if self.value is None:
            return self.why
        return format_short(self.value) + (f" = {self.same_as}" if self.same_as else "")

    def times(self, factor: float) -> "CellMark":
        """Return the same in another unit."""
        value, low, high = (v and v * factor for v in (self.value, self.low, self.high))
        return replace(self, value=value, low=low, high=high)


@dataclass(frozen=True)
class CellPanel:
    """The cells of one phone, by the position of their row and column."""

    title: str
    phone: str
    cells: Mapping[tuple[int, int], CellMark]

    def turned(self) -> "CellPanel":
        """Return the same cells with rows and columns exchanged."""
        cells = {(column, row): mark for (row, column), mark in self.cells.items()}
        return CellPanel(self.title, self.phone, cells)


@dataclass(frozen=True)
class CellNames:
    """Titles and values of the two axes, and what the values of cells are."""

    rows_title: str
    rows: Sequence[str]
    columns_title: str
    columns: Sequence[str]
    value_title: str

    def turned(self) -> "CellNames":
        """Return the same names with rows and columns exchanged."""
        rows, columns = (self.rows_title, self.rows), (self.columns_title, self.columns)
        return CellNames(*columns, *rows, self.value_title)


def draw_heat_map(label: str, panels: Sequence[CellPanel], names: CellNames) -> Drawing:
    """Draw a table of shades per phone; the darker a cell, the larger its value."""
    if _is_longer(names.columns, names.rows):
        names, panels = names.turned(), [panel.turned() for panel in panels]
    rows, columns = (
        [fit_text(name, NAME_MAX * LETTER) for name in n] for n in (names.rows, names.columns)
    )
    left = LETTER * max(map(len, [*rows, names.rows_title])) + 10
    texts = [mark.text for panel in panels for mark in panel.cells.values() if mark.same_as]
    cell = max(CELL_WIDTH_MIN, LETTER * max(map(len, [*columns, *texts])) + 8)
    width = left + max(cell * len(columns), LETTER * len(names.columns_title)) + 14
    height = 52 + CELL_HEIGHT * len(rows) + 16
    all_width, all_height = panels_size(len(panels), width, height)
    all_width = max(all_width, 330.0, 18 * SHADES + 8 + LETTER * len(names.value_title))
    values = [mark.value for panel in panels for mark in panel.cells.values() if mark.value]
    low, high = min(values, default=1.0), max(values, default=1.0)
    picture = Picture(all_height + 44, label, all_width)
    for panel, place in zip(panels, place_panels(len(panels), width, height), strict=True):
        title = fit_text(panel.title, width - 8, NAME_LETTER)
        picture.text(place.left, place.top + 12, title, "name")
        picture.text(place.left, place.top + 44, names.rows_title, "title")
        middle = place.left + left + cell * len(columns) / 2
        picture.text(middle, place.top + 29, names.columns_title, "title", "middle")
        for index, name in enumerate(columns):
            x = place.left + left + cell * (index + 0.5)
            picture.text(x, place.top + 44, name, "tick", "middle")
        for index, name in enumerate(rows):
            y = place.top + 52 + CELL_HEIGHT * (index + 0.5) + 4
            picture.text(place.left + left - 6, y, name, "tick", "end")
        for (row, column), mark in panel.cells.items():
            x, y = place.left + left + cell * column, place.top + 52 + CELL_HEIGHT * row
            _draw_cell(picture, (x, y, cell), mark, _shade(mark.value, low, high), panel.phone)
    _draw_scale(picture, all_height, names.value_title, low, high)
    return Drawing(picture.svg(), *_cell_table(panels, names))


def _is_longer(columns: Sequence[str], rows: Sequence[str]) -> bool:
    """Whether the names of columns are the longer ones, and too long to stand side by side."""
    longest = max(map(len, columns))
    return LETTER * longest + 8 > CELL_WIDTH_MIN and longest > max(map(len, rows))


def _shade(value: float | None, low: float, high: float) -> int:
    if not value or high <= low:
        return 0
    return round((SHADES - 1) * math.log(value / low) / math.log(high / low))


def _draw_cell(
    picture: Picture, place: tuple[float, float, float], mark: CellMark, shade: int, phone: str
) -> None:
    x, y, width = place
    kind = f"shade h{shade}" if mark.value is not None else "absent"
    picture.rect((x + 1, y + 1, width - 2, CELL_HEIGHT - 2), kind, mark.tip, phone)
    kind = f"inside i{shade}" if mark.value is not None else "tick"
    picture.text(x + width / 2, y + CELL_HEIGHT / 2 + 4, mark.text, kind, "middle")


def _draw_scale(picture: Picture, top: float, title: str, low: float, high: float) -> None:
    for shade in range(SHADES):
        picture.rect((18 * shade, top + 4, 18, 10), f"shade h{shade}")
    picture.text(0, top + 25, format_short(low), "tick")
    picture.text(18 * SHADES, top + 25, format_short(high), "tick", "end")
    picture.text(18 * SHADES + 8, top + 13, title, "title")
    picture.text(18 * SHADES + 8, top + 26, "dashed: no valid value", "tick")


def _cell_table(
    panels: Sequence[CellPanel], names: CellNames
) -> tuple[tuple[str, ...], tuple[tuple[str | float | None, ...], ...]]:
    headings = ("panel", "phone", names.rows_title, names.columns_title, names.value_title)
    rows = (
        (
            *(panel.title, panel.phone, names.rows[row], names.columns[column]),
            *(mark.value, mark.low, mark.high, mark.why, mark.source, mark.clock_ghz),
        )
        for panel in panels
        for (row, column), mark in panel.cells.items()
    )
    return (*headings, "low", "high", "why missing", "source", "clock_ghz"), tuple(rows)


def draw_grouped_bars(label: str, panels: Sequence[CellPanel], names: CellNames) -> Drawing:
    """Draw bars side by side: groups are rows, the bars of a group are the columns."""
    group = BAR_HEIGHT * len(names.columns) + GROUP_GAP
    height = 26 + group * len(names.rows) + 22
    all_width, all_height = panels_size(len(panels), BARS_WIDTH, height)
    entries = [(f"{names.columns_title}: {n}", "shade b", i) for i, n in enumerate(names.columns)]
    legend = legend_height([name for name, _, _ in entries], all_width)
    picture = Picture(all_height + legend, label, all_width)
    ends = [mark.high or mark.value for p in panels for mark in p.cells.values() if mark.value]
    scale = (BARS_WIDTH - VALUE_WIDTH) / max((end for end in ends if end), default=1.0)
    for panel, place in zip(panels, place_panels(len(panels), BARS_WIDTH, height), strict=True):
        title = fit_text(panel.title, BARS_WIDTH - 8, NAME_LETTER)
        picture.text(place.left, place.top + 12, title, "name")
        for row, name in enumerate(names.rows):
            top = place.top + 26 + group * row
            group_name = f"{names.rows_title}: {name}" if names.rows_title else ""
            picture.text(place.left, top + 8, fit_text(group_name, BARS_WIDTH - 8), "tick")
            first = panel.cells.get((row, 0))
            for column in range(len(names.columns)):
                if mark := panel.cells.get((row, column)):
                    at = (place.left, top + 12 + BAR_HEIGHT * column)
                    _draw_bar(picture, at, mark, column, scale, first, panel.phone)
        picture.text(place.left, place.top + height - 8, names.value_title, "title")
    picture.legend(entries, all_height)
    return Drawing(picture.svg(), *_cell_table(panels, names))


def _draw_bar(
    picture: Picture,
    at: tuple[float, float],
    mark: CellMark,
    column: int,
    scale: float,
    first: CellMark | None,
    phone: str,
) -> None:
    x, y = at
    if mark.value is None:
        picture.add(
            *("text", tooltip(mark.tip) + safe_text(mark.why, 40)), x=x, y=y + 10, class_="tick"
        )
        return
    end = mark.value * scale
    box = (x, y + 1, max(1.0, end), BAR_HEIGHT - 2)
    picture.rect(box, f"shade b{column}", mark.tip, phone)
    if mark.low is not None and mark.high is not None:
        end = mark.high * scale
        draw_interval(picture, x + max(0.0, mark.low) * scale, x + end, y + BAR_HEIGHT / 2)
    ratio = ""
    if column and first is not None and first.value and not mark.same_as:
        times = mark.value / first.value
        ratio = f" ({f'{times:.2f}' if 0.01 <= times < 1000 else format_short(times)} ×)"
    picture.text(x + end + 6, y + 11, f"{mark.text}{ratio}", "tick")
