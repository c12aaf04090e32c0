"""The sections that draw what settings do: cores and clocks, batch sizes, processors."""

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
    axis_of,
    chart,
    ranked,
    short,
    stacked,
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
NOTICED = 0.005  # share of a step


def pareto(scene: ReportData) -> Section:
    """Time against energy over cores and clocks: what is worth choosing."""
    cards = []
    found = operating_points(scene.runs)
    for case, group in groupby(found, key=lambda choice: choice.case):
        choices = list(group)
        if len(choices) < 2:
            continue
        x = axis_of("ms a step", [c.time_ms for c in choices], log=True)
        y = axis_of("mJ a sample", [c.energy_mj for c in choices], log=True)
        series = [_choices(scene, phone, choices) for phone in scene.names]
        front = pareto_front(choices)
        line = Series("the front", "", 9, [_mark(c) for c in front], dashed=True)
        drawn = chart("time and energy", [line, *(s for s in series if s.marks)], x, y)
        best = ", ".join(f"{scene.names[c.phone]} {c.setting}" for c in front[:4])
        text = f"On the front, the quickest first: {best}{' …' if len(front) > 4 else ''}"
        cards.append(Card(case, text, drawn, choices[0].workload))
    settings = {choice.setting for choice in found}
    few = "" if len(settings) > 1 else " Only one set of cores and clocks was run."
    return Section(
        "pareto",
        "Time and energy",
        f"Each point is a phone with a set of cores and a clock; nothing lies both left of and "
        f"below the dashed front.{few}{_unranked(scene)}",
        cards=tuple(cards),
        note="" if cards else "No two settings have both a time and an energy.",
    )


def _unranked(scene: ReportData) -> str:
    """Which phones' energies are too coarse to be drawn."""
    coarse = {
        scene.names[run.phone]
        for run in scene.runs_of(Protocol.COLD)
        if run.valid and ENERGY in run.metrics and not run.metrics[ENERGY].rankable
    }
    if not coarse:
        return ""
    return f" Left out where their gauge was too slow for the run: {', '.join(sorted(coarse))}."


def _choices(scene: ReportData, phone: str, choices: Sequence[OperatingPoint]) -> Series:
    marks = [_mark(choice) for choice in choices if choice.phone == phone]
    return Series(scene.names[phone], phone, scene.colours[phone], marks, joined=False)


def _mark(choice: OperatingPoint) -> Mark:
    says = (
        f"{choice.model}, {choice.setting}: {short(choice.time_ms)} ms a step, "
        f"{short(choice.energy_mj)} mJ a sample ({choice.provenance})"
    )
    return Mark(choice.time_ms, choice.energy_mj, says)


def batches(scene: ReportData) -> Section:
    """Latency, throughput, memory and energy over the batch size."""
    cards = []
    for title, own in _by_batch(scene.runs_of(Protocol.COLD) or scene.runs):
        for metric, word in BATCH_METRICS.items():
            series = _batch_series(scene, own, metric)
            if not any(len(each.marks) > 1 for each in series):
                continue
            kind = METRICS[metric]
            marks = [mark for each in series for mark in each.marks]
            sizes = sorted({mark.x for mark in marks})
            across = axis_of("batch size", sizes, log=True)
            x = PlotAxis(across.title, across.low, across.high, True, tuple(sizes))
            y = axis_of(unit_of(metric), [mark.y for mark in marks], log=True)
            better = "more" if kind.higher_is_better else "less"
            text = f"{metric}, {unit_of(metric)}; {better} is better"
            drawn = chart(metric, series, x, y)
            cards.append(Card(f"{title}: {word}", text, drawn, own[0].case.name))
    return Section(
        "batches",
        "Batch size",
        "Latency, throughput, memory and energy as the batch grows.",
        cards=tuple(cards),
        note="" if cards else "No workload was run with two batch sizes.",
    )


def _by_batch(runs: Sequence[MeasuredRun]) -> list[tuple[str, list[MeasuredRun]]]:
    groups: dict[str, list[MeasuredRun]] = {}
    for run in runs:
        rest = " ".join(f"{k}={v}" for k, v in run.case.parameters.items() if k != "batch_size")
        if run.valid and "batch_size" in run.case.parameters:
            backend = "" if run.case.backend == "cpu" else f" {run.case.backend}"
            title = f"{run.case.name} {rest}".strip() + f"{backend}, {run.condition.label}"
            groups.setdefault(title, []).append(run)
    return sorted(groups.items(), key=lambda group: natural_sort_key(group[0]))


def _batch_series(scene: ReportData, runs: Sequence[MeasuredRun], metric: str) -> list[Series]:
    found = []
    for phone in scene.names:
        values: dict[int, list[float]] = {}
        made = ""
        for run in runs:
            if run.phone == phone and metric in run.metrics and run.metrics[metric].rankable:
                size = run.case.parameters["batch_size"]
                values.setdefault(size, []).append(run.metrics[metric].value)
                made = str(run.metrics[metric].provenance)
        marks = [
            Mark(
                float(size),
                median(own),
                f"{scene.names[phone]}, batch {size}: "
                f"{short(median(own))} {unit_of(metric)} ({made})",
            )
            for size, own in sorted(values.items())
            if median(own) > 0
        ]
        if marks:
            found.append(Series(scene.names[phone], phone, scene.colours[phone], marks))
    return found


def processors(scene: ReportData) -> Section:
    """CPU against GPU where both ran the same work, and how much of a step only moves data."""
    ratios = _gpu_ratios(scene)
    cards = []
    if ratios:
        cards.append(Card("CPU time over GPU time", "more than 1: the GPU is faster", ratios))
    copies = _copies(scene)
    notes = [] if ratios else ["No work was run both on the CPU and on a GPU: there is no ratio."]
    notes += [] if copies else ["No step is known to spend half a percent on moving data."]
    return Section(
        "processors",
        "Processors",
        "The same work by the CPU and by a GPU backend, and how much of a step computes or only "
        "moves data.",
        cards=(*cards, *copies),
        note=" ".join(notes),
    )


def _gpu_ratios(scene: ReportData) -> Markup | None:
    times: dict[tuple[str, str], dict[str, list[float]]] = {}
    made: dict[str, str] = {}
    for run in scene.runs:
        if run.valid and "step_ms" in run.metrics:
            label = run.case.model_copy(update={"backend": "cpu"}).label
            cell = times.setdefault((run.phone, f"{label}, {run.condition.label}"), {})
            cell.setdefault(run.case.backend, []).append(run.metrics["step_ms"].value)
            made[run.phone] = str(run.metrics["step_ms"].provenance)
    bars = []
    for (phone, label), own in sorted(times.items()):
        for backend in sorted(own.keys() - {"cpu"}) if "cpu" in own else ():
            ratio = median(own["cpu"]) / median(own[backend])
            name = f"{scene.names[phone]}, {label}"
            cpu, gpu = short(median(own["cpu"])), short(median(own[backend]))
            says = f"{name}: {cpu} ms on the CPU, {gpu} ms by {backend} ({made[phone]})"
            colour, shown = scene.colours[phone], f"{ratio:.2f} ×"
            bars.append(Bar(name, phone, colour, ratio, None, None, shown, backend, says))
    return ranked("CPU over GPU", bars) if bars else None


def _copies(scene: ReportData) -> list[Card]:
    """A card for every cell in which some phone spends a noticeable part of a step on copies."""
    cells: dict[str, list[tuple[str, str, list[BarPart]]]] = {}
    noticed: set[str] = set()
    for (phone, label), own in _cells(scene, "copy_share"):
        share = median(run.metrics["copy_share"].value for run in own)
        made = own[0].metrics["copy_share"].provenance
        says = f"{scene.names[phone]}, {label}: {share:.1%} of a step only moves data ({made})"
        parts = [BarPart("compute", 1 - share, 0, says), BarPart("copy", share, 1, says)]
        cells.setdefault(label, []).append((f"{scene.names[phone]}: {share:.1%}", phone, parts))
        noticed |= {label} if share >= NOTICED else set()
    legend = (("compute", 0), ("copy", 1))
    return [
        Card(label, "share of a step that only moves data", stacked(label, rows), legend=legend)
        for label, rows in cells.items()
        if label in noticed
    ]


def _cells(scene: ReportData, metric: str) -> list[tuple[tuple[str, str], list[MeasuredRun]]]:
    groups: dict[tuple[str, str], list[MeasuredRun]] = {}
    for run in scene.runs:
        if run.valid and metric in run.metrics:
            label = f"{run.case.label}, {run.condition.label}"
            groups.setdefault((run.phone, label), []).append(run)
    return sorted(
        groups.items(), key=lambda item: (natural_sort_key(item[0][1]), scene.names[item[0][0]])
    )
