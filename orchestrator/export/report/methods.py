"""Report sections on what was left out, conditions and data sources."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.analysis.failure_groups import group_failures
from orchestrator.analysis.measurements import MeasuredRun
from orchestrator.analysis.rank_statement import CLAIM_RUNS_MIN
from orchestrator.analysis.set_clocks import condition_table, in_order
from orchestrator.analysis.trial_series import trial_series
from orchestrator.analysis.variance_levels import VarianceLevels, variance_levels
from orchestrator.analysis.verdict_counts import count_verdicts, judgement_text
from orchestrator.export.report.report_data import ReportData, Section, same_clocks_text
from workloads.protocol.condition import REST, Condition
from workloads.protocol.faults import FarmError, FaultKind
from workloads.protocol.metrics import Source, metric_kind
from workloads.protocol.reason_advice import REASON_ADVICE
from workloads.text import list_text, safe_text
from workloads.units import count_text, format_duration

PHONES_NAMED = 6


@dataclass(frozen=True)
class LeftOutRow:
    """Why some runs do not count, on which phones, and what to do about it."""

    verdict: str
    runs: int
    reason: str
    phones: str
    remedy: str


def left_out_section(data: ReportData) -> Section:
    """Show which runs do not count, why, on which phones, and what to do."""
    rows = tuple(
        (row.verdict, str(row.runs), row.reason, row.phones, row.remedy)
        for row in left_out_rows(data)
    )
    runs = sum(not run.valid for run in data.runs) + len(data.failures)
    return Section(
        "left-out",
        f"What was left out ({runs})",
        "Only valid runs count. A run that broke its condition is void and was repeated."
        f"{_as_sentence(judgement_text(data.runs))}",
        headings=("Verdict", "Runs", "Reason", "Phones", "What to do"),
        rows=rows,
        note="" if rows else "Every run counts.",
    )


def _as_sentence(text: str) -> str:
    return f" {text[0].upper()}{text[1:]}." if text else ""


def left_out_rows(data: ReportData) -> list[LeftOutRow]:
    """Return why some runs do not count, the most frequent reason first."""
    verdicts = count_verdicts(data.runs)
    rows = []
    for reason in verdicts.reasons:
        phones = {
            data.names[run.phone]
            for run in data.runs
            if run.verdict.validity is reason.validity
            and (reason.code in {item.code for item in run.verdict.reasons} or not reason.code)
        }
        remedy = REASON_ADVICE.get(reason.code, "") if reason.code else ""
        rows.append(
            LeftOutRow(
                *(reason.validity.value, reason.runs, reason.text),
                list_text(sorted(phones), PHONES_NAMED),
                remedy.replace("`", ""),
            )
        )
    for group in group_failures(data.failures):
        named = {data.names[phone] for phone in group.phones}
        phones_text = list_text(sorted(named), PHONES_NAMED)
        text = f"{group.name}: {group.text}"
        rows.append(LeftOutRow("failed", group.runs, text, phones_text, _fault_advice(group.kind)))
    return rows


def _fault_advice(kind: FaultKind | None) -> str:
    """Return what the class of a fault advises: the text after the semicolon."""
    classes = list(FarmError.__subclasses__())
    for one in classes:
        classes += one.__subclasses__()
    found = next((one for one in classes if one.kind is kind), None)
    return (found.__doc__ or "").partition("; ")[2] if found is not None else ""


def repeat_section(data: ReportData) -> Section:
    """Show the sweep files, the software, and the commands that repeat the measurement."""
    runners = sorted({run.facts.runner[:12] for run in data.runs if run.facts.runner})
    rows = [
        (
            sweep.name,
            sweep.id,
            str(sweep.seed),
            f"Farmhand {data.version}; runner {', '.join(runners) or 'unknown'}",
            f"farm sweep submit {sweep.name}.yaml; farm watch {sweep.name}; "
            f"farm report {sweep.name}",
        )
        for sweep in data.sweeps
    ]
    return Section(
        "repeat",
        "How to repeat this",
        "Save the sweep file, start a lab with 'farm up', and run the commands. The seed gives the "
        "random order of the runs; without a seed in the file, it is derived from the content.",
        headings=("Sweep", "Id", "Seed", "Software", "Commands"),
        rows=tuple(rows),
        files=tuple((f"{sweep.name}.yaml", sweep.source) for sweep in data.sweeps),
        note="" if rows else "This report does not belong to a single sweep.",
    )


def variance_section(data: ReportData) -> Section:
    """Show how much results vary between runs, blocks, occasions and phones of one model."""
    known = [trial for trial in trial_series(data.runs) if len(trial.values) > 1]
    names = {phone: [t for t in known if t.phone == phone] for phone in data.names}
    rows = [
        (data.names[phone], *_variance_cells(variance_levels(trials), phones=False))
        for phone, trials in names.items()
        if trials
    ]
    if len(rows) > 1:
        rows.append(("all phones", *_variance_cells(variance_levels(known), phones=True)))
    return Section(
        "variance",
        "How much results vary",
        "Standard deviations of the headline metric, by level. Runs of one block share the "
        "effect of that block, blocks of one occasion (a day without a long pause) the effect of "
        "that day. Phones are compared with others of the same model.",
        headings=("Phone", "Runs", "Run", "Block", "Occasion", "Phone of one model"),
        rows=tuple(rows),
        note="" if rows else "No trial has two valid runs.",
    )


def _variance_cells(levels: VarianceLevels, phones: bool) -> tuple[str, ...]:
    shown = (
        (levels.run, "unknown"),
        (levels.block, "needs two cells in several blocks"),
        (levels.occasion, "one occasion"),
        (levels.phone if phones else None, "needs two phones of one model" if phones else ""),
    )
    return (
        str(levels.runs),
        *(reason if part is None else f"{part:.2%}" for part, reason in shown),
    )


def conditions_section(data: ReportData) -> Section:
    """Show the conditions of the runs."""
    known = {run.condition.digest: run.condition for run in data.runs}
    ordered = sorted(known.values(), key=lambda condition: (condition.label, condition.digest))
    return Section(
        "conditions",
        "Conditions",
        "The requested conditions; each was checked over the whole run.",
        headings=("Condition", "Start", "Cooling", "Battery", "Length"),
        rows=tuple(_condition_row(condition) for condition in ordered),
        note="" if ordered else "There are no runs.",
    )


def clocks_section(data: ReportData) -> Section:
    """Show the clocks that were set on every phone."""
    table = condition_table(in_order(data.runs))
    rows = [(data.names[phone], *values) for phone, values in table.rows]
    return Section(
        "clocks",
        "Clocks",
        "The clock that was set on each phone, in GHz, one value per cluster of the cores, with "
        "the numbers of these cores and the highest CPU temperature at the start. A level "
        "is the nearest step that a phone has, so two levels can be the same clock. "
        + same_clocks_text(data.same_clocks),
        headings=("Phone", *table.columns),
        rows=tuple(dict.fromkeys(rows)),
        note="" if rows else "No run set the clocks of its phone.",
    )


def _condition_row(condition: Condition) -> tuple[str, ...]:
    launch = condition.launch
    return (
        condition.label,
        _start_text(condition),
        f"waits at most {format_duration(condition.cool_wait_max_s)}",
        f"at least {condition.battery_min_pct} %",
        f"{launch.warmup} warm-up steps, then at least {launch.steps} steps and "
        f"{format_duration(launch.seconds)}",
    )


def _start_text(condition: Condition) -> str:
    if condition.start_temp_max_c is None:
        return "at any temperature"
    slope = condition.start_slope_max_c_per_min
    if condition.start_temp_max_c == REST:
        limit = f"{condition.above_rest_k:g} K above the phone's rest"
    else:
        limit = f"{condition.start_temp_max_c:g} °C"
    return f"at most {limit}, changing by at most {slope:g} °C per minute"


def provenance_section(data: ReportData) -> Section:
    """Show the source of every family of metrics, by phone."""
    counts: dict[tuple[str, str, str], Counter[str]] = {}
    for run in (each for each in data.runs if each.valid):
        for name, metric in run.metrics.items():
            kind = metric_kind(name)
            family = kind.family if kind else "other"
            key = (family, str(metric.provenance), metric.grade)
            counts.setdefault(key, Counter())[data.names[run.phone]] += 1
    all_names = set(data.names.values())
    return Section(
        "provenance",
        "Where the numbers come from",
        "Every value has a source, which the tooltip of its mark shows. The grade of an energy is "
        "the kind of meter that it comes from.",
        headings=("Family", "Source", "Grade", "Values", "Phones"),
        rows=tuple(
            (
                *key,
                str(phones.total()),
                "all" if len(phones) == len(all_names) else ", ".join(sorted(phones)),
            )
            for key, phones in sorted(counts.items())
        ),
        note="" if counts else "There are no values.",
    )


def caveat(runs: Sequence[MeasuredRun]) -> str:
    """Say in a line what keeps the numbers from being a proof."""
    valid = [run for run in runs if run.valid]
    sources = [metric.provenance for run in valid for metric in run.metrics.values()]
    simulated = [source for source in sources if source.source is Source.SIMULATED]
    texts = []
    errors = [source.error_rel for source in simulated if source.error_rel is not None]
    if any(source.error_unknown for source in simulated):
        texts.append("The error of the simulation is unknown: this is no claim about real phones.")
    elif errors:
        texts.append(f"The simulation errs by up to {max(errors):.0%}.".replace("%", " %"))
    fewest = min(Counter(run.trial for run in valid).values(), default=0)
    if 0 < fewest < CLAIM_RUNS_MIN:
        each = count_text(fewest, "run")
        texts.append(f"With {each} per cell a lead is a hint; {CLAIM_RUNS_MIN} can prove it.")
    return " ".join(texts)


def source_words(runs: Sequence[MeasuredRun]) -> str:
    """Return where the numbers come from, for the head of the page and for every figure."""
    sources = {metric.provenance.source for run in runs for metric in run.metrics.values()}
    words = {
        Source.PHONE: "measured on phones",
        Source.HOST: "measured on a computer",
        Source.SIMULATED: "simulated phones",
    }
    return " and ".join(words[source] for source in Source if source in sources)


def period_text(runs: Sequence[MeasuredRun]) -> str:
    """Return the days on which the runs were measured."""
    if not runs:
        return "no runs"
    first = min(run.started_at for run in runs)
    last = max(run.ended_at for run in runs)
    begin, end = (f"{time.day} {time:%b %Y}" for time in (first, last))
    return safe_text(begin if begin == end else f"{begin} to {end}")
