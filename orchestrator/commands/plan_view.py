"""How a plan is shown: what the file says, what the lab makes of it, and where it is doubtful."""

from pathlib import Path

import click

from orchestrator.app.plan_sweep import SweepPlan
from orchestrator.commands.common import print_table
from orchestrator.planning.estimate import DurationRange, PhoneEstimate
from orchestrator.sweepfile.sweep_file import Sweep
from workloads.text import safe_text
from workloads.units import format_bytes, format_duration

HEADINGS = ("PHONE", "TRIALS", "RUNS", "MEASURING", "COOLING", "TOTAL P50 .. P90", "FROM")


def describe_size(sweep: Sweep) -> str:
    """The size of a sweep: cells and repeats."""
    cells = _counted(len(sweep.cells), "cell")
    if len(sweep.cells) == len(sweep.cases) * len(sweep.conditions):
        conditions = _counted(len(sweep.conditions), "condition")
        cells = f"{_counted(len(sweep.cases), 'case')} x {conditions}"
    rule = sweep.policy.stop
    repeats = _counted(sweep.repeat, "repeat")
    if rule is not None:
        repeats = f"{rule.n_min} to {rule.n_max} repeats"
    baseline = sweep.policy.baseline
    again = f", the baseline once among {baseline.every}" if baseline else ""
    return f"{cells} x {repeats}{again}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def show(outlook: SweepPlan, file: Path) -> None:
    """Print a plan."""
    sweep = outlook.sweep
    click.echo(f"{file}: ok ({sweep.id}). {describe_size(sweep)}.")
    for line in _rule_lines(sweep):
        click.echo(line)
    if outlook.known:
        _show_phones(outlook)
    for doubt in outlook.warnings:
        click.echo(f"  doubtful: {safe_text(doubt, 300)}")
    if outlook.estimates:
        click.echo(f"Queue it with: farm sweep submit {file}", err=True)


def _rule_lines(sweep: Sweep) -> list[str]:
    if not sweep.rules:
        return []
    lines = [f"  {'matrix':<12} {sweep.matrix_cells:>6} cells"]
    for count in sweep.rules:
        rule = count.rule
        sign = "-" if rule.kind == "exclude" else "+"
        some = f" where {safe_text(rule.when, 200)}" if rule.when else ""
        why = f": {rule.why}" if rule.why else ""
        lines.append(f"  {rule.name:<12} {sign}{count.cells:>5}{some}{why}")
    return lines


def _show_phones(outlook: SweepPlan) -> None:
    if outlook.estimates:
        print_table(HEADINGS, [_row(each) for each in outlook.estimates])
        longest = max(outlook.estimates, key=lambda each: each.total.p50_s)
        click.echo(f"  in all: at most {outlook.runs} runs; the last phone is {longest.phone}")
    for phone, why in outlook.unwell.items():
        click.echo(f"  waits: {phone}: {safe_text(why, 200)}")
    reasons: dict[tuple[str, int], list[str]] = {}
    for item in outlook.expansion.skipped:
        reasons.setdefault((item.reason, len(item.cells)), []).append(item.phone)
    for (reason, cells), phones in reasons.items():
        what = f"{cells} cells left out" if cells else "not matched"
        click.echo(f"  {what}: {', '.join(phones)}: {safe_text(reason, 300)}")
    if not outlook.estimates and not outlook.expansion.skipped:
        click.echo("  the lab has met no phone yet")
    disk = outlook.disk
    if disk.bytes_at_most is not None and disk.per_run is not None:
        most, each = format_bytes(round(disk.bytes_at_most)), format_bytes(round(disk.per_run))
        click.echo(f"  disk: at most {most} ({each} a run, as the newest runs have it)")
    else:
        click.echo("  disk: not known; no run is stored yet")


def _row(each: PhoneEstimate) -> tuple[object, ...]:
    cooling = _middle(each.cooling) if each.cooling else "not known"
    sure = f"{format_duration(each.total.p50_s)} .. {format_duration(each.total.p90_s)}"
    total = sure if each.cooling else f"over {format_duration(each.total.p50_s)}"
    bases = ", ".join(f"{basis.text} ({count})" for basis, count in each.bases.items())
    return each.phone, each.trials, each.runs, _middle(each.measuring), cooling, total, bases


def _middle(span: DurationRange) -> str:
    return format_duration(span.p50_s)
