"""Report sections on time against energy, and on processors."""

from itertools import groupby
from statistics import median

from orchestrator.analysis.measurements import MeasuredRun
from orchestrator.analysis.pareto import ENERGY, OperatingPoint, operating_points, pareto_front
from orchestrator.export.report.charts import (
    Bar,
    BarPart,
    Mark,
    Panel,
    Series,
    draw_bars,
    draw_chart,
    draw_stacked_bars,
)
from orchestrator.export.report.report_data import (
    Card,
    ReportData,
    Section,
    readable_unit,
    same_clocks_text,
)
from orchestrator.export.report.svg import Drawing, build_axis, format_short
from workloads.protocol.condition import Protocol
from workloads.text import natural_sort_key

COPY_SHARE_MIN = 0.005  # of a step; smaller shares are not shown


def pareto_section(data: ReportData) -> Section:
    """Show time and energy of cores and clocks, with their Pareto front."""
    cards = []
    all_points = operating_points(data.runs)
    for case, group in groupby(all_points, key=lambda point: point.case):
        points = list(group)
        if len(points) < 2:
            continue
        time, time_factor = readable_unit("ms", (point.time_ms for point in points))
        energy, energy_factor = readable_unit("mJ", (point.energy_mj for point in points))
        marks = {
            point: _mark(point, point.time_ms * time_factor, point.energy_mj * energy_factor)
            for point in points
        }
        x = build_axis(f"step time, {time}", [mark.x for mark in marks.values()], log=True)
        y = build_axis(f"energy per sample, {energy}", [m.y for m in marks.values()], log=True)
        front = pareto_front(points)
        line = Series("Pareto front", "", 9, [marks[point] for point in front])
        shown = [line]
        for phone in data.names:
            own = [mark for point, mark in marks.items() if point.phone == phone]
            name, colour = data.names[phone], data.colours[phone]
            shown += [Series(name, phone, colour, own, joined=False)] if own else []
        drawing = draw_chart("time and energy", [Panel("", shown)], x, y)
        best = ", ".join(f"{data.names[point.phone]} {point.setting}" for point in front[:4])
        text = f"On the Pareto front, fastest first: {best}{' …' if len(front) > 4 else ''}"
        cards.append(Card(case, text, drawing, points[0].workload))
    settings = {point.setting for point in all_points}
    same = same_clocks_text(data.same_clocks)
    few = "" if len(settings) > 1 else " Only one combination of cores and clock was run."
    return Section(
        "pareto",
        "Time and energy",
        "Each point is a phone with a set of cores and a clock; no point is both left of and below "
        f"the dashed Pareto front.{few}{_coarse_text(data)}{f' {same}' if same else ''}",
        cards=tuple(cards),
        note="" if cards else "No two settings have both a time and an energy.",
    )


def _coarse_text(data: ReportData) -> str:
    """Name the phones whose energies are too coarse to be shown."""
    coarse = {
        data.names[run.phone]
        for run in data.runs_of(Protocol.COLD)
        if run.counts(ENERGY) and not run.metrics[ENERGY].rankable
    }
    if not coarse:
        return ""
    names = ", ".join(sorted(coarse))
    return f" Left out, because the gauge was too slow for the run: {names}."


def _mark(point: OperatingPoint, x: float, y: float) -> Mark:
    tip = (
        f"{point.model}, {point.setting}: {format_short(point.time_ms)} ms per step, "
        f"{format_short(point.energy_mj)} mJ per sample ({point.provenance})"
    )
    return Mark(x, y, tip, source=str(point.provenance))


def processor_section(data: ReportData) -> Section:
    """Compare CPU and GPU where both ran the same, and show the share of copying."""
    ratios = _gpu_ratios(data)
    cards = []
    if ratios:
        cards.append(Card("CPU time / GPU time", "above 1: the GPU is faster", ratios))
    copies = _copy_cards(data)
    notes = [] if ratios else ["No workload was run both on the CPU and on a GPU."]
    notes += [] if copies else ["No step is known to spend half a percent on moving data."]
    return Section(
        "processors",
        "Processors",
        "The same workload on the CPU and on a GPU backend, and the share of a step that only "
        "moves data.",
        cards=(*cards, *copies),
        note=" ".join(notes),
    )


def _gpu_ratios(data: ReportData) -> Drawing | None:
    times: dict[tuple[str, str], dict[str, list[float]]] = {}
    sources: dict[str, str] = {}
    for run in data.runs:
        if run.counts("step_ms"):
            label = run.case.model_copy(update={"backend": "cpu"}).label
            cell = times.setdefault((run.phone, f"{label}, {run.condition.label}"), {})
            cell.setdefault(run.case.backend, []).append(run.metrics["step_ms"].value)
            sources[run.phone] = str(run.metrics["step_ms"].provenance)
    bars = []
    for (phone, label), by_backend in sorted(times.items()):
        medians = {backend: median(values) for backend, values in by_backend.items()}
        for backend in sorted(medians.keys() - {"cpu"}) if "cpu" in medians else ():
            ratio = medians["cpu"] / medians[backend]
            name = f"{data.names[phone]}, {label}"
            cpu, gpu = format_short(medians["cpu"]), format_short(medians[backend])
            tip = f"{name}: {cpu} ms on the CPU, {gpu} ms with {backend} ({sources[phone]})"
            colour, shown = data.colours[phone], f"{ratio:.2f} ×"
            bars.append(
                Bar(name, phone, colour, ratio, None, None, shown, backend, tip, sources[phone])
            )
    return draw_bars("CPU time / GPU time", bars, "CPU time / GPU time") if bars else None


def _copy_cards(data: ReportData) -> list[Card]:
    """Return a card for every cell in which some phone spends a visible share on copies."""
    cells: dict[str, list[tuple[str, str, list[BarPart]]]] = {}
    visible: set[str] = set()
    for (phone, label), runs in _runs_by_cell(data, "copy_share"):
        share = median(run.metrics["copy_share"].value for run in runs)
        source = runs[0].metrics["copy_share"].provenance
        tip = f"{data.names[phone]}, {label}: {share:.1%} of a step only moves data ({source})"
        parts = [BarPart("compute", 1 - share, 0, tip), BarPart("copy", share, 2, tip)]
        cells.setdefault(label, []).append((f"{data.names[phone]}: {share:.1%}", phone, parts))
        visible |= {label} if share >= COPY_SHARE_MIN else set()
    text = "share of a step that only moves data"
    return [
        Card(label, text, draw_stacked_bars(label, rows, "share of the step"))
        for label, rows in cells.items()
        if label in visible
    ]


def _runs_by_cell(data: ReportData, metric: str) -> list[tuple[tuple[str, str], list[MeasuredRun]]]:
    groups: dict[tuple[str, str], list[MeasuredRun]] = {}
    for run in data.runs:
        if run.counts(metric):
            label = f"{run.case.label}, {run.condition.label}"
            groups.setdefault((run.phone, label), []).append(run)
    return sorted(
        groups.items(), key=lambda item: (natural_sort_key(item[0][1]), data.names[item[0][0]])
    )
