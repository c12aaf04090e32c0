"""Report sections on single runs: the operations of a step, and long runs over time."""

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from statistics import median

from orchestrator.analysis.measurements import MeasuredRun
from orchestrator.analysis.op_telemetry import OpMethod, OpRow, op_rows
from orchestrator.export.perfetto_trace import slopes_per_second
from orchestrator.export.report.charts import (
    Bar,
    Lane,
    LaneSegment,
    Mark,
    Panel,
    Series,
    draw_bars,
    draw_chart,
    draw_lanes,
)
from orchestrator.export.report.report_data import Card, ReportData, Section
from orchestrator.export.report.svg import axis_from_zero, build_axis, format_short
from workloads.protocol.condition import Protocol
from workloads.protocol.telemetry import ENERGY, Telemetry
from workloads.text import natural_sort_key

POINTS_MAX = 240
OPS_SHOWN = 10
LINES_MAX = 10  # phones in one chart; more cannot be distinguished
OTHERS_MAX = 0.20  # share of a step; more is listed by the kind of the operations


TracedRun = tuple[MeasuredRun, tuple[OpRow, ...]]


def operation_section(data: ReportData) -> Section:
    """Show the operations of a step, the largest by name, with one card per case and phone."""
    cells: dict[str, dict[str, dict[str, TracedRun]]] = {}  # case, condition, phone
    for run, telemetry in data.telemetry:
        ops = op_rows(telemetry)
        if ops and run.valid:
            conditions = cells.setdefault(run.case.label, {})
            conditions.setdefault(run.condition.label, {}).setdefault(run.phone, (run, ops))
    cards = [
        _op_card(data, run, ops)
        for _, conditions in sorted(cells.items(), key=lambda cell: natural_sort_key(cell[0]))
        for run, ops in sorted(
            _most_common_condition(conditions), key=lambda item: data.names[item[0].phone]
        )
    ]
    return Section(
        "operations",
        "Operations of a step",
        "Share of each operation in the traced steps: the ten largest, then kinds of operations "
        "until at most a fifth is left. One run per phone, and one condition per case.",
        cards=tuple(cards),
        note="" if cards else "No run was traced.",
    )


def _most_common_condition(conditions: Mapping[str, Mapping[str, TracedRun]]) -> list[TracedRun]:
    """Return the runs of the condition with most phones: cores and clocks hardly change shares."""
    label = min(conditions, key=lambda name: (-len(conditions[name]), natural_sort_key(name)))
    return list(conditions[label].values())


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


def _op_card(data: ReportData, run: MeasuredRun, ops: Sequence[OpRow]) -> Card:
    by_name = {op.name: op for op in ops}
    step_ms = sum(op.ms for op in ops)
    bars = [
        Bar(
            *(name, run.phone, data.colours[run.phone], 100 * share, None, None),
            shown=f"{share:.1%}",
            note=f"{format_short(share * step_ms)} ms",
            tip=_op_tip(data, run, by_name[name]) if name in by_name else f"{name}: {share:.1%}",
            source=_source_of(run),
        )
        for name, share in largest_ops(ops)
    ]
    drawing = draw_bars(f"operations of {run.case.label}", bars, "share of the step, %")
    text = f"{data.names[run.phone]}, {run.condition.label}"
    return Card(run.case.label, text, drawing, run.case.name)


def _source_of(run: MeasuredRun) -> str:
    headline = run.metrics.get(run.condition.headline)
    return str(headline.provenance) if headline else "source unknown"


def _op_tip(data: ReportData, run: MeasuredRun, op: OpRow) -> str:
    energy = "" if op.energy_mj is None else f", {format_short(op.energy_mj)} mJ"
    return (
        f"{data.names[run.phone]}, {op.name} ({op.kind}): {format_short(op.ms)} ms, "
        f"{op.share:.1%}{energy} ({_source_of(run)})"
    )


def step_section(data: ReportData) -> Section:
    """Show one mean step per case: its operations, and what cores, GPU and power did in it."""
    best: dict[str, TracedRun] = {}
    for run, telemetry in data.telemetry:
        ops = op_rows(telemetry) if run.valid else ()
        if not any(op.method is not OpMethod.NONE for op in ops):
            continue
        before = best.get(run.case.label)
        if before is None or _resolved(ops) > _resolved(before[1]):
            best[run.case.label] = (run, ops)
    cards = [
        Card(
            run.case.label,
            f"{data.names[run.phone]}, {run.condition.label}",
            draw_lanes(label, _lanes(ops)),
            run.case.name,
        )
        for label, (run, ops) in sorted(best.items(), key=lambda item: natural_sort_key(item[0]))
    ]
    return Section(
        "step",
        "One step over time",
        "The mean of all steps of one run per case. Lanes below the operations show the load of "
        "cores and GPU and the power that were attributed to each operation; paler parts could "
        "not be distinguished from their neighbours.",
        cards=tuple(cards),
        note="" if cards else "No traced run has sensors that were sampled often enough.",
    )


def _resolved(ops: Sequence[OpRow]) -> float:
    """Return the share of a step whose operations were distinguished."""
    return sum(op.share for op in ops if op.method in (OpMethod.READINGS, OpMethod.REGRESSION))


def _lanes(ops: Sequence[OpRow]) -> list[Lane]:
    cores = sorted({cpu for op in ops for cpu, pct in op.core_util_pct.items() if pct >= 5})
    quantities: list[tuple[str, str, Callable[[OpRow], float | None], float | None]] = [
        *((f"cpu{cpu}", "%", _core_load(cpu), 100.0) for cpu in cores),
        ("GPU", "%", lambda op: op.gpu_util_pct, 100.0),
        ("power", "W", lambda op: op.power_w, None),
    ]
    rails = sorted({rail for op in ops for rail in op.rails_w})
    quantities += [(rail, "W", _rail_power(rail), None) for rail in rails]
    lanes = [Lane("operations", "", 1.0, _segments(ops, lambda op: 1.0, ""))]
    for name, unit, read, top in quantities:
        values = [value for op in ops if (value := read(op)) is not None]
        if values and max(values) > 0:
            lanes.append(Lane(name, unit, top or max(values), _segments(ops, read, unit)))
    return lanes


def _core_load(cpu: int) -> Callable[[OpRow], float | None]:
    return lambda op: op.core_util_pct.get(cpu)


def _rail_power(rail: str) -> Callable[[OpRow], float | None]:
    return lambda op: op.rails_w.get(rail)


def _segments(
    ops: Sequence[OpRow], read: Callable[[OpRow], float | None], unit: str
) -> list[LaneSegment]:
    segments, begin = [], 0.0
    for op in ops:
        value = read(op)
        if value is not None:
            shown = f"{format_short(value)} {unit}" if unit else f"{format_short(op.ms)} ms"
            tip = f"{op.name} ({op.kind}): {shown}; {op.readings} readings, {op.method.value}"
            vague = bool(unit) and op.method is OpMethod.GROUP
            segments.append(LaneSegment(begin, begin + op.ms, value, op.name, tip, vague))
        begin += op.ms
    return segments


def trace_section(data: ReportData) -> Section:
    """Show temperature, clock, power and step time during long runs."""
    long_runs: dict[str, list[tuple[MeasuredRun, Telemetry]]] = {}
    seen: set[tuple[str, str]] = set()
    for run, telemetry in data.telemetry:
        label = f"{run.case.label}, {run.condition.label}"
        if (
            run.valid
            and run.condition.protocol is not Protocol.COLD
            and (label, run.phone) not in seen
        ):
            seen.add((label, run.phone))
            long_runs.setdefault(label, []).append((run, telemetry))
    cards = []
    pieces = (
        (label, runs[begin : begin + LINES_MAX])
        for label, runs in sorted(long_runs.items(), key=lambda item: natural_sort_key(item[0]))
        for begin in range(0, len(runs), LINES_MAX)
    )
    for label, runs in pieces:
        for title, unit, read in _QUANTITIES:
            series = [
                Series(data.names[run.phone], run.phone, data.colours[run.phone], marks)
                for run, telemetry in runs
                if (
                    marks := _thin_out(
                        read(telemetry), data.names[run.phone], unit, _source_of(run)
                    )
                )
            ]
            if series:
                points = [mark for item in series for mark in item.marks]
                x = axis_from_zero("time, minutes", [mark.x for mark in points])
                name = f"{title.lower()}, {unit}"
                y = build_axis(name, [mark.y for mark in points], zero=unit not in ("°C",))
                drawing = draw_chart(title, [Panel("", series)], x, y)
                cards.append(Card(title, label, drawing, runs[0][0].case.name))
    return Section(
        "traces",
        "Long runs over time",
        "Temperature of the hottest CPU zone, clock of the fastest cores, power of the phone and "
        "step time, during the first valid long run of each phone.",
        cards=tuple(cards),
        note="" if cards else "There is no valid long run with telemetry.",
    )


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
    series = telemetry.series.get(ENERGY)
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


def _thin_out(points: Points, name: str, unit: str, source: str) -> list[Mark]:
    """Reduce a curve to as many points as a screen shows: the median of every piece."""
    if not points:
        return []
    size = -(-len(points) // POINTS_MAX)
    pieces = [points[start : start + size] for start in range(0, len(points), size)]
    middles = [(median(x for x, _ in piece), median(y for _, y in piece)) for piece in pieces]
    return [
        Mark(x, y, f"{name}: {format_short(y)} {unit} ({source})", source=source)
        for x, y in middles
    ]
