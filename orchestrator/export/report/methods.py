"""The sections that say what everything rests on: verdicts, conditions, where numbers come from."""

from collections import Counter
from collections.abc import Iterable, Sequence

from orchestrator.analysis.measurements import MeasuredRun
from orchestrator.analysis.verdict_counts import count_verdicts
from orchestrator.export.report.report_data import Card, ReportData, Section
from orchestrator.export.report.svg import BarPart, stacked
from workloads.protocol.condition import Condition
from workloads.protocol.metrics import SimulationModel, Source, metric_kind
from workloads.text import safe_text
from workloads.units import format_duration


def validity(scene: ReportData) -> Section:
    """Which runs count, and why the others do not."""
    found = count_verdicts(scene.runs)
    parts = [("valid", found.valid, 2), ("suspect", found.suspect, 4), ("void", found.void, 3)]
    rows = []
    for phone in scene.names:
        own = count_verdicts(run for run in scene.runs if run.phone == phone)
        counts = (("valid", own.valid, 2), ("suspect", own.suspect, 4), ("void", own.void, 3))
        shares = [
            BarPart(word, count, colour, f"{scene.names[phone]}: {count} {word}")
            for word, count, colour in counts
            if count
        ]
        rows.append((f"{scene.names[phone]}: {own.valid} of {own.total}", phone, shares))
    legend = tuple((word, colour) for word, count, colour in parts if count)
    card = Card("Runs by verdict", "valid of all", stacked("verdicts", rows), legend=legend)
    return Section(
        "validity",
        "Which runs count",
        f"{found.valid} valid, {found.suspect} suspect and {found.void} void of {found.total} "
        "runs. "
        "Only valid runs are compared; a run that broke its condition is void and was made again.",
        cards=(card,) if rows else (),
        headings=("Verdict", "Reason", "Runs") if found.reasons else (),
        rows=tuple((r.validity.value, r.text, str(r.runs)) for r in found.reasons),
        note="" if found.reasons or not found.total else "No run was set aside.",
    )


def conditions(scene: ReportData) -> Section:
    """What every phone was held to."""
    known = {run.condition.digest: run.condition for run in scene.runs}
    ordered = sorted(known.values(), key=lambda condition: (condition.label, condition.digest))
    return Section(
        "conditions",
        "Conditions",
        "What every phone was held to, checked over the whole of every run.",
        headings=("Condition", "Start", "Cooling", "Battery", "Length"),
        rows=tuple(_terms(condition) for condition in ordered),
        note="" if ordered else "There are no runs.",
    )


def _terms(condition: Condition) -> tuple[str, ...]:
    launch = condition.launch
    return (
        condition.label,
        _start(condition),
        f"waits up to {format_duration(condition.cool_wait_max_s)}",
        f"at least {condition.battery_min_pct} %",
        f"{launch.warmup} steps to warm up, then at least {launch.steps} steps and "
        f"{format_duration(launch.seconds)}",
    )


def _start(condition: Condition) -> str:
    if condition.start_temp_max_c is None:
        return "at any temperature"
    slope = condition.start_slope_max_c_per_min
    return f"at most {condition.start_temp_max_c:g} °C, changing by at most {slope:g} °C a minute"


def provenance(scene: ReportData) -> Section:
    """Where every family of numbers comes from, and of which phones."""
    lines: dict[tuple[str, str, str], Counter[str]] = {}
    for run in scene.runs:
        for name, metric in run.metrics.items():
            kind = metric_kind(name)
            family = kind.family if kind else "other"
            key = (family, str(metric.provenance), metric.grade)
            lines.setdefault(key, Counter())[scene.names[run.phone]] += 1
    every = set(scene.names.values())
    return Section(
        "provenance",
        "Where the numbers come from",
        "Every figure carries its source; pointing at a mark shows it. Grades say how an energy "
        "was found. Blocks were run in a random order that the sweep's seed decides.",
        headings=("Family", "Source", "Grade", "Figures", "Phones"),
        rows=tuple(
            (*key, str(of.total()), "all" if len(of) == len(every) else ", ".join(sorted(of)))
            for key, of in sorted(lines.items())
        ),
        note="" if lines else "There are no figures.",
    )


def banner(runs: Iterable[MeasuredRun]) -> str:
    """Say before anything else that numbers were simulated, and how good the simulation is."""
    made = [metric.provenance for run in runs for metric in run.metrics.values()]
    simulated = [each for each in made if each.source is Source.SIMULATED]
    if not simulated:
        return ""
    which = "These numbers" if len(simulated) == len(made) else "Some of these numbers"
    text = f"{which} come from a simulation; they are not measurements of any phone."
    errors = [each.error_rel for each in simulated if each.error_rel is not None]
    if errors:
        text += f" Fitted models err by up to {max(errors):.0%}; the intervals contain that error."
    if any(each.model is SimulationModel.EXTRAPOLATED for each in simulated):
        text += " Extrapolated models have an unknown error, and nothing is claimed from them."
    return text


def period(runs: Sequence[MeasuredRun]) -> str:
    """From when to when the runs were made."""
    if not runs:
        return "no runs"
    first = min(run.started_at for run in runs)
    last = max(run.ended_at for run in runs)
    return safe_text(f"{first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} {last:%Z}")
