"""`farm trial`: one case, one condition, one phone, and what became of it."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import (
    json_option,
    lab_option,
    open_store,
    print_json,
    print_table,
    read_lab,
)
from orchestrator.commands.completion import complete_phone, complete_sweep
from workloads.text import safe_text
from workloads.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.store.trial_queries import AttemptReport, TrialSummary

STATES = ("queued", "leased", "done", "failed", "skipped", "blocked", "cancelled")
_TRIAL = click.argument("begun", metavar="TRIAL")


@click.group()
def trial() -> None:
    """List trials, show one, and read what its attempts said."""


@trial.command("list")
@click.argument("name", metavar="SWEEP", shell_complete=complete_sweep)
@click.option("--state", type=click.Choice(STATES), help="Only those with such a run.")
@click.option(
    "--phone",
    help="Only those of this phone (the beginning of its serial).",
    shell_complete=complete_phone,
)
@click.option("--limit", type=click.IntRange(1, 100_000), default=200, show_default=True)
@lab_option
@json_option
def list_trials(
    name: str, state: str | None, phone: str | None, limit: int, lab_folder: Path, as_json: bool
) -> None:
    """List the trials of a SWEEP."""
    from orchestrator.decisions.states import RunState
    from orchestrator.store.sweep_queries import find_sweep
    from orchestrator.store.trial_queries import trial_summaries

    db = open_store(read_lab(lab_folder))
    sweep = find_sweep(db, name)
    wanted = RunState(state) if state else None
    found = trial_summaries(db, sweep.id, limit + 1, wanted, phone)
    if as_json:
        print_json([asdict(item) for item in found[:limit]])
        return
    rows = [(item.id, item.phone, item.label, _counts(item), item.note) for item in found[:limit]]
    print_table(("TRIAL", "PHONE", "WHAT", "RUNS", "LAST NOTE"), rows)
    if not rows:
        click.echo(f"No trial of {sweep.id} is like that.", err=True)
    if len(found) > limit:
        click.echo(f"There are more than {limit}; --limit shows more.", err=True)


@trial.command()
@_TRIAL
@lab_option
@json_option
def show(begun: str, lab_folder: Path, as_json: bool) -> None:
    """Show one TRIAL: its runs, its figures and what went wrong."""
    line, told = _read(begun, lab_folder)
    if as_json:
        print_json(asdict(line) | {"reports": [item.report.model_dump() for item in told]})
        return
    click.echo(safe_text(f"{line.id} of {line.sweep} on {line.phone}: {line.label}", 400))
    click.echo(f"runs: {_counts(line)}")
    for item in told:
        for words in _figures(item):
            _echo(words)
    if not told:
        click.echo("no attempt has reported yet", err=True)


@trial.command()
@_TRIAL
@lab_option
def logs(begun: str, lab_folder: Path) -> None:
    """Print what each attempt at a TRIAL did and said, stage by stage."""
    _, told = _read(begun, lab_folder)
    for item in told:
        for words in story(item):
            _echo(words)
    if not told:
        click.echo("no attempt has reported yet", err=True)


def _echo(words: str) -> None:
    """Print a line as it is indented, and harmless."""
    indent = len(words) - len(words.lstrip(" "))
    click.echo(" " * indent + safe_text(words, 1200))


def _read(begun: str, lab_folder: Path) -> "tuple[TrialSummary, list[AttemptReport]]":
    from orchestrator.store.trial_queries import find_trial, trial_reports

    db = open_store(read_lab(lab_folder))
    return trial_reports(db, find_trial(db, begun))


def _counts(line: "TrialSummary") -> str:
    return ", ".join(f"{count} {state}" for state, count in sorted(line.runs.items()))


def _figures(item: "AttemptReport") -> "Iterator[str]":
    said = item.report
    headline = next((metric for metric in said.metrics if metric.name == "step_ms"), None)
    figure = f"  {headline.value:.4g} ms/step ({headline.provenance})" if headline else ""
    yield f"block {item.block + 1}, attempt {item.attempt}: {item.status}{figure}"
    yield from _troubles(item)


def _troubles(item: "AttemptReport") -> "Iterator[str]":
    said = item.report
    if said.fault is not None:
        yield f"    {said.fault} (blame: {said.fault.blame})"
    for reason in said.verdict.reasons if said.verdict else ():
        yield f"    {reason.validity}: {reason.text}"
    if said.restore_error is not None:
        yield f"    not restored: {said.restore_error}"


def story(item: "AttemptReport") -> "Iterator[str]":
    """An attempt from its start to its end."""
    said = item.report
    took = format_duration((said.ended_at - said.started_at).total_seconds())
    yield (
        f"{said.started_at:%Y-%m-%d %H:%M:%SZ} block {item.block + 1}, attempt {item.attempt} "
        f"on {said.phone} at {said.host}: {item.status} after {took}"
    )
    applied = said.applied
    clocks = ", ".join(f"policy{at} {khz} kHz" for at, khz in sorted(applied.clocks_khz.items()))
    if applied.mask:
        yield f"    cores {applied.mask} ({applied.threads} threads); {clocks or 'clocks free'}"
    for stage, seconds in said.stage_seconds.items():
        yield f"    {stage:<14}{seconds:8.2f} s"
    yield from _troubles(item)
