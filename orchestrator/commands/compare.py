"""`farm compare`: compares two sides row by row, or all sweeps over time."""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import (
    connect,
    count_words,
    is_wide,
    json_option,
    lab_option,
    print_json,
    print_paragraph,
    print_summary,
    print_table,
    wide_option,
)
from orchestrator.commands.completion import complete_sweep
from orchestrator.commands.exit_codes import THRESHOLD_EXCEEDED
from workloads.cli_options import value_option
from workloads.command_output import say
from workloads.protocol.faults import InvalidRequest
from workloads.protocol.same_clocks import same_clock_texts
from workloads.units import count_text

if TYPE_CHECKING:
    from orchestrator.app.compare_results import (
        Comparison,
        ComparisonTable,
        FailureComparison,
        MetricHistory,
    )
    from orchestrator.app.lab_connection import LabConnection

FAILING = "failing"  # in --fail-on: the attempts of B fail more often
VERDICTS = ("faster", "slower", "same", "unclear")
HEADINGS = (
    *("WHAT", "A", "B", "UNIT", "B/A", "95% INTERVAL", "P (HOLM)", "RUNS"),
    *("SHOWS FROM", "VERDICT", "HOLDS FOR"),
)
LESS_IMPORTANT = (10, 6, 3, 7, 5, 8)  # columns, the least important first
HIDE = [HEADINGS[column] for column in LESS_IMPORTANT]
TREND_HEADINGS = (
    *("PHONE", "WHAT", "METRIC", "SWEEPS", "RUNS", "MEDIAN", "SINCE", "CHANGE", "SOURCE"),
)
TREND_HIDE = ("SOURCE", "METRIC", "SWEEPS", "SINCE", "RUNS")
STARTS_SHOWN = 6
TREND_FAIL_ON = ("", "slower", "faster")  # the last changes that --fail-on may name


@click.command()
@click.argument("sides", metavar="A [B]", nargs=-1, shell_complete=complete_sweep)
@lab_option
@click.option(
    "--metric",
    default="",
    help="Metric to compare (see 'farm help metrics'). Default: the protocol's headline metric.",
)
@value_option(
    "--by",
    type=click.Choice(["cell", "phone", "trial"]),
    default="cell",
    help="Print one row per cell, phone or trial.",
)
@value_option("--margin", default="2%", help="Differences smaller than this count as equal.")
@click.option(
    "--split-half", is_flag=True, help="Compare odd with even blocks of every phone of sweep A."
)
@click.option(
    "--over-time",
    is_flag=True,
    help="Show every phone and workload over all sweeps instead, with the times of changes; A is "
    "then KEY=VALUE,... and selects rows.",
)
@click.option(
    "--allow-mixed",
    is_flag=True,
    help="Allow comparing results with different sources, control levels or energy grades, and "
    "training with inference.",
)
@click.option(
    "--fail-on",
    default="",
    metavar="VERDICTS",
    help="Exit with 9 on these verdicts: slower, unclear, slower:5% for at least 5%, or failing "
    "for attempts of B that fail more often.",
)
@wide_option
@json_option
def compare(  # noqa: PLR0913, PLR0917 (click passes options one by one)
    sides: tuple[str, ...],
    lab_folder: Path,
    metric: str,
    by: str,
    margin: str,
    split_half: bool,
    over_time: bool,
    allow_mixed: bool,
    fail_on: str,
    as_json: bool,
) -> int:
    """Compare side B with side A: sweeps, phones or conditions.

    A side is SWEEP, SWEEP:KEY=VALUE,... or KEY=VALUE,... of the sweep that the other side names.
    Keys are phone, workload, cores, freq, protocol, batch_size and so on. The ratio is B over A.

    \b
    Examples:
      farm compare before after --fail-on slower:5%
      farm compare smoke:batch_size=32 batch_size=64
      farm compare smoke --split-half
      farm compare --over-time workload=lenet --fail-on slower
    """
    from orchestrator.app import compare_results as results

    if over_time:
        if len(sides) > 1 or split_half:
            raise InvalidRequest("--over-time takes at most one KEY=VALUE,... and no side")
        return _print_trends(connect(lab_folder), "".join(sides), metric, fail_on, as_json)
    exceeds = _parse_fail_on(fail_on)
    if len(sides) != (1 if split_half else 2):
        raise InvalidRequest("compare takes two sides, A and B, or one sweep with --split-half")
    request = results.CompareRequest(metric, results.GroupBy(by), parse_share(margin), allow_mixed)
    lab = connect(lab_folder)
    if split_half:
        table = results.check_split_half(lab, sides[0], request)
    else:
        table = results.compare_results(lab, sides[0], sides[1], request)
    if as_json:
        print_json(_json_document(sides, table))
    else:
        _print(sides, table)
    return THRESHOLD_EXCEEDED if exceeds(table) else 0


def parse_share(text: str) -> float:
    """Read a share: 2% or 0.02."""
    try:
        share = float(text.removesuffix("%")) / 100 if text.endswith("%") else float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise InvalidRequest(f"'{text}' is not a share; write a percentage, e.g. 2%")
    return share


def _parse_fail_on(text: str) -> "Callable[[ComparisonTable], bool]":
    """Read which verdicts make the command fail."""
    from orchestrator.app.compare_results import FailureVerdict

    limits: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        verdict, _, share = part.partition(":")
        if verdict not in (*VERDICTS, FAILING):
            raise InvalidRequest(
                f"--fail-on: '{verdict}' is not a verdict; use {', '.join((*VERDICTS, FAILING))}"
            )
        limits[verdict] = parse_share(share) if share else 0.0

    def exceeds(table: "ComparisonTable") -> bool:
        failures = table.failures
        fails_more = failures is not None and failures.verdict is FailureVerdict.MORE
        return (FAILING in limits and fails_more) or any(
            row.verdict in limits and abs(row.ratio - 1) >= limits[row.verdict]
            for row in table.rows
        )

    return exceeds


def _print(sides: tuple[str, ...], table: "ComparisonTable") -> None:
    """Print the rows, the overall result, and what was left out."""
    from orchestrator.app.compare_results import exclusions_text

    what = (
        "A: odd blocks of each trial, B: even blocks"
        if len(sides) == 1
        else f"A (baseline): {sides[0]}, B: {sides[1]}"
    )
    verdicts = count_words(_verdict_text(row) for row in table.rows)
    print_summary(f"{count_text(len(table.rows), 'row')}: {verdicts}. {what}.")
    _print_rows([_cells(row) for row in (*table.rows, *table.overall)])
    reasons = Counter(row.reason for row in table.rows if row.reason is not None)
    notes = [
        f"unclear in {count} of {len(table.rows)}: {reason.text}"
        for reason, count in reasons.items()
    ]
    for row in table.overall:
        name, ratio = row.worst
        notes.append(f"{row.label}: geometric mean {row.ratio:.3f}, worst {ratio:.3f} ({name})")
    sources = ", ".join(sorted({str(row.provenance) for row in table.rows}))
    notes.append(
        f"{what}; differences within ±{table.margin:.1%} count as equal; source: {sources}"
    )
    if table.starts_c:
        notes.append(f"hottest CPU zone at the start: {_starts_text(table.starts_c)}")
    if any(row.shows for row in table.rows):
        notes.append("SHOWS FROM: the smallest difference that these runs show in 4 of 5 cases")
    if table.failures is not None:
        notes.append(_failure_text(table.failures))
    if table.left_out:
        notes.append(f"left out: {exclusions_text(table)}")
    notes += [
        f"{text}: A and B differ there only by chance"
        for text in same_clock_texts(table.same_clocks)
    ]
    for note in notes:
        say(note, err=True)


def _failure_text(found: "FailureComparison") -> str:
    """How often attempts failed on both sides, and whether the difference is shown."""
    counts = [f"{n} of {of}" for n, of in zip(found.failed, found.attempts, strict=True)]
    if not any(found.failed):
        return f"no attempt failed (A: {counts[0]}, B: {counts[1]})"
    p = "<0.001" if found.p < 0.001 else f"{found.p:.3f}"
    return f"failed attempts: A {counts[0]}, B {counts[1]}: {found.verdict.text} (p {p})"


def _print_rows(rows: list[list[str]]) -> None:
    """Print the rows; what is the same in all of them is said once."""
    shown = list(range(len(HEADINGS)))
    if len(rows) > 1 and sys.stdout.isatty() and not is_wide():
        shown = [i for i in shown if i not in LESS_IMPORTANT or len({row[i] for row in rows}) > 1]
    print_table([HEADINGS[i] for i in shown], [[row[i] for i in shown] for row in rows], HIDE)
    same = [f"{name} {rows[0][i]}" for i, name in enumerate(HEADINGS) if i not in shown]
    if same:
        print_paragraph(f"the same in all rows: {', '.join(same)}; -w for all")


def _starts_text(starts_c: Sequence[tuple[str, float, float]]) -> str:
    shown = [f"{phone} {low:.1f} to {high:.1f} °C" for phone, low, high in starts_c[:STARTS_SHOWN]]
    more = len(starts_c) - STARTS_SHOWN
    return ", ".join(shown) + (f" and {count_text(more, 'more phone')}" if more > 0 else "")


def _cells(row: "Comparison") -> list[str]:
    from workloads.protocol.metrics import METRICS
    from workloads.units import format_ms

    has_interval = row.low is not None and row.high is not None
    return [
        row.label,
        *(format_ms(value) for value in row.medians),
        METRICS[row.metric.partition(".")[0]].unit,
        f"{row.ratio:.3f}",
        f"{row.low:.3f} .. {row.high:.3f}" if has_interval else "-",
        "-" if row.p_holm is None else f"{row.p_holm:.3f}" if row.p_holm >= 0.001 else "<0.001",
        f"{row.runs[0]}+{row.runs[1]}",
        "-" if row.shows is None else f"{row.shows:.1%}",
        _verdict_text(row),
        str(row.scope),
    ]


def _verdict_text(row: "Comparison") -> str:
    """The verdict; of a simulation, what the model says and whether its error allows it."""
    if row.model_verdict is None:
        return str(row.verdict)
    if row.verdict == row.model_verdict:
        return f"simulated: {row.verdict}"
    return f"{row.verdict} (the model: {row.model_verdict})"


def _json_document(sides: tuple[str, ...], table: "ComparisonTable") -> dict[str, object]:
    def as_json(row: "Comparison") -> dict[str, object]:
        return {**asdict(row), "provenance": row.provenance.model_dump(mode="json")}

    return {
        "sides": list(sides),
        "margin": table.margin,
        "rows": [as_json(row) for row in table.rows],
        "overall": [as_json(row) for row in table.overall],
        "left_out": dict(table.left_out),
        "failures": asdict(table.failures) if table.failures else None,
        "same_clocks": [asdict(item) for item in table.same_clocks],
        "starts_c": [list(start) for start in table.starts_c],
    }


def _print_trends(
    lab: "LabConnection", filter_text: str, metric: str, fail_on: str, as_json: bool
) -> int:
    """Print every phone and workload over all sweeps; return the exit code."""
    from orchestrator.app.compare_results import list_trends

    if fail_on not in TREND_FAIL_ON:
        raise InvalidRequest("--fail-on: with --over-time, use slower or faster")
    histories = list_trends(lab, filter_text, metric)
    if as_json:
        print_json([asdict(history) for history in histories])
    else:
        _print_histories(histories)
    last = [history.changes[-1].verdict for history in histories if history.changes]
    return THRESHOLD_EXCEEDED if fail_on in last else 0


def _print_histories(histories: "list[MetricHistory]") -> None:
    from orchestrator.app.compare_results import RUNS_PER_SIDE, median
    from workloads.units import format_ms

    too_few = [one for one in histories if len(one.values) < 2 * RUNS_PER_SIDE]
    changed = sum(bool(history.changes) for history in histories)
    short = f"{len(too_few)} with fewer than {2 * RUNS_PER_SIDE} runs"
    print_summary(
        f"{len(histories)} combinations of phone and workload: {changed} changed, "
        f"{len(histories) - changed - len(too_few)} steady, {short}."
    )
    rows = []
    is_short = sys.stdout.isatty() and not is_wide() and len(too_few) < len(histories)
    for history in histories:
        if is_short and history in too_few:
            continue
        row = [
            f"{history.model} ({history.phone})",
            f"{history.case}, {history.condition}",
            history.metric,
            history.sweeps,
            len(history.values),
        ]
        source = history.kind.source
        if not history.changes:
            enough = len(history.values) >= 2 * RUNS_PER_SIDE
            change = "steady" if enough else f"fewer than {2 * RUNS_PER_SIDE} runs"
            since = f"{history.times[0]:%Y-%m-%d %H:%M}"
            rows.append([*row, format_ms(median(history.values)), since, change, source])
        for step in history.changes:
            change = f"{step.verdict}: {step.ratio - 1:+.1%} (p {max(step.p, 0.001):.3f})"
            since = f"{step.started_at:%Y-%m-%d %H:%M}"
            rows.append([*row, format_ms(step.after), since, change, source])
    print_table(TREND_HEADINGS, rows, TREND_HIDE)
    if is_short and too_few:
        print_paragraph(f"not listed: {short}; -w lists them")
