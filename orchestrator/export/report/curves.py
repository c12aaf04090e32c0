"""The sections that draw curves: cores and clocks, batch sizes, processors, operations, traces."""

from collections.abc import Callable, Sequence
from itertools import groupby
from statistics import median

from markupsafe import Markup

from orchestrator.analysis.pareto import Choice, choices_of, front_of
from orchestrator.export.report.draw import (
    Axis,
    Bar,
    Mark,
    Part,
    Series,
    axis_of,
    chart,
    ranked,
    short,
    stacked,
)
from orchestrator.export.report.scene import Card, Scene, Section, Told, unit_of
from orchestrator.export.trace import slopes
from orchestrator.nouns import MeasuredRun
from workloads.condition import Protocol
from workloads.fault import Refused
from workloads.measure import METRICS
from workloads.timeline import OpRow, join, telemetry_of

BATCH_METRICS = {
    "step_ms": "latency",
    "samples_per_s": "throughput",
    "peak_rss_mb": "memory",
    "energy_per_sample_mj": "energy",
}
POINTS_MAX = 240
OPS_SHOWN = 8
NOTICED = 0.005  # share of a step


def pareto(scene: Scene) -> Section:
    """Time against energy over cores and clocks: what is worth choosing."""
    cards = []
    for case, group in groupby(choices_of(scene.runs), key=lambda choice: choice.case):
        choices = list(group)
        if len(choices) < 2:
            continue
        x = axis_of("ms a step", [c.time_ms for c in choices], log=True)
        y = axis_of("mJ a sample", [c.energy_mj for c in choices], log=True)
        series = [_choices(scene, phone, choices) for phone in scene.names]
        front = front_of(choices)
        line = Series("the front", "", 9, [_mark(c) for c in front], dashed=True)
        points = chart("time and energy", [s for s in series if s.marks], x, y, joined=False)
        drawn = chart("time and energy", [line, *(s for s in series if s.marks)], x, y)
        best = ", ".join(f"{scene.names[c.phone]} {c.setting}" for c in front[:4])
        text = f"On the front, the quickest first: {best}{' …' if len(front) > 4 else ''}"
        cards.append(Card(case, text, drawn if len(front) > 1 else points, case))
    settings = {choice.setting for choice in choices_of(scene.runs)}
    few = "" if len(settings) > 1 else " Only one set of cores and clocks was run."
    return Section(
        "pareto",
        "Time and energy",
        f"Each point is a phone with a set of cores and a clock; nothing lies both left of and "
        f"below the dashed front.{few}",
        cards=tuple(cards),
        note="" if cards else "No two settings have both a time and an energy.",
    )


def _choices(scene: Scene, phone: str, choices: Sequence[Choice]) -> Series:
    marks = [_mark(choice) for choice in choices if choice.phone == phone]
    return Series(scene.names[phone], phone, scene.colours[phone], marks, dashed=True)


def _mark(choice: Choice) -> Mark:
    says = (
        f"{choice.model}, {choice.setting}: {short(choice.time_ms)} ms a step, "
        f"{short(choice.energy_mj)} mJ a sample ({choice.provenance})"
    )
    return Mark(choice.time_ms, choice.energy_mj, says)


def batches(scene: Scene) -> Section:
    """Latency, throughput, memory and energy over the batch size."""
    cards = []
    for title, own in _by_batch(scene.of(Protocol.COLD) or scene.runs):
        for metric, word in BATCH_METRICS.items():
            series = _batch_series(scene, own, metric)
            if not any(len(each.marks) > 1 for each in series):
                continue
            kind = METRICS[metric]
            marks = [mark for each in series for mark in each.marks]
            sizes = sorted({mark.x for mark in marks})
            across = axis_of("batch size", sizes, log=True)
            x = Axis(across.title, across.low, across.high, True, tuple(sizes))
            y = axis_of(unit_of(metric), [mark.y for mark in marks], log=True)
            better = "more" if kind.higher_is_better else "less"
            text = f"{metric}, {unit_of(metric)}; {better} is better"
            cards.append(Card(f"{title}: {word}", text, chart(metric, series, x, y), title))
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
    return sorted(groups.items())


def _batch_series(scene: Scene, runs: Sequence[MeasuredRun], metric: str) -> list[Series]:
    found = []
    for phone in scene.names:
        values: dict[int, list[float]] = {}
        made = ""
        for run in runs:
            if run.phone == phone and metric in run.metrics:
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


def processors(scene: Scene) -> Section:
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


def _gpu_ratios(scene: Scene) -> Markup | None:
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


def _copies(scene: Scene) -> list[Card]:
    """A card for every cell in which some phone spends a noticeable part of a step on copies."""
    cells: dict[str, list[tuple[str, str, list[Part]]]] = {}
    noticed: set[str] = set()
    for (phone, label), own in _cells(scene, "copy_share"):
        share = median(run.metrics["copy_share"].value for run in own)
        made = own[0].metrics["copy_share"].provenance
        says = f"{scene.names[phone]}, {label}: {share:.1%} of a step only moves data ({made})"
        parts = [Part("compute", 1 - share, 0, says), Part("copy", share, 1, says)]
        cells.setdefault(label, []).append((f"{scene.names[phone]}: {share:.1%}", phone, parts))
        noticed |= {label} if share >= NOTICED else set()
    legend = (("compute", 0), ("copy", 1))
    return [
        Card(label, "share of a step that only moves data", stacked(label, rows), legend=legend)
        for label, rows in cells.items()
        if label in noticed
    ]


def _cells(scene: Scene, metric: str) -> list[tuple[tuple[str, str], list[MeasuredRun]]]:
    groups: dict[tuple[str, str], list[MeasuredRun]] = {}
    for run in scene.runs:
        if run.valid and metric in run.metrics:
            label = f"{run.case.label}, {run.condition.label}"
            groups.setdefault((run.phone, label), []).append(run)
    return sorted(groups.items(), key=lambda item: (item[0][1], scene.names[item[0][0]]))


def operations(scene: Scene) -> Section:
    """Where the time of a step goes, operation by operation."""
    cells: dict[str, list[tuple[MeasuredRun, tuple[OpRow, ...]]]] = {}
    seen: set[tuple[str, str]] = set()
    for run, told in scene.told:
        label = f"{run.case.label}, {run.condition.label}"
        ops = _ops(told)
        if ops and run.valid and (run.phone, label) not in seen:
            seen.add((run.phone, label))
            cells.setdefault(label, []).append((run, ops))
    cards = [_op_card(scene, label, own) for label, own in sorted(cells.items())]
    return Section(
        "operations",
        "Where a step goes",
        "Share of each operation in the traced steps of a run; one run a phone.",
        cards=tuple(cards),
        note="" if cards else "No run was traced.",
    )


def _ops(told: Told) -> tuple[OpRow, ...]:
    try:
        return join(telemetry_of(told))
    except Refused:
        return ()


def _op_card(
    scene: Scene, label: str, own: Sequence[tuple[MeasuredRun, tuple[OpRow, ...]]]
) -> Card:
    total: dict[str, float] = {}
    for _, ops in own:
        for op in ops:
            total[op.name] = total.get(op.name, 0.0) + op.share
    shown = sorted(total, key=lambda name: -total[name])[:OPS_SHOWN]
    rows = []
    for run, ops in sorted(own, key=lambda item: scene.names[item[0].phone]):
        by_name = {op.name: op for op in ops}
        parts = [
            Part(name, by_name[name].share, at, _op_tip(scene, run, by_name[name]))
            for at, name in enumerate(shown)
            if name in by_name
        ]
        rest = 1 - sum(part.share for part in parts)
        if rest > 0.001:
            parts.append(Part("others", rest, 9, f"all other operations: {rest:.1%}"))
        rows.append((scene.names[run.phone], run.phone, parts))
    legend = (*((name, at) for at, name in enumerate(shown)), ("others", 9))
    case = own[0][0].case.label
    return Card(case, own[0][0].condition.label, stacked(label, rows), case, legend)


def _op_tip(scene: Scene, run: MeasuredRun, op: OpRow) -> str:
    energy = "" if op.energy_mj is None else f", {short(op.energy_mj)} mJ"
    headline = run.metrics.get(run.condition.headline)
    made = headline.provenance if headline else "source unknown"
    return (
        f"{scene.names[run.phone]}, {op.name} ({op.kind}): {short(op.ms)} ms, "
        f"{op.share:.1%}{energy} ({made})"
    )


def traces(scene: Scene) -> Section:
    """Temperature, clock, power and step time over a long run."""
    longest: dict[str, list[tuple[MeasuredRun, Told]]] = {}
    seen: set[tuple[str, str]] = set()
    for run, told in scene.told:
        label = f"{run.case.label}, {run.condition.label}"
        if (
            run.valid
            and run.condition.protocol is not Protocol.COLD
            and (label, run.phone) not in seen
        ):
            seen.add((label, run.phone))
            longest.setdefault(label, []).append((run, told))
    cards = []
    for label, own in sorted(longest.items()):
        for title, unit, read in _QUANTITIES:
            series = [
                Series(scene.names[run.phone], run.phone, scene.colours[run.phone], marks)
                for run, told in own
                if (marks := _thinned(read(told), scene.names[run.phone], unit))
            ]
            if series:
                points = [mark for each in series for mark in each.marks]
                x = axis_of("minutes", [mark.x for mark in points])
                y = axis_of(unit, [mark.y for mark in points], zero=unit not in ("°C",))
                drawn = chart(title, series, x, y, dots=False)
                cards.append(Card(title, label, drawn, own[0][0].case.label))
    return Section(
        "traces",
        "Ten minutes, as they passed",
        "Temperature of the hottest CPU zone, clock of the fastest cores, power of the phone and "
        "time of a step over the first valid long run of each phone.",
        cards=tuple(cards),
        note="" if cards else "There is no valid long run with telemetry.",
    )


Points = list[tuple[float, float]]  # minutes and value


def _readings(told: Told, wanted: Callable[[str], bool], scale: float) -> Points:
    """The highest reading among some nodes at every moment."""
    readings = told.get("readings", {})
    moments = readings.get("t_ns", [])
    columns = [
        column
        for path, column in zip(
            readings.get("paths", []), readings.get("columns", []), strict=False
        )
        if wanted(path)
    ]
    points = []
    for at, t_ns in enumerate(moments):
        values = [c[at] for c in columns if at < len(c) and isinstance(c[at], int)]
        if values:
            points.append(((t_ns - moments[0]) / 6e10, max(values) * scale))
    return points


def _temperature(told: Told) -> Points:
    return _readings(told, lambda path: "/thermal_zone" in path and path.endswith("/temp"), 1e-3)


def _clock(told: Told) -> Points:
    return _readings(told, lambda path: path.endswith("/scaling_cur_freq"), 1e-6)


def _power(told: Told) -> Points:
    course = told.get("courses", {}).get("energy_j")
    if not course or not course["t_ns"]:
        return []
    start = course["t_ns"][0]
    return [((t - start) / 6e10, watts) for t, watts in slopes(course["t_ns"], course["total"])]


def _steps(told: Told) -> Points:
    windows = told.get("windows", {})
    moments = windows.get("t_ns", [])
    lists = zip(moments, windows.get("n", []), windows.get("ns", []), strict=False)
    return [((t - moments[0]) / 6e10, ns / n / 1e6) for t, n, ns in lists if n]


_QUANTITIES: tuple[tuple[str, str, Callable[[Told], Points]], ...] = (
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
