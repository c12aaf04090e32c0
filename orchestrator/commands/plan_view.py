"""Prints the plan of a sweep."""

from pathlib import Path

import click

from orchestrator.app.plan_sweep import DurationRange, PhoneEstimate, Sweep, SweepPlan
from orchestrator.commands.common import print_table
from orchestrator.commands.fleet_view import print_conditions
from workloads.command_output import say
from workloads.text import safe_text
from workloads.units import count_text, format_bytes, format_duration

WARNING_MAX = 1000
HEADINGS = (
    "PHONE",
    "TRIALS",
    "RUNS",
    "MEASURING",
    "COOLING",
    "TOTAL P50 .. P90",
    "BASIS",
    "SHOWS FROM",
)
HIDE = ("BASIS", "TRIALS", "COOLING")


def describe_size(sweep: Sweep) -> str:
    """The size of a sweep: cells and repeats."""
    cells = count_text(len(sweep.cells), "cell")
    if len(sweep.cells) == len(sweep.cases) * len(sweep.conditions):
        conditions = count_text(len(sweep.conditions), "condition")
        cells = f"{count_text(len(sweep.cases), 'case')} x {conditions}"
    rule = sweep.policy.stop
    repeats = count_text(sweep.repeat, "repeat")
    if rule is not None:
        repeats = f"{rule.n_min} to {rule.n_max} repeats"
    baseline = sweep.policy.baseline
    recurring = f", one baseline run per {baseline.every} other runs" if baseline else ""
    return f"{cells} x {repeats}{recurring}"


def print_plan(plan: SweepPlan, sweep: Sweep, file: Path) -> None:
    say(f"{file}: ok ({sweep.id}). {describe_size(sweep)}.")
    if plan.estimates:
        say(_total_line(plan))
    for line in _rule_lines(sweep):
        say(line)
    if not plan.store_error:
        _print_phones(plan)
    for wait in plan.waits:
        say(f"  start: {safe_text(wait, WARNING_MAX)}")
    for warning in plan.warnings:
        say(f"  warning: {safe_text(warning, WARNING_MAX)}")
    if plan.estimates:
        say(f"Queue it with: farm sweep submit {file}", err=True)


def _total_line(plan: SweepPlan) -> str:
    """The whole plan on one line: runs, phones, time and disk space."""
    longest = max(plan.estimates, key=lambda estimate: estimate.total.p50_s)
    phones = count_text(len(plan.estimates), "phone")
    runs = f"At most {count_text(plan.runs, 'run')} on {phones}"
    time = f"{_total(longest)} ({longest.phone} takes longest)"
    most = plan.disk.bytes_at_most
    return f"{runs}, {time}, {'unknown' if most is None else format_bytes(round(most))} on disk."


def _rule_lines(sweep: Sweep) -> list[str]:
    if not sweep.rules:
        return []
    lines = [f"  {'matrix':<12} {sweep.matrix_cells:>6} cells"]
    for count in sweep.rules:
        rule = count.rule
        sign = "-" if rule.kind == "exclude" else "+"
        condition = f" where {safe_text(rule.when, 200)}" if rule.when else ""
        reason = f": {rule.why}" if rule.why else ""
        lines.append(f"  {rule.name:<12} {sign}{count.cells:>5}{condition}{reason}")
    return lines


def _print_phones(plan: SweepPlan) -> None:
    if plan.estimates:
        rows = [(*_row(estimate), _shown(plan, estimate.phone)) for estimate in plan.estimates]
        count = len(HEADINGS) if plan.shows else len(HEADINGS) - 1
        print_table(HEADINGS[:count], [row[:count] for row in rows], HIDE)
    if plan.shows:
        say(
            f"  SHOWS FROM: the smallest difference between two cells that {plan.repeats} repeats "
            "show in 4 of 5 cases, from earlier runs of the phone"
        )
    if plan.conditions:
        print_conditions(plan.conditions, plan.models)
    for phone, reason in plan.unavailable.items():
        say(f"  gets no runs now: {phone}: {safe_text(reason, 200)}")
    reasons: dict[tuple[str, int], list[str]] = {}
    for item in plan.skipped:
        reasons.setdefault((item.reason, len(item.cells)), []).append(item.phone)
    for (reason, cells), phones in reasons.items():
        what = f"{count_text(cells, 'cell')} skipped" if cells else "not matched"
        say(f"  {what}: {', '.join(phones)}: {safe_text(reason, 300)}")
    if not plan.estimates and not plan.skipped:
        click.echo("  no phone is known to the lab yet")
    disk = plan.disk
    if disk.bytes_at_most is not None and disk.per_run is not None:
        most, per_run = format_bytes(round(disk.bytes_at_most)), format_bytes(round(disk.per_run))
        click.echo(f"  disk: at most {most} ({per_run} per run, from the newest runs)")
    else:
        click.echo("  disk: unknown; no run is stored yet")


def _row(estimate: PhoneEstimate) -> tuple[object, ...]:
    cooling = _p50(estimate.cooling) if estimate.cooling else "unknown"
    bases = ", ".join(f"{basis.text} ({count})" for basis, count in estimate.bases.items())
    counts = (estimate.phone, estimate.trials, estimate.runs)
    return *counts, _p50(estimate.measuring), cooling, _total(estimate), bases


def _shown(plan: SweepPlan, phone: str) -> str:
    found = plan.shows.get(phone)
    if found is None:
        return "unknown"
    best, worst = (f"{share:.1%}" for share in (found.best, found.worst))
    return best if best == worst else f"{best} to {worst}"


def _total(estimate: PhoneEstimate) -> str:
    total = estimate.total
    between = f"{format_duration(total.p50_s)} .. {format_duration(total.p90_s)}"
    return between if estimate.cooling else f"over {format_duration(total.p50_s)}"


def _p50(duration: DurationRange) -> str:
    return format_duration(duration.p50_s)
