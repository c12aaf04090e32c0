"""The report section that follows the axes of a sweep: which picture fits what the matrix varies.

Lines over a numeric axis, a heat map over two, bars side by side for a few values, always with one
panel per phone. Every mark is one cell on one phone; nothing is averaged over an axis.
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
    varying_axes,
)
from orchestrator.analysis.fleet_ranking import FleetGroup, FleetRow
from orchestrator.analysis.pareto import ENERGY
from orchestrator.analysis.verdict_counts import count_verdicts
from orchestrator.export.report.axis_charts import (
    CellMark,
    CellNames,
    CellPanel,
    draw_grouped_bars,
    draw_heat_map,
)
from orchestrator.export.report.charts import Mark, Panel, Series, draw_chart
from orchestrator.export.report.report_data import (
    Card,
    ReportData,
    Section,
    metric_text,
    readable_unit,
    same_clocks_text,
    unit_of,
)
from orchestrator.export.report.svg import Drawing, PlotAxis, build_axis
from workloads.protocol.condition import HEADLINES
from workloads.protocol.metrics import METRICS
from workloads.protocol.same_clocks import SameClock

LINE_VALUES_MIN = 3  # two values of a number are compared, not joined
BARS_MAX = 6  # values side by side
SERIES_MAX = 8  # lines in one chart
PANELS_MAX = 12  # phones in one figure
FIGURES_MAX = 60
BATCH_METRICS = {"samples_per_s": "throughput", "peak_rss_mb": "memory"}
_COMPARED_FIRST = (BACKEND, PROTOCOL)


class PictureKind(StrEnum):
    """How values over axes are drawn."""

    LINES = "lines"
    HEAT_MAP = "heat map"
    BARS = "bars"


@dataclass(frozen=True)
class PicturePlan:
    """The picture that fits some axes; every other axis has one figure per value."""

    kind: PictureKind
    first: CellAxis  # across: the x axis of lines, the columns, the bars of a group
    second: CellAxis | None = None  # the lines, the rows, the groups


def choose_picture(axes: Sequence[CellAxis]) -> PicturePlan | None:
    """Choose the picture that fits the axes of a sweep; None without any axis."""
    if not axes:
        return None
    by_name = {axis.name: axis for axis in axes}
    if CORES in by_name and FREQ in by_name:
        return PicturePlan(PictureKind.HEAT_MAP, by_name[FREQ], by_name[CORES])
    by_size = sorted(axes, key=lambda axis: -len(axis.values))
    numeric = [a for a in by_size if a.is_numeric and len(a.values) >= LINE_VALUES_MIN]
    if len(numeric) > 1:
        return PicturePlan(PictureKind.HEAT_MAP, numeric[0], numeric[1])
    if numeric:
        few = [a for a in by_size[::-1] if a != numeric[0] and len(a.values) <= SERIES_MAX]
        few.sort(key=lambda axis: axis.name not in _COMPARED_FIRST)
        return PicturePlan(PictureKind.LINES, numeric[0], few[0] if few else None)
    large = [axis for axis in by_size if len(axis.values) >= LINE_VALUES_MIN]
    if len(large) > 1:
        return PicturePlan(PictureKind.HEAT_MAP, large[0], large[1])
    small = [axis for axis in by_size[::-1] if len(axis.values) <= BARS_MAX]
    small.sort(key=lambda axis: (len(axis.values), axis.name not in _COMPARED_FIRST))
    compared = small[0] if small else by_size[0]
    others = [axis for axis in by_size if axis != compared]
    if len(compared.values) > BARS_MAX:
        return PicturePlan(PictureKind.BARS, others[0] if others else compared, compared)
    return PicturePlan(PictureKind.BARS, compared, others[0] if others else None)


@dataclass(frozen=True)
class AxisPoint:
    """A cell on a phone: its settings, and its value or in a word why it has none."""

    settings: dict[str, SettingValue]
    phone: str
    mark: CellMark
    workload: str


def axis_section(data: ReportData) -> Section:
    """Show the results over the axes of the sweep."""
    cells = [group.settings for group in data.all_groups()]
    cells += [cell_settings(failed.case, failed.condition) for failed in data.failures]
    axes = varying_axes(cells)
    plan = choose_picture(axes)
    cards: list[Card] = []
    figures = 0
    if plan is not None:
        rest = [axis for axis in axes if axis not in (plan.first, plan.second)]
        for title, value_title, points in _questions(data, plan):
            for card in _AxisFigures(data, plan, title, value_title).cards(rest, points):
                figures += 1
                cards += [card] if figures <= FIGURES_MAX else []
    names = ", ".join(axis.plain_title for axis in axes)
    hidden = figures - len(cards)
    is_any_valid = any(run.valid for run in data.runs)
    missing = "All valid runs have the same parameters; there is no axis to plot."
    missing = missing if is_any_valid else "There is no valid run."
    return Section(
        "axes",
        "Results over the axes of the sweep",
        f"The cells of this sweep differ in: {names}. A mark is the median over the valid runs of "
        "one cell on one phone, with its 95 % interval; all panels of a figure have one scale.",
        cards=tuple(cards),
        note=("" if cards else missing)
        + (f" {hidden} further figures are left out; the tables have their values." * bool(hidden)),
        wide=True,
    )


def _questions(data: ReportData, plan: PicturePlan) -> Iterator[tuple[str, str, list[AxisPoint]]]:
    """Yield every quantity that is shown: a title, its axis title, and its points."""
    times = [g for protocol, metric in HEADLINES.items() for g in data.groups_of(protocol, metric)]
    yield _question("step time", "ms", "", _points(data, times, "ms"))
    if any(ENERGY in run.metrics for run in data.runs):
        energies = [g for protocol in HEADLINES for g in data.groups_of(protocol, ENERGY)]
        points = _points(data, energies, unit_of(ENERGY))
        yield _question("energy per sample", unit_of(ENERGY), "", points)
    for metric, title in BATCH_METRICS.items() if plan.first.name == "batch_size" else ():
        groups = [g for protocol in HEADLINES for g in data.groups_of(protocol, metric)]
        better = "higher" if METRICS[metric].higher_is_better else "lower"
        if any(group.rows for group in groups):
            points = _points(data, groups, unit_of(metric))
            yield _question(title, unit_of(metric), f" ({better} is better)", points)


def _question(
    title: str, unit: str, note: str, points: list[AxisPoint]
) -> tuple[str, str, list[AxisPoint]]:
    """Return a quantity in the unit in which its values have few digits."""
    shown, factor = readable_unit(unit, (point.mark.value or 0.0 for point in points))
    points = [replace(point, mark=point.mark.times(factor)) for point in points]
    return title, f"{title}, {shown}{note}", points


def _points(data: ReportData, groups: Sequence[FleetGroup], unit: str) -> list[AxisPoint]:
    points = []
    for group in groups:
        settings = group.settings
        for row in group.rows:
            mark = _mark_of(row, unit)
            points.append(AxisPoint(settings, row.phone, mark, group.case.name))
        for phone in group.unranked:
            own = data.cell_runs(phone.phone, group.case, group.condition)
            left_out = count_verdicts(own).left_out
            why, tip = "void" if left_out.void else "suspect", left_out.text
            if phone.valid:
                why = "coarse" if phone.coarse_runs else "not reported"
                tip = phone.reason.value
            mark = CellMark(None, f"{data.names[phone.phone]}: {tip}", why=why)
            points.append(AxisPoint(settings, phone.phone, mark, group.case.name))
    return points + _failed_points(data)


def _failed_points(data: ReportData) -> list[AxisPoint]:
    """Return the cells whose runs all failed on a phone."""
    points = {}
    for failed in data.failures:
        if not data.cell_runs(failed.phone, failed.case, failed.condition):
            reason = failed.fault.text if failed.fault else failed.note
            mark = CellMark(None, f"{data.names[failed.phone]}: {reason}", why="failed")
            settings = cell_settings(failed.case, failed.condition)
            points[failed.trial] = AxisPoint(settings, failed.phone, mark, failed.case.name)
    return list(points.values())


def _mark_of(row: FleetRow, unit: str) -> CellMark:
    known = not row.provenance.error_unknown and row.n > 1
    low, high = (row.interval.low, row.interval.high) if known else (None, None)
    tip, source = metric_text(row, unit), str(row.provenance)
    return CellMark(row.median, tip, low, high, source=source, clock_ghz=row.applied.clock_ghz)


@dataclass(frozen=True)
class _AxisFigures:
    """Draws one quantity over the axes of a plan."""

    data: ReportData
    plan: PicturePlan
    title: str
    value_title: str

    def cards(self, rest: Sequence[CellAxis], points: Sequence[AxisPoint]) -> Iterator[Card]:
        """Yield one figure per combination of the axes that the picture does not show."""
        plan, names = self.plan, self.data.names
        over = " and ".join(axis.plain_title for axis in (plan.first, plan.second) if axis)
        for values in product(*(axis.values for axis in rest)):
            fixed = dict(zip((axis.name for axis in rest), values, strict=True))
            own = [p for p in points if all(p.settings.get(k, v) == v for k, v in fixed.items())]
            own = [point for point in own if plan.first.name in point.settings]
            phones = sorted({point.phone for point in own}, key=names.__getitem__)
            if not any(point.mark.value for point in own):
                continue
            where = ", ".join(f"{axis.plain_title}: {fixed[axis.name]}" for axis in rest)
            for begin in range(0, len(phones), PANELS_MAX):
                chosen = phones[begin : begin + PANELS_MAX]
                shown = [point for point in own if point.phone in chosen]
                workloads = {point.workload for point in shown}
                end = begin + len(chosen)
                part = f" ({begin + 1} to {end})" if len(phones) > PANELS_MAX else ""
                title = f"{self.title.capitalize()} over {over}{part}"
                workload = workloads.pop() if len(workloads) == 1 else ""
                same = [one for one in self.data.same_clocks if any(_is_at(one, p) for p in shown)]
                text = ". ".join(filter(None, (where, same_clocks_text(same))))
                yield Card(title, text, self._draw(shown, chosen), workload)

    def _draw(self, points: Sequence[AxisPoint], phones: Sequence[str]) -> Drawing:
        plan = self.plan
        label = f"{self.value_title} over {plan.first.title}"
        if plan.kind is PictureKind.LINES:
            return self._draw_lines(label, points, phones)
        first = _present_values(plan.first, points)
        second = _present_values(plan.second, points) if plan.second else ("",)
        panels = []
        for phone in phones:
            cells = {
                (
                    second.index(point.settings.get(plan.second.name, "")) if plan.second else 0,
                    first.index(point.settings[plan.first.name]),
                ): replace(point.mark, same_as=self._same_as(point))
                for point in points
                if point.phone == phone
                and (plan.second is None or point.settings.get(plan.second.name) in second)
            }
            panels.append(CellPanel(self.data.names[phone], phone, cells))
        names = CellNames(
            *(plan.second.title if plan.second else "", [str(value) for value in second]),
            *(plan.first.title, [str(value) for value in first]),
            self.value_title,
        )
        draw = draw_heat_map if plan.kind is PictureKind.HEAT_MAP else draw_grouped_bars
        return draw(label, panels, names)

    def _same_as(self, point: AxisPoint) -> str:
        """Return the first value of the compared axis that is the same clock, if another is."""
        first = self.plan.first
        for same in self.data.same_clocks:
            if same.setting == first.name and _is_at(same, point):
                earliest = next(value for value in first.values if value in same.levels)
                return "" if earliest == point.settings[first.name] else str(earliest)
        return ""

    def _draw_lines(
        self, label: str, points: Sequence[AxisPoint], phones: Sequence[str]
    ) -> Drawing:
        known = [point for point in points if point.mark.value and point.mark.value > 0]
        numbers = sorted({float(point.settings[self.plan.first.name]) for point in known})
        spread = build_axis(self.plan.first.title, numbers, log=numbers[0] > 0)
        x = PlotAxis(spread.title, spread.low, spread.high, spread.log, tuple(numbers))
        y = build_axis(self.value_title, [point.mark.value or 0.0 for point in known], log=True)
        panels = [
            Panel(self.data.names[phone], [s for s in _lines(self.plan, known, phone) if s.marks])
            for phone in phones
        ]
        return draw_chart(label, panels, x, y)


def _is_at(same: SameClock, point: AxisPoint) -> bool:
    """Whether a cell has one of the levels that are one clock."""
    return (
        point.phone == same.phone
        and point.settings[same.setting] in same.levels
        and same.cores in ("", point.settings[CORES])
    )


def _present_values(axis: CellAxis, points: Sequence[AxisPoint]) -> tuple[SettingValue, ...]:
    """Return the values of an axis that a figure shows; cells may be included or excluded."""
    present = {point.settings.get(axis.name) for point in points}
    return tuple(value for value in axis.values if value in present)


def _lines(plan: PicturePlan, points: Sequence[AxisPoint], phone: str) -> Iterator[Series]:
    for index, value in enumerate(plan.second.values if plan.second else ("",)):
        own = [
            point
            for point in points
            if point.phone == phone
            and (plan.second is None or point.settings.get(plan.second.name) == value)
        ]
        own.sort(key=lambda point: float(point.settings[plan.first.name]))
        name = f"{plan.second.plain_title}: {value}" if plan.second else "median over runs"
        marks = [
            Mark(
                *(float(point.settings[plan.first.name]), point.mark.value or 0.0, point.mark.tip),
                *(point.mark.low, point.mark.high, point.mark.source),
            )
            for point in own
        ]
        yield Series(name, phone, index, marks)
