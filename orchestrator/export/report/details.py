"""Report sections with every cell, single runs over time, operations, and the phones."""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import partial
from statistics import median

from orchestrator.analysis.ab_comparison import Comparison
from orchestrator.analysis.measurements import MeasuredRun
from orchestrator.analysis.op_telemetry import OpRow, op_rows
from orchestrator.analysis.split_half import phone_label, split_half_check
from orchestrator.analysis.trial_series import trial_series
from orchestrator.analysis.verdict_counts import count_verdicts
from orchestrator.export.perfetto_trace import slopes_per_second
from orchestrator.export.report.charts import LinePoint, LineSeries, draw_lines
from orchestrator.export.report.figure import SERIES, Figure, Picture, build_axis, number_text
from orchestrator.export.report.report_data import (
    ENERGY,
    ReportData,
    Section,
    readable_unit,
    unit_of,
)
from workloads.protocol.condition import HEADLINES, Protocol
from workloads.protocol.telemetry import ENERGY as ENERGY_SERIES
from workloads.protocol.telemetry import Telemetry
from workloads.text import natural_sort_key, safe_text

ROWS_MAX = 600  # of a table on the page
OPEN_ROWS = 40  # a longer table is folded
POINTS_MAX = 60  # of a line over time
OPS_SHOWN = 10
CASES_MAX = 8  # whose operations are listed
OTHERS_MAX = 0.20  # share of a step; more is listed by the kind of the operations


def cells_section(data: ReportData) -> Section:
    """List every cell with its value, its spread, its clock and its energy, by model."""
    rows = []
    energies = {
        (group.case.label, group.condition.label, model): value
        for protocol in HEADLINES
        for group in data.groups(protocol, ENERGY)
        for model, value in data.values(group).items()
    }
    unit, factor = readable_unit(unit_of(ENERGY), (value.value for value in energies.values()))
    for group in data.all_groups():
        for model, value in data.values(group).items():
            joules = energies.get((group.case.label, group.condition.label, model))
            rows.append(
                (
                    *(group.case.label, group.condition.label, model, value.ghz or "–"),
                    number_text(value.value),
                    value.spread,
                    number_text(joules.value * factor) if joules else "–",
                    str(value.runs) + (f" × {len(value.units)}" if len(value.units) > 1 else ""),
                )
            )
        for phone in group.unranked:
            counts = count_verdicts(data.cell_runs(phone.phone, group.case, group.condition))
            why = phone.reason.value if phone.valid else counts.left_out.counts
            place = (group.case.label, group.condition.label, data.names[phone.phone])
            rows.append((*place, phone.applied.clock_ghz or "–", "–", why, "–", "0"))
    more = len(rows) - ROWS_MAX
    return Section(
        "cells",
        f"All cells ({len(rows)})",
        "Median step time over the valid runs of a cell; after ten minutes, its last minute. The "
        "interval is the 95 % interval, or the range of fewer than four runs; for several phones "
        "of one model, their spread.",
        headings=(
            *("Workload", "Condition", "Phone", "GHz", "ms", "Interval"),
            *(f"{unit}/sample", "Runs"),
        ),
        rows=tuple(rows[:ROWS_MAX]),
        note=f"{more} more cells are in the CSV of farm export." if more > 0 else "",
        is_open=len(rows) <= OPEN_ROWS,
    )


def heat_section(data: ReportData) -> Section:
    """Show temperature, clock, power and step time of the phones during one long cell."""
    cells: dict[str, dict[str, tuple[MeasuredRun, Telemetry]]] = {}
    for run, telemetry in data.telemetry:
        if run.valid and run.condition.protocol is not Protocol.COLD:
            label = f"{run.case.label}, {run.condition.label}"
            cells.setdefault(label, {}).setdefault(run.facts.model, (run, telemetry))
    figures = [
        _heat_figure(label, dict(list(runs.items())[: len(SERIES)]))
        for label, runs in sorted(cells.items(), key=lambda cell: natural_sort_key(cell[0]))[-1:]
    ]
    return Section(
        "heat",
        "Heat over time",
        "Temperature of the hottest CPU zone, clock of the fastest cores, power of the phone and "
        "step time, during the first valid long run of each model; farm export --table readings "
        "has the values.",
        figures=tuple(figure for figure in figures if figure.panels),
        note="No valid long run has telemetry.",
    )


def _heat_figure(label: str, runs: dict[str, tuple[MeasuredRun, Telemetry]]) -> Figure:
    panels: list[tuple[str, str, list[LineSeries]]] = []
    for title, unit, read in _QUANTITIES:
        series = [
            LineSeries(safe_text(model, 40), index, _thin_out(read(telemetry)))
            for index, (model, (_, telemetry)) in enumerate(runs.items())
        ]
        if any(one.points for one in series):
            panels.append((title, unit, [one for one in series if one.points]))

    def draw(width: float) -> list[Picture]:
        pictures = []
        for title, unit, series in panels:
            points = [point for one in series for point in one.points]
            x = build_axis("minutes", [point.x for point in points])
            y = build_axis(unit, [point.y for point in points], zero=unit != "°C")
            pictures.append(draw_lines(width, title, series, x, y))
        return pictures

    legend = tuple((safe_text(model, 40), f"l{index}") for index, model in enumerate(runs))
    caption = f"Long runs over time ({label})."
    return Figure(*("heat-over-time", "Heat over time", caption, draw, (), (), len(panels), legend))


def operation_section(data: ReportData) -> Section:
    """List the largest operations of a step, on one phone per case."""
    found: dict[str, tuple[MeasuredRun, tuple[OpRow, ...]]] = {}
    for run, telemetry in data.telemetry:
        ops = op_rows(telemetry) if run.valid and run.case.label not in found else ()
        if ops:
            found[run.case.label] = (run, ops)
    rows = []
    for label, (run, ops) in sorted(found.items(), key=lambda i: natural_sort_key(i[0]))[
        :CASES_MAX
    ]:
        step_ms = sum(op.ms for op in ops)
        for name, share in largest_ops(ops):
            text = f"{share:.1%}".replace("%", " %")
            rows.append((label, data.names[run.phone], name, text, number_text(share * step_ms)))
    return Section(
        "operations",
        "Operations of a step",
        "The ten largest operations of the traced steps, then kinds of operations until at most a "
        "fifth is left. One phone per workload; farm export --table ops has all.",
        headings=("Workload", "Phone", "Operation", "Share", "ms"),
        rows=tuple(rows),
        note="No run was traced.",
    )


def largest_ops(ops: Sequence[OpRow]) -> list[tuple[str, float]]:
    """Return the largest operations by name, then kinds, until the others are at most a fifth."""
    by_size = sorted(ops, key=lambda op: -op.share)
    shown = [(op.name, op.share) for op in by_size[:OPS_SHOWN]]
    kinds: dict[str, list[float]] = {}
    for op in by_size[OPS_SHOWN:]:
        kinds.setdefault(op.kind or "unknown kind", []).append(op.share)
    rest = sum(op.share for op in by_size[OPS_SHOWN:])
    for kind, shares in sorted(kinds.items(), key=lambda item: -sum(item[1])):
        if rest <= OTHERS_MAX:
            break
        shown.append((f"{len(shares)} further {kind}", sum(shares)))
        rest -= sum(shares)
    return [*shown, ("others", rest)] if rest > 0.001 else shown


Points = list[tuple[float, float]]  # minutes and value


def _max_readings(nodes: str, scale: float, telemetry: Telemetry) -> Points:
    """Return the highest reading among the nodes of a pattern at every sample."""
    t_ns = telemetry.readings.t_ns
    columns = [c for path, c in telemetry.readings.columns.items() if fnmatchcase(path, nodes)]
    points = []
    for index, moment_ns in enumerate(t_ns):
        values = [v for c in columns if index < len(c) and isinstance(v := c[index], int)]
        if values:
            points.append(((moment_ns - t_ns[0]) / 6e10, max(values) * scale))
    return points


def _power(telemetry: Telemetry) -> Points:
    series = telemetry.series.get(ENERGY_SERIES)
    if series is None or not series.t_ns:
        return []
    start_ns = series.t_ns[0]
    return [((t_ns - start_ns) / 6e10, watts) for t_ns, watts in slopes_per_second(series)]


def _step_times(telemetry: Telemetry) -> Points:
    windows = telemetry.windows
    return [
        ((t_ns - windows.t_ns[0]) / 6e10, step_ms)
        for t_ns, step_ms in zip(windows.t_ns, windows.step_ms, strict=True)
        if step_ms is not None
    ]


_QUANTITIES: tuple[tuple[str, str, Callable[[Telemetry], Points]], ...] = (
    ("Temperature", "°C", partial(_max_readings, "*/thermal_zone*/temp", 1e-3)),
    ("Clock", "GHz", partial(_max_readings, "*/scaling_cur_freq", 1e-6)),
    ("Power", "W", _power),
    ("Step time", "ms", _step_times),
)


def _thin_out(points: Points) -> list[LinePoint]:
    """Reduce a curve to as many points as a screen shows: the median of every piece."""
    size = max(1, -(-len(points) // POINTS_MAX))
    pieces = [points[start : start + size] for start in range(0, len(points), size)]
    return [LinePoint(median(x for x, _ in piece), median(y for _, y in piece)) for piece in pieces]


def phones_section(data: ReportData) -> Section:
    """Show every phone: its hardware, its control level, and its split-half check."""
    halves = {row.label: row for row in split_half_check(trial_series(data.runs)).rows}
    latest = {run.phone: run for run in sorted(data.runs, key=lambda run: run.ended_at)}
    rows = []
    for phone, run in sorted(latest.items(), key=lambda item: data.names[item[0]]):
        own = [other for other in data.runs if other.phone == phone]
        facts = run.facts
        source = facts.provenance.time if facts.provenance else None
        limits = f"; except: {', '.join(facts.uncontrolled)}" if facts.uncontrolled else ""
        rows.append(
            (
                f"{data.names[phone]} · {phone}",
                f"{facts.soc}, Android {facts.android}, {facts.ram_mb / 1024:.1f} GB",
                f"{run.control or 'unknown'}{limits}",
                f"{sum(other.valid for other in own)} of {len(own)}",
                _max_temperature(own),
                _split_half_text(halves.get(phone_label(facts.model, phone))),
                str(source or "unknown"),
            )
        )
    return Section(
        "phones",
        "The phones",
        "Split-half check: the odd blocks of a phone's runs compared with the even ones; the ratio "
        "should be 1.000. If it is not, the conditions of the phone were not stable.",
        headings=(
            *("Phone", "Hardware", "Control", "Valid runs", "Maximum temperature"),
            *("Split-half check", "Source of times"),
        ),
        rows=tuple(rows),
        note="" if rows else "There are no runs.",
    )


def _split_half_text(row: Comparison | None) -> str:
    if row is None:
        return "too few runs"
    interval = f", {row.low:.3f} to {row.high:.3f}" if row.low and row.high else ""
    return f"{row.ratio:.3f}{interval}: {row.verdict}"


def _max_temperature(runs: Sequence[MeasuredRun]) -> str:
    metrics = [run.metrics for run in runs if run.valid]
    temps = [each["peak_temp_c"].value for each in metrics if "peak_temp_c" in each]
    return f"{number_text(max(temps))} °C" if temps else "unknown"
