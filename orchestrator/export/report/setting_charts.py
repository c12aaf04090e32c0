"""Report sections on settings: cores and clocks, batch sizes, processors."""

from collections.abc import Sequence
from itertools import groupby
from statistics import median

from markupsafe import Markup

from orchestrator.analysis.measurements import MeasuredRun
from orchestrator.analysis.pareto import ENERGY, OperatingPoint, operating_points, pareto_front
from orchestrator.export.report.report_data import Card, ReportData, Section, unit_of
from orchestrator.export.report.svg import (
    Bar,
    BarPart,
    Mark,
    PlotAxis,
    Series,
    build_axis,
    draw_bars,
    draw_chart,
    draw_stacked_bars,
    format_short,
)
from workloads.protocol.condition import Protocol
from workloads.protocol.metrics import METRICS
from workloads.text import natural_sort_key

BATCH_METRICS = {
    "step_ms": "latency",
    "samples_per_s": "throughput",
    "peak_rss_mb": "memory",
    "energy_per_sample_mj": "energy",
}
COPY_SHARE_MIN = 0.005  # of a step; smaller shares are not shown


def pareto_section(data: ReportData) -> Section:
    """Show time and energy of cores and clocks, with their Pareto front."""
    cards = []
    all_points = operating_points(data.runs)
    for case, group in groupby(all_points, key=lambda point: point.case):
        points = list(group)
        if len(points) < 2:
            continue
        x = build_axis("ms per step", [point.time_ms for point in points], log=True)
        y = build_axis("mJ per sample", [point.energy_mj for point in points], log=True)
        series = [_phone_points(data, phone, points) for phone in data.names]
        front = pareto_front(points)
        line = Series("Pareto front", "", 9, [_mark(point) for point in front], dashed=True)
        svg = draw_chart("time and energy", [line, *(s for s in series if s.marks)], x, y)
        best = ", ".join(f"{data.names[point.phone]} {point.setting}" for point in front[:4])
        text = f"On the Pareto front, fastest first: {best}{' …' if len(front) > 4 else ''}"
        cards.append(Card(case, text, svg, points[0].workload))
    settings = {point.setting for point in all_points}
    few = "" if len(settings) > 1 else " Only one combination of cores and clock was run."
    return Section(
        "pareto",
        "Time and energy",
        "Each point is a phone with a set of cores and a clock; no point is both left of and below "
        f"the dashed Pareto front.{few}{_coarse_text(data)}",
        cards=tuple(cards),
        note="" if cards else "No two settings have both a time and an energy.",
    )


def _coarse_text(data: ReportData) -> str:
    """Name the phones whose energies are too coarse to be shown."""
    coarse = {
        data.names[run.phone]
        for run in data.runs_of(Protocol.COLD)
        if run.valid and ENERGY in run.metrics and not run.metrics[ENERGY].rankable
    }
    if not coarse:
        return ""
    names = ", ".join(sorted(coarse))
    return f" Left out, because the gauge was too slow for the run: {names}."


def _phone_points(data: ReportData, phone: str, points: Sequence[OperatingPoint]) -> Series:
    marks = [_mark(point) for point in points if point.phone == phone]
    return Series(data.names[phone], phone, data.colours[phone], marks, joined=False)


def _mark(point: OperatingPoint) -> Mark:
    tip = (
        f"{point.model}, {point.setting}: {format_short(point.time_ms)} ms per step, "
        f"{format_short(point.energy_mj)} mJ per sample ({point.provenance})"
    )
    return Mark(point.time_ms, point.energy_mj, tip)


def batch_section(data: ReportData) -> Section:
    """Show latency, throughput, memory and energy by batch size."""
    cards = []
    for title, runs in _group_by_workload(data.runs_of(Protocol.COLD) or data.runs):
        for metric, word in BATCH_METRICS.items():
            series = _batch_series(data, runs, metric)
            if not any(len(item.marks) > 1 for item in series):
                continue
            marks = [mark for item in series for mark in item.marks]
            sizes = sorted({mark.x for mark in marks})
            across = build_axis("batch size", sizes, log=True)
            x = PlotAxis(across.title, across.low, across.high, True, tuple(sizes))
            y = build_axis(unit_of(metric), [mark.y for mark in marks], log=True)
            better = "higher" if METRICS[metric].higher_is_better else "lower"
            text = f"{metric}, {unit_of(metric)}; {better} is better"
            svg = draw_chart(metric, series, x, y)
            cards.append(Card(f"{title}: {word}", text, svg, runs[0].case.name))
    return Section(
        "batches",
        "Batch size",
        "Latency, throughput, memory and energy by batch size.",
        cards=tuple(cards),
        note="" if cards else "No workload was run with two batch sizes.",
    )


def _group_by_workload(runs: Sequence[MeasuredRun]) -> list[tuple[str, list[MeasuredRun]]]:
    groups: dict[str, list[MeasuredRun]] = {}
    for run in runs:
        rest = " ".join(f"{k}={v}" for k, v in run.case.parameters.items() if k != "batch_size")
        if run.valid and "batch_size" in run.case.parameters:
            backend = "" if run.case.backend == "cpu" else f" {run.case.backend}"
            title = f"{run.case.name} {rest}".strip() + f"{backend}, {run.condition.label}"
            groups.setdefault(title, []).append(run)
    return sorted(groups.items(), key=lambda group: natural_sort_key(group[0]))


def _batch_series(data: ReportData, runs: Sequence[MeasuredRun], metric: str) -> list[Series]:
    series = []
    for phone in data.names:
        by_size: dict[int, list[float]] = {}
        source = ""
        for run in runs:
            if run.phone == phone and metric in run.metrics and run.metrics[metric].rankable:
                size = run.case.parameters["batch_size"]
                by_size.setdefault(size, []).append(run.metrics[metric].value)
                source = str(run.metrics[metric].provenance)
        marks = [
            Mark(
                float(size),
                median(values),
                f"{data.names[phone]}, batch {size}: "
                f"{format_short(median(values))} {unit_of(metric)} ({source})",
            )
            for size, values in sorted(by_size.items())
            if median(values) > 0
        ]
        if marks:
            series.append(Series(data.names[phone], phone, data.colours[phone], marks))
    return series


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


def _gpu_ratios(data: ReportData) -> Markup | None:
    times: dict[tuple[str, str], dict[str, list[float]]] = {}
    sources: dict[str, str] = {}
    for run in data.runs:
        if run.valid and "step_ms" in run.metrics:
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
            bars.append(Bar(name, phone, colour, ratio, None, None, shown, backend, tip))
    return draw_bars("CPU time / GPU time", bars) if bars else None


def _copy_cards(data: ReportData) -> list[Card]:
    """Return a card for every cell in which some phone spends a visible share on copies."""
    cells: dict[str, list[tuple[str, str, list[BarPart]]]] = {}
    visible: set[str] = set()
    for (phone, label), runs in _runs_by_cell(data, "copy_share"):
        share = median(run.metrics["copy_share"].value for run in runs)
        source = runs[0].metrics["copy_share"].provenance
        tip = f"{data.names[phone]}, {label}: {share:.1%} of a step only moves data ({source})"
        parts = [BarPart("compute", 1 - share, 0, tip), BarPart("copy", share, 1, tip)]
        cells.setdefault(label, []).append((f"{data.names[phone]}: {share:.1%}", phone, parts))
        visible |= {label} if share >= COPY_SHARE_MIN else set()
    legend = (("compute", 0), ("copy", 1))
    text = "share of a step that only moves data"
    return [
        Card(label, text, draw_stacked_bars(label, rows), legend=legend)
        for label, rows in cells.items()
        if label in visible
    ]


def _runs_by_cell(data: ReportData, metric: str) -> list[tuple[tuple[str, str], list[MeasuredRun]]]:
    groups: dict[tuple[str, str], list[MeasuredRun]] = {}
    for run in data.runs:
        if run.valid and metric in run.metrics:
            label = f"{run.case.label}, {run.condition.label}"
            groups.setdefault((run.phone, label), []).append(run)
    return sorted(
        groups.items(), key=lambda item: (natural_sort_key(item[0][1]), data.names[item[0][0]])
    )
