"""The sections that look inside single runs: where a step goes, and how ten minutes passed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

from orchestrator.analysis.measurements import MeasuredRun
from orchestrator.export.perfetto_trace import slopes_per_second
from orchestrator.export.report.report_data import Card, ReportData, Section
from orchestrator.export.report.svg import (
    BarPart,
    Mark,
    Series,
    axis_of,
    chart,
    short,
    span_of,
    stacked,
)
from workloads.protocol.condition import Protocol
from workloads.protocol.telemetry import ENERGY, OpRow, Telemetry, op_rows
from workloads.text import natural_sort_key

POINTS_MAX = 240
OPS_SHOWN = 8


def operations(scene: ReportData) -> Section:
    """Where the time of a step goes, operation by operation: a card a case."""
    cells: dict[str, dict[str, dict[str, tuple[MeasuredRun, tuple[OpRow, ...]]]]] = {}
    for run, telemetry in scene.telemetry:
        ops = op_rows(telemetry)
        if ops and run.valid:
            conditions = cells.setdefault(run.case.label, {})
            conditions.setdefault(run.condition.label, {}).setdefault(run.phone, (run, ops))
    # cores and clocks hardly move the shares: the condition that most phones were under is shown
    ordered = [
        (
            case,
            list(
                min(conditions.items(), key=lambda c: (-len(c[1]), natural_sort_key(c[0])))[
                    1
                ].values()
            ),
        )
        for case, conditions in sorted(cells.items(), key=lambda cell: natural_sort_key(cell[0]))
    ]
    traced: dict[str, list[tuple[OpRow, ...]]] = {}
    for _, own in ordered:
        traced.setdefault(own[0][0].case.name, []).extend(ops for _, ops in own)
    colours = {workload: _op_colours(steps) for workload, steps in traced.items()}
    cards = [_op_card(scene, label, own, colours[own[0][0].case.name]) for label, own in ordered]
    return Section(
        "operations",
        "Where a step goes",
        "Share of each operation in the traced steps of a run; one run a phone, and of each case "
        "one condition.",
        cards=tuple(cards),
        note="" if cards else "No run was traced.",
    )


def _op_colours(traced: Iterable[Sequence[OpRow]]) -> dict[str, int]:
    """The operations of a workload that take most, each with one colour in all its cards."""
    total: dict[str, float] = {}
    for ops in traced:
        for op in ops:
            total[op.name] = total.get(op.name, 0.0) + op.share
    most = sorted(total, key=lambda name: -total[name])[:OPS_SHOWN]
    return {name: at for at, name in enumerate(most)}


def _op_card(
    scene: ReportData,
    label: str,
    own: Sequence[tuple[MeasuredRun, tuple[OpRow, ...]]],
    colours: Mapping[str, int],
) -> Card:
    rows = []
    for run, ops in sorted(own, key=lambda item: scene.names[item[0].phone]):
        by_name = {op.name: op for op in ops}
        parts = [
            BarPart(name, by_name[name].share, colour, _op_tip(scene, run, by_name[name]))
            for name, colour in colours.items()
            if name in by_name
        ]
        rest = 1 - sum(part.share for part in parts)
        if rest > 0.001:
            parts.append(BarPart("others", rest, 9, f"all other operations: {rest:.1%}"))
        rows.append((scene.names[run.phone], run.phone, parts))
    legend = (*colours.items(), ("others", 9))
    case = own[0][0].case
    return Card(case.label, own[0][0].condition.label, stacked(label, rows), case.name, legend)


def _op_tip(scene: ReportData, run: MeasuredRun, op: OpRow) -> str:
    energy = "" if op.energy_mj is None else f", {short(op.energy_mj)} mJ"
    headline = run.metrics.get(run.condition.headline)
    made = headline.provenance if headline else "source unknown"
    return (
        f"{scene.names[run.phone]}, {op.name} ({op.kind}): {short(op.ms)} ms, "
        f"{op.share:.1%}{energy} ({made})"
    )


def traces(scene: ReportData) -> Section:
    """Temperature, clock, power and step time over a long run."""
    longest: dict[str, list[tuple[MeasuredRun, Telemetry]]] = {}
    seen: set[tuple[str, str]] = set()
    for run, telemetry in scene.telemetry:
        label = f"{run.case.label}, {run.condition.label}"
        if (
            run.valid
            and run.condition.protocol is not Protocol.COLD
            and (label, run.phone) not in seen
        ):
            seen.add((label, run.phone))
            longest.setdefault(label, []).append((run, telemetry))
    cards = []
    for label, own in sorted(longest.items(), key=lambda item: natural_sort_key(item[0])):
        for title, unit, read in _QUANTITIES:
            series = [
                Series(scene.names[run.phone], run.phone, scene.colours[run.phone], marks)
                for run, telemetry in own
                if (marks := _thinned(read(telemetry), scene.names[run.phone], unit))
            ]
            if series:
                points = [mark for each in series for mark in each.marks]
                x = span_of("minutes", [mark.x for mark in points])
                y = axis_of(unit, [mark.y for mark in points], zero=unit not in ("°C",))
                drawn = chart(title, series, x, y, dots=False)
                cards.append(Card(title, label, drawn, own[0][0].case.name))
    return Section(
        "traces",
        "Ten minutes, as they passed",
        "Temperature of the hottest CPU zone, clock of the fastest cores, power of the phone and "
        "time of a step over the first valid long run of each phone.",
        cards=tuple(cards),
        note="" if cards else "There is no valid long run with telemetry.",
    )


Points = list[tuple[float, float]]  # minutes and value


def _readings(telemetry: Telemetry, wanted: Callable[[str], bool], scale: float) -> Points:
    """The highest reading among some nodes at every moment."""
    t_ns = telemetry.readings.t_ns
    columns = [column for path, column in telemetry.readings.columns.items() if wanted(path)]
    points = []
    for index, moment_ns in enumerate(t_ns):
        values = [v for c in columns if index < len(c) and isinstance(v := c[index], int)]
        if values:
            points.append(((moment_ns - t_ns[0]) / 6e10, max(values) * scale))
    return points


def _temperature(telemetry: Telemetry) -> Points:
    return _readings(
        telemetry, lambda path: "/thermal_zone" in path and path.endswith("/temp"), 1e-3
    )


def _clock(telemetry: Telemetry) -> Points:
    return _readings(telemetry, lambda path: path.endswith("/scaling_cur_freq"), 1e-6)


def _power(telemetry: Telemetry) -> Points:
    series = telemetry.series.get(ENERGY)
    if series is None or not series.t_ns:
        return []
    start_ns = series.t_ns[0]
    return [((t_ns - start_ns) / 6e10, watts) for t_ns, watts in slopes_per_second(series)]


def _steps(telemetry: Telemetry) -> Points:
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
    ("Time of a step", "ms", _steps),
)


def _thinned(points: Points, name: str, unit: str) -> list[Mark]:
    """A curve with no more points than a screen shows: the median of every stretch."""
    if not points:
        return []
    size = -(-len(points) // POINTS_MAX)
    pieces = [points[at : at + size] for at in range(0, len(points), size)]
    return [
        Mark(median(x for x, _ in piece), median(y for _, y in piece), f"{name}, {unit}")
        for piece in pieces
    ]
