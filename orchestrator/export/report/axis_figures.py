"""The figures that follow the axes of a sweep: lines, a table of shades or dots per phone model.

Every mark is one cell; nothing is averaged over an axis. Phones of one model share a panel.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import product

from orchestrator.analysis.cell_axes import (
    BACKEND,
    CORES,
    FREQ,
    PROTOCOL,
    CellAxis,
    SettingValue,
    cell_settings,
)
from orchestrator.analysis.fleet_ranking import FleetGroup
from orchestrator.analysis.verdict_counts import count_verdicts
from orchestrator.export.report.charts import (
    DotMark,
    DotRow,
    GridCell,
    GridNames,
    LinePoint,
    LineSeries,
    draw_dots,
    draw_grid,
    draw_lines,
)
from orchestrator.export.report.figure import (
    SERIES,
    Figure,
    Picture,
    build_axis,
    file_name,
    number_text,
)
from orchestrator.export.report.report_data import (
    ENERGY,
    ModelValue,
    ReportData,
    readable_unit,
    same_clocks_text,
    unit_of,
)
from workloads.protocol.condition import HEADLINES
from workloads.protocol.same_clocks import SameClock
from workloads.text import safe_text

LINE_VALUES_MIN = 3  # two values of a number are compared, not joined
BARS_MAX = 6  # values side by side
MODELS_MAX = 12  # panels of one figure
FIGURES_MAX = 8
_COMPARED_FIRST = (BACKEND, PROTOCOL)


class PictureKind(StrEnum):
    """How values over axes are drawn."""

    LINES = "lines"
    GRID = "grid"
    DOTS = "dots"


@dataclass(frozen=True)
class PicturePlan:
    """The picture that fits some axes; every other axis has one figure per value."""

    kind: PictureKind
    first: CellAxis  # across: the x axis of lines, the columns, the dots of a row
    second: CellAxis | None = None  # the lines, the rows


def choose_picture(axes: Sequence[CellAxis]) -> PicturePlan | None:
    """Choose the picture that fits the axes of a sweep; None without any axis."""
    if not axes:
        return None
    by_name = {axis.name: axis for axis in axes}
    if CORES in by_name and FREQ in by_name:
        return PicturePlan(PictureKind.GRID, by_name[FREQ], by_name[CORES])
    by_size = sorted(axes, key=lambda axis: -len(axis.values))
    numeric = [a for a in by_size if a.is_numeric and len(a.values) >= LINE_VALUES_MIN]
    if len(numeric) > 1:
        return PicturePlan(PictureKind.GRID, numeric[0], numeric[1])
    if numeric:
        few = [a for a in by_size[::-1] if a != numeric[0] and len(a.values) <= len(SERIES)]
        few.sort(key=lambda axis: axis.name not in _COMPARED_FIRST)
        return PicturePlan(PictureKind.LINES, numeric[0], few[0] if few else None)
    large = [axis for axis in by_size if len(axis.values) >= LINE_VALUES_MIN]
    if len(large) > 1:
        return PicturePlan(PictureKind.GRID, large[0], large[1])
    small = [axis for axis in by_size[::-1] if len(axis.values) <= BARS_MAX]
    small.sort(key=lambda axis: (len(axis.values), axis.name not in _COMPARED_FIRST))
    compared = small[0] if small else by_size[0]
    others = [axis for axis in by_size if axis != compared]
    if len(compared.values) > BARS_MAX:
        return PicturePlan(PictureKind.DOTS, others[0] if others else compared, compared)
    return PicturePlan(PictureKind.DOTS, compared, others[0] if others else None)


@dataclass(frozen=True)
class CellPoint:
    """A cell on the phones of one model: its value, or in a word why there is none."""

    settings: dict[str, SettingValue]
    model: str
    value: ModelValue | None
    why: str = ""

    @property
    def tip(self) -> str:
        """What a pointer shows."""
        return f"{self.model}: {self.value.text if self.value else self.why}"


def axis_figures(data: ReportData) -> list[Figure]:
    """Return the figures over the axes of the sweep; the first is the main one."""
    plan = choose_picture(data.axes)
    if plan is None:
        return []
    found: list[Figure] = []
    times = data.all_groups()
    found += _figures_of(data, plan, "step time", "ms", times, "")
    energies = [g for protocol in HEADLINES for g in data.groups_of(protocol, ENERGY)]
    if any(group.rows for group in energies):
        found += _figures_of(data, plan, "energy per sample", unit_of(ENERGY), energies, ENERGY)
    return found[:FIGURES_MAX]


def _figures_of(
    data: ReportData,
    plan: PicturePlan,
    title: str,
    unit: str,
    groups: Sequence[FleetGroup],
    metric: str,
) -> Iterator[Figure]:
    points = _points(data, groups, bool(metric))
    values = [point.value.value for point in points if point.value]
    shown, factor = readable_unit(unit, values)
    points = [
        CellPoint(p.settings, p.model, p.value and p.value.times(factor), p.why) for p in points
    ]
    rest = [axis for axis in data.axes if axis not in (plan.first, plan.second)]
    for fixed in product(*(axis.values for axis in rest)):
        where = {axis.name: value for axis, value in zip(rest, fixed, strict=True)}
        own = [p for p in points if all(p.settings.get(n) == v for n, v in where.items())]
        own = [p for p in own if plan.first.name in p.settings]
        models = list(dict.fromkeys(p.model for p in own if p.value))
        if not models:
            continue
        text = ", ".join(f"{axis.plain_title} {where[axis.name]}" for axis in rest)
        over = " and ".join(a.plain_title for a in (plan.first, plan.second) if a)
        for begin in range(0, len(models), MODELS_MAX):
            chosen = models[begin : begin + MODELS_MAX]
            part = f" ({begin + 1} to {begin + len(chosen)})" if len(models) > MODELS_MAX else ""
            name = f"{title.capitalize()} over {over}{part}" + (f", {text}" if text else "")
            drawn = [point for point in own if point.model in chosen]
            yield _AxisFigure(data, plan, name, f"{title}, {shown}").build(drawn, chosen)


def _points(data: ReportData, groups: Sequence[FleetGroup], is_more: bool) -> list[CellPoint]:
    points = []
    for group in groups:
        values = data.values(group)
        points += [CellPoint(group.settings, model, value) for model, value in values.items()]
        for phone in group.unranked:
            model = safe_text(phone.model, 40)
            if model not in values:
                own = data.cell_runs(phone.phone, group.case, group.condition)
                why = "suspect" if not count_verdicts(own).void else "void"
                why = phone.reason.value if phone.valid else why
                points.append(CellPoint(group.settings, model, None, why))
    if not is_more:
        for failed in data.failures:
            if not data.cell_runs(failed.phone, failed.case, failed.condition):
                settings = cell_settings(failed.case, failed.condition)
                model = data.names[failed.phone]
                points.append(CellPoint(settings, model, None, "failed"))
    return points


@dataclass(frozen=True)
class _AxisFigure:
    """Builds one figure of a plan."""

    data: ReportData
    plan: PicturePlan
    title: str
    value_title: str

    def build(self, points: Sequence[CellPoint], models: Sequence[str]) -> Figure:
        """Return the figure, with the levels that are one clock in its caption."""
        same = [one for one in self.data.same_clocks if any(_is_at(one, p) for p in points)]
        spread = "the spread of several phones" if self._is_pooled(points) else "95 % intervals"
        caption = f"{self.title}: medians over valid runs, with {spread}. {same_clocks_text(same)}"
        plan = self.plan
        draw = {
            PictureKind.LINES: self._lines,
            PictureKind.GRID: self._grids,
            PictureKind.DOTS: self._dots,
        }[plan.kind]
        is_grid, series = plan.kind is PictureKind.GRID, self._series()
        legend = tuple((name, style) for name, style in series) if not is_grid else ()
        return Figure(
            *(file_name(self.title), self.title, caption.strip()),
            lambda width: [draw(width, points, model) for model in models],
            (
                *("phone", *(axis.plain_title for axis in self._axes()), self.value_title),
                *("low", "high", "clock_ghz", "why missing"),
            ),
            tuple(self._row(point) for point in points),
            len(models),
            legend,
        )

    def _axes(self) -> list[CellAxis]:
        return [axis for axis in (self.plan.first, self.plan.second) if axis]

    def _row(self, point: CellPoint) -> tuple[str | float | None, ...]:
        value, settings = point.value, [point.settings.get(axis.name) for axis in self._axes()]
        known = (value.value, *value.known_ends, value.ghz) if value else (None,) * 4
        return (point.model, *settings, *known, point.why)

    def _is_pooled(self, points: Sequence[CellPoint]) -> bool:
        return any(point.value and len(point.value.units) > 1 for point in points)

    def _series(self) -> list[tuple[str, str]]:
        axis = self.plan.second if self.plan.kind is PictureKind.LINES else self.plan.first
        kind = "l" if self.plan.kind is PictureKind.LINES else "d"
        if axis is None:
            return []
        values = enumerate(axis.values)
        return [(f"{axis.plain_title} {value}", f"{kind}{i % len(SERIES)}") for i, value in values]

    def _lines(self, width: float, points: Sequence[CellPoint], model: str) -> Picture:
        name, second = self.plan.first.name, self.plan.second
        known = [(point, point.value) for point in points if point.value]
        numbers = sorted({float(point.settings[name]) for point, _ in known})
        spread = build_axis(self.plan.first.title, numbers, log=numbers[0] > 0)
        x = replace(spread, ticks=tuple(numbers))
        y = build_axis(self.value_title, [value.value for _, value in known], log=True)
        series = []
        for index, setting in enumerate(second.values if second else (None,)):
            own = [
                LinePoint(*(float(point.settings[name]), value.value, point.tip, *value.known_ends))
                for point, value in known
                if point.model == model
                and (second is None or point.settings.get(second.name) == setting)
            ]
            own.sort(key=lambda point: point.x)
            title = f"{second.plain_title} {setting}" if second else model
            series.append(LineSeries(title, index % len(SERIES), own))
        return draw_lines(width, model, series, x, y)

    def _grids(self, width: float, points: Sequence[CellPoint], model: str) -> Picture:
        first, second = self.plan.first, self.plan.second
        assert second is not None
        columns, rows = _present(first, points), _present(second, points)
        values = [point.value.value for point in points if point.value]
        cells = {
            (
                rows.index(point.settings[second.name]),
                columns.index(point.settings[first.name]),
            ): self._grid_cell(point)
            for point in points
            if point.model == model and second.name in point.settings
        }
        span = (min(values), max(values))
        names = GridNames(second.title, [*map(str, rows)], first.title, [*map(str, columns)])
        return draw_grid(width, model, names, cells, span)

    def _grid_cell(self, point: CellPoint) -> GridCell:
        value = point.value
        if value is None:
            return GridCell(None, point.why, "", point.tip)
        below = f"{value.ghz} GHz" if value.ghz and self._is_clocked() else ""
        if same := self._same_as(point):
            below = f"= {same}"
        if len(value.units) > 1:
            below = f"±{(value.high - value.low) / 2 / value.value:.0%} of {len(value.units)}"
        return GridCell(value.value, number_text(value.value), below, point.tip)

    def _is_clocked(self) -> bool:
        return any(axis.name == FREQ for axis in self._axes())

    def _dots(self, width: float, points: Sequence[CellPoint], model: str) -> Picture:
        first, second = self.plan.first, self.plan.second
        rows = []
        for setting in _present(second, points) if second else [""]:
            own = [
                (first.values.index(point.settings[first.name]), point, point.value)
                for point in points
                if point.model == model
                and (second is None or point.settings.get(second.name) == setting)
            ]
            marks = [
                DotMark(value.value, index % len(SERIES), point.tip, *value.known_ends)
                for index, point, value in own
                if value
            ]
            missing = [point.why for _, point, value in own if value is None]
            text = " ".join([*(number_text(mark.value) for mark in marks), *missing])
            same = [self._same_as(point) for _, point, value in own if value]
            text += "".join(f" = {name}" for name in same if name)
            name = f"{second.plain_title} {setting}" if second else self._clock_text(own)
            rows.append(DotRow(name, marks, text))
        scale = [point.value.value for point in points if point.value]
        return draw_dots(width, rows, self.value_title, model, scale)

    def _clock_text(self, own: Sequence[tuple[int, CellPoint, ModelValue | None]]) -> str:
        if not self._is_clocked():
            return ""
        return ", ".join(f"{value.ghz}" for _, _, value in own if value and value.ghz) + " GHz"

    def _same_as(self, point: CellPoint) -> str:
        """Return the first value of the compared axis that is the same clock, if another is."""
        first = self.plan.first
        for same in self.data.same_clocks:
            if same.setting == first.name and _is_at(same, point):
                earliest = next(value for value in first.values if value in same.levels)
                return "" if earliest == point.settings[first.name] else str(earliest)
        return ""


def _is_at(same: SameClock, point: CellPoint) -> bool:
    """Whether a cell has one of the levels that are one clock."""
    return (
        point.settings.get(same.setting) in same.levels
        and same.cores in ("", point.settings[CORES])
        and point.model == safe_text(same.model, 40)
    )


def _present(axis: CellAxis, points: Sequence[CellPoint]) -> list[SettingValue]:
    """Return the values of an axis that a figure shows; cells may be included or excluded."""
    present = {point.settings.get(axis.name) for point in points}
    return [value for value in axis.values if value in present]
