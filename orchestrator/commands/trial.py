"""`farm trial`: lists trials, and shows the reports on one of them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import (
    connect,
    json_option,
    lab_option,
    print_items,
    print_json,
    wide_option,
)
from orchestrator.commands.completion import complete_phone, complete_sweep
from workloads.cli_options import value_option
from workloads.command_output import say
from workloads.protocol.reason_advice import REASON_ADVICE
from workloads.protocol.verdict import Validity
from workloads.text import safe_text
from workloads.units import count_text, format_duration, step_time_text

if TYPE_CHECKING:
    from orchestrator.app.lab_connection import LabConnection
    from orchestrator.app.read_trials import AttemptReport, RunChart, TrialSummary

BARS = "▁▂▃▄▅▆▇█"
FLAT = 0.02  # smaller variations are drawn as a line
STATES = ("queued", "leased", "done", "failed", "skipped", "blocked", "cancelled")
VERDICTS = ("suspect", "void")
NO_REPORT = "no attempt has reported yet"
_TRIAL = click.argument("prefix", metavar="TRIAL")


@click.group()
def trial() -> None:
    """List the trials of a sweep, and show one."""


@trial.command("list")
@click.argument("name", metavar="SWEEP", shell_complete=complete_sweep)
@click.option(
    "--state",
    type=click.Choice((*STATES, *VERDICTS)),
    help="List only trials with a run in this state or of this verdict.",
)
@click.option(
    "--phone",
    help="List only trials of this phone (serial or prefix).",
    shell_complete=complete_phone,
)
@value_option(
    "--limit", type=click.IntRange(1, 100_000), default=200, help="Maximum number of trials."
)
@wide_option
@lab_option
@json_option
def list_all(
    name: str, state: str | None, phone: str | None, limit: int, lab_folder: Path, as_json: bool
) -> int:
    """List the trials of a SWEEP.

    Example: farm trial list smoke --state suspect
    """
    from orchestrator.app.read_trials import RunState, Validity, list_trials

    verdict = Validity(state) if state in VERDICTS else None
    wanted = RunState(state) if state and verdict is None else None
    trials = list_trials(connect(lab_folder), name, limit + 1, wanted, phone, verdict)
    shown = trials[:limit]
    rows = [(item.id, item.phone, item.label, _counts(item), item.note) for item in shown]
    if len(trials) > limit and not as_json:
        click.echo(f"There are more than {limit} trials; use --limit to list more.", err=True)
    headings = ("TRIAL", "PHONE", "WHAT", "RUNS", "LAST NOTE")
    counts = Counter[str]()
    for item in shown:
        counts.update(item.runs)
    runs = ", ".join(f"{count} {state}" for state, count in counts.most_common())
    summary = f"{count_text(len(shown), 'trial')}; runs: {runs}."
    if_empty = f"no trial of {safe_text(name)} matches"
    return print_items(shown, as_json, headings, rows, if_empty, summary, ("LAST NOTE",))


@trial.command()
@_TRIAL
@lab_option
@json_option
def show(prefix: str, lab_folder: Path, as_json: bool) -> None:
    """Show one TRIAL: its runs, results, verdicts and faults.

    Step time, clock, temperature and load of the newest run, and of runs that do not count, are
    plotted over time; ^ marks the time of a reason.

    Example: farm trial show tr-7e318dc5
    """
    from orchestrator.app.read_trials import show_trial

    details = show_trial(connect(lab_folder), prefix, draw=True)
    summary = details.summary
    if as_json:
        reports = [
            item.report.model_dump() | {"judgement": asdict(item.judgement)}
            for item in details.reports
        ]
        charts = [asdict(chart) if chart else None for chart in details.charts]
        print_json(asdict(summary) | {"reports": reports, "charts": charts})
        return
    say(safe_text(f"{summary.id} of {summary.sweep} on {summary.phone}: {summary.label}", 400))
    say(f"runs: {_counts(summary)}")
    for item, chart in zip(details.reports, details.charts, strict=True):
        for line in (
            *_result_lines(item, summary.headline),
            *(_chart_lines(chart) if chart else ()),
        ):
            _print_line(line)
    for line in _advice_lines(details.reports):
        _print_line(line)
    if not details.reports:
        click.echo(NO_REPORT, err=True)


def print_attempts(lab: "LabConnection", prefix: str) -> None:
    """Print the stages of each attempt at a trial, with times."""
    from orchestrator.app.read_trials import show_trial

    details = show_trial(lab, prefix)
    for item in details.reports:
        for line in _attempt_lines(item):
            _print_line(line)
    if not details.reports:
        click.echo(NO_REPORT, err=True)


def _print_line(line: str) -> None:
    """Print a line with its indentation, without control characters."""
    indent = len(line) - len(line.lstrip(" "))
    say(" " * indent + safe_text(line, 1200))


def _counts(summary: "TrialSummary") -> str:
    return ", ".join(f"{count} {state}" for state, count in sorted(summary.runs.items()))


def _result_lines(item: "AttemptReport", headline: str) -> Iterator[str]:
    metric = next((each for each in item.report.metrics if each.name == headline), None)
    value = metric and f"{step_time_text(headline, metric.value)} ({metric.provenance})"
    result = f"  {value}" if value else ""
    judged = f", judged with {count_text(count, 'run')}" if (count := item.judgement.runs) else ""
    yield f"block {item.block + 1}, attempt {item.attempt}: {item.status}{result}{judged}"
    yield from _problem_lines(item)


def _chart_lines(chart: "RunChart") -> Iterator[str]:
    """Draw the quantities of a run above its time axis, with the moments of its reasons."""
    for row in chart.rows:
        known = [value for value in row.values if value is not None]
        low, high = min(known), max(known)
        span = max(high - low, FLAT * abs(high)) or 1.0
        bars = "".join(
            " " if value is None else BARS[round((value - low) / span * (len(BARS) - 1))]
            for value in row.values
        )
        ends = " to ".join(dict.fromkeys((f"{low:.4g}", f"{high:.4g}")))
        yield f"    {row.name:<6}{bars}  {ends} {row.unit}"
    width = len(chart.rows[0].values)
    axis = f"0 s{f'{chart.seconds:.1f} s':>{width - 3}}"
    yield f"    {'':<6}{axis}"
    if chart.moments:
        marks = [" "] * width
        for at_s, _ in chart.moments:
            marks[chart.column_of(at_s)] = "^"
        when = ", ".join(f"({number}) at {at_s:.1f} s" for at_s, number in chart.moments)
        yield f"    {'':<6}{''.join(marks)}  {when}"


def _problem_lines(item: "AttemptReport") -> Iterator[str]:
    report = item.report
    if report.fault is not None:
        yield f"    {report.fault} (blame: {report.fault.blame})"
    for number, reason in enumerate(item.verdict.reasons if item.verdict else (), 1):
        yield f"    {reason.validity} ({number}): {reason.text} [{reason.when}]"
    if report.restore_error is not None:
        yield f"    not restored: {report.restore_error}"


def _advice_lines(reports: Sequence["AttemptReport"]) -> Iterator[str]:
    """Yield what to do about each reason for which a run does not count."""
    verdicts = [item.verdict for item in reports if item.verdict]
    reasons = [reason for verdict in verdicts for reason in verdict.reasons]
    codes = dict.fromkeys(each.code for each in reasons if each.validity is not Validity.VALID)
    if codes:
        yield "what to do:"
    for code in codes:
        yield f"    {code}: {REASON_ADVICE[code]}"


def _attempt_lines(item: "AttemptReport") -> Iterator[str]:
    """Describe an attempt from its start to its end."""
    report = item.report
    duration = format_duration((report.ended_at - report.started_at).total_seconds())
    yield (
        f"{report.started_at:%Y-%m-%d %H:%M:%SZ} block {item.block + 1}, attempt {item.attempt} "
        f"on {report.phone} at {report.host}: {item.status} after {duration}"
    )
    applied = report.applied
    clocks = ", ".join(
        f"policy{policy} {khz} kHz" for policy, khz in sorted(applied.clocks_khz.items())
    )
    if applied.mask:
        yield f"    cores {applied.mask} ({applied.threads} threads); {clocks or 'clocks free'}"
    if applied.screen:
        lock = {True: ", locked", False: ", not locked", None: ""}[applied.locked]
        yield f"    screen {' to '.join(dict.fromkeys(applied.screen))}{lock}"
    for stage, seconds in report.stage_seconds.items():
        yield f"    {stage:<14}{seconds:8.2f} s"
    yield from _problem_lines(item)
