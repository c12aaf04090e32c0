"""Report sections on single runs: the operations of a step, and long runs over time."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

from orchestrator.analysis.measurements import MeasuredRun
from orchestrator.analysis.op_telemetry import OpMethod, OpRow, op_rows
from orchestrator.export.perfetto_trace import slopes_per_second
from orchestrator.export.report.report_data import Card, ReportData, Section
from orchestrator.export.report.svg import (
    BarPart,
    Lane,
    LaneSegment,
    Mark,
    Series,
    axis_from_zero,
    build_axis,
    draw_chart,
    draw_lanes,
    draw_stacked_bars,
    format_short,
)
from workloads.protocol.condition import Protocol
from workloads.protocol.telemetry import ENERGY, Telemetry
from workloads.text import natural_sort_key

POINTS_MAX = 240
OPS_SHOWN = 8


TracedRun = tuple[MeasuredRun, tuple[OpRow, ...]]


def operation_section(data: ReportData) -> Section:
    """Show the time of a step by operation, with one card per case."""
    cells: dict[str, dict[str, dict[str, TracedRun]]] = {}  # case, condition, phone
    for run, telemetry in data.telemetry:
        ops = op_rows(telemetry)
        if ops and run.valid:
            conditions = cells.setdefault(run.case.label, {})
            conditions.setdefault(run.condition.label, {}).setdefault(run.phone, (run, ops))
    cases = [
        (case, _most_common_condition(conditions))
        for case, conditions in sorted(cells.items(), key=lambda cell: natural_sort_key(cell[0]))
    ]
    by_workload: dict[str, list[tuple[OpRow, ...]]] = {}
    for _, runs in cases:
        by_workload.setdefault(runs[0][0].case.name, []).extend(ops for _, ops in runs)
    colours = {workload: _op_colours(steps) for workload, steps in by_workload.items()}
    cards = [_op_card(data, label, runs, colours[runs[0][0].case.name]) for label, runs in cases]
    return Section(
        "operations",
        "Operations of a step",
        "Share of each operation in the traced steps; one run per phone, and one condition per "
        "case.",
        cards=tuple(cards),
        note="" if cards else "No run was traced.",
    )


def _most_common_condition(conditions: Mapping[str, Mapping[str, TracedRun]]) -> list[TracedRun]:
    """Return the runs of the condition with most phones: cores and clocks hardly change shares."""
    label = min(conditions, key=lambda name: (-len(conditions[name]), natural_sort_key(name)))
    return list(conditions[label].values())


def _op_colours(steps: Iterable[Sequence[OpRow]]) -> dict[str, int]:
    """Assign colours to the operations of a workload that take most time, for all its cards."""
    total: dict[str, float] = {}
    for ops in steps:
        for op in ops:
            total[op.name] = total.get(op.name, 0.0) + op.share
    largest = sorted(total, key=lambda name: -total[name])[:OPS_SHOWN]
    return {name: index for index, name in enumerate(largest)}


def _op_card(
    data: ReportData,
    label: str,
    runs: Sequence[TracedRun],
    colours: Mapping[str, int],
) -> Card:
    rows = []
    for run, ops in sorted(runs, key=lambda item: data.names[item[0].phone]):
        by_name = {op.name: op for op in ops}
        parts = [
            BarPart(name, by_name[name].share, colour, _op_tip(data, run, by_name[name]))
            for name, colour in colours.items()
            if name in by_name
        ]
        rest = 1 - sum(part.share for part in parts)
        if rest > 0.001:
            parts.append(BarPart("others", rest, 9, f"all other operations: {rest:.1%}"))
        rows.append((data.names[run.phone], run.phone, parts))
    legend = (*colours.items(), ("others", 9))
    case, condition = runs[0][0].case, runs[0][0].condition
    return Card(case.label, condition.label, draw_stacked_bars(label, rows), case.name, legend)


def _op_tip(data: ReportData, run: MeasuredRun, op: OpRow) -> str:
    energy = "" if op.energy_mj is None else f", {format_short(op.energy_mj)} mJ"
    headline = run.metrics.get(run.condition.headline)
    source = headline.provenance if headline else "source unknown"
    return (
        f"{data.names[run.phone]}, {op.name} ({op.kind}): {format_short(op.ms)} ms, "
        f"{op.share:.1%}{energy} ({source})"
    )


def step_section(data: ReportData) -> Section:
    """Show one mean step per case: its operations, and what cores, GPU and power did meanwhile."""
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
        "cores and GPU and the power that were attributed to each operation; hatched parts could "
        "not be told apart from their neighbours.",
        cards=tuple(cards),
        note="" if cards else "No traced run has sensors that were sampled often enough.",
    )


def _resolved(ops: Sequence[OpRow]) -> float:
    """Return the share of a step whose operations were told apart."""
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
    colours = _op_colours([ops])
    lanes = [Lane("operations", "", 1.0, _segments(ops, lambda op: 1.0, "", colours))]
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
    ops: Sequence[OpRow],
    read: Callable[[OpRow], float | None],
    unit: str,
    colours: Mapping[str, int] | None = None,
) -> list[LaneSegment]:
    segments, begin = [], 0.0
    for op in ops:
        value = read(op)
        if value is not None:
            shown = f"{format_short(op.ms)} ms" if colours else f"{format_short(value)} {unit}"
            tip = f"{op.name} ({op.kind}): {shown}; {op.readings} readings, {op.method.value}"
            colour = colours.get(op.name, 9) if colours is not None else 0
            vague = colours is None and op.method is OpMethod.GROUP
            segments.append(LaneSegment(begin, begin + op.ms, value, tip, colour, vague))
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
    for label, runs in sorted(long_runs.items(), key=lambda item: natural_sort_key(item[0])):
        for title, unit, read in _QUANTITIES:
            series = [
                Series(data.names[run.phone], run.phone, data.colours[run.phone], marks)
                for run, telemetry in runs
                if (marks := _thin_out(read(telemetry), data.names[run.phone], unit))
            ]
            if series:
                points = [mark for item in series for mark in item.marks]
                x = axis_from_zero("minutes", [mark.x for mark in points])
                y = build_axis(unit, [mark.y for mark in points], zero=unit not in ("°C",))
                svg = draw_chart(title, series, x, y, dots=False)
                cards.append(Card(title, label, svg, runs[0][0].case.name))
    return Section(
        "traces",
        "Long runs over time",
        "Temperature of the hottest CPU zone, clock of the fastest cores, power of the phone and "
        "step time, during the first valid long run of each phone.",
        cards=tuple(cards),
        note="" if cards else "There is no valid long run with telemetry.",
    )


Points = list[tuple[float, float]]  # minutes and value


def _max_readings(telemetry: Telemetry, wanted: Callable[[str], bool], scale: float) -> Points:
    """Return the highest reading among some nodes at every sample."""
    t_ns = telemetry.readings.t_ns
    columns = [column for path, column in telemetry.readings.columns.items() if wanted(path)]
    points = []
    for index, moment_ns in enumerate(t_ns):
        values = [v for c in columns if index < len(c) and isinstance(v := c[index], int)]
        if values:
            points.append(((moment_ns - t_ns[0]) / 6e10, max(values) * scale))
    return points


def _temperature(telemetry: Telemetry) -> Points:
    return _max_readings(
        telemetry, lambda path: "/thermal_zone" in path and path.endswith("/temp"), 1e-3
    )


def _clock(telemetry: Telemetry) -> Points:
    return _max_readings(telemetry, lambda path: path.endswith("/scaling_cur_freq"), 1e-6)


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
    ("Temperature", "°C", _temperature),
    ("Clock", "GHz", _clock),
    ("Power", "W", _power),
    ("Step time", "ms", _step_times),
)


def _thin_out(points: Points, name: str, unit: str) -> list[Mark]:
    """Reduce a curve to as many points as a screen shows: the median of every piece."""
    if not points:
        return []
    size = -(-len(points) // POINTS_MAX)
    pieces = [points[start : start + size] for start in range(0, len(points), size)]
    return [
        Mark(median(x for x, _ in piece), median(y for _, y in piece), f"{name}, {unit}")
        for piece in pieces
    ]
