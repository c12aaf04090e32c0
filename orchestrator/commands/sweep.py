"""`farm sweep`: what somebody wants to know."""

from dataclasses import asdict
from pathlib import Path

import click

from orchestrator.commands.common import (
    json_option,
    lab_option,
    open_broker,
    open_store,
    print_json,
    print_table,
    read_lab,
)
from workloads.fault import Refused

_FILE = click.argument("file", type=click.Path(path_type=Path))


@click.group()
def sweep() -> None:
    """Validate, submit, list and show sweeps."""


@sweep.command()
@_FILE
@json_option
def validate(file: Path, as_json: bool) -> int:
    """Check a sweep FILE; needs no service."""
    from orchestrator.plan.problem import BadSweep
    from orchestrator.plan.sweep import read_sweep

    try:
        found = read_sweep(_text_of(file))
    except BadSweep as error:
        if as_json:
            problems = [asdict(problem) for problem in error.problems]
            print_json({"file": str(file), "valid": False, "problems": problems})
        else:
            _show_problems(file, error)
        return 3
    if as_json:
        runs = found.runs_per_phone
        print_json({"file": str(file), "valid": True, "id": found.id, "runs_per_phone": runs})
    else:
        cells = len(found.cases) * len(found.conditions)
        click.echo(
            f"{file}: ok. {found.id}: {len(found.cases)} cases x {len(found.conditions)} conditions"
            f" = {cells} cells, {found.repeat} repeats: {found.runs_per_phone} runs a phone."
        )
    return 0


@sweep.command()
@_FILE
@lab_option
@json_option
def submit(file: Path, lab_folder: Path, as_json: bool) -> int:
    """Queue a sweep FILE; submitting the same sweep twice queues nothing twice."""
    from orchestrator import submission
    from orchestrator.plan.problem import BadSweep

    text = _text_of(file)
    lab = read_lab(lab_folder)
    try:
        done = submission.submit(text, open_store(lab), open_broker(lab))
    except BadSweep as error:
        _show_problems(file, error)
        return 3
    stored, skipped = done.stored, done.expansion.skipped
    if as_json:
        print_json(asdict(stored) | {"skipped": [asdict(item) for item in skipped]})
        return 0
    known = stored.all_runs - stored.new_runs
    before = f", {known} were queued before" if known else ""
    click.echo(f"{stored.sweep} {done.sweep.name}: {stored.new_runs} runs queued{before}.")
    for item in skipped:
        cells = f" ({len(item.cells)} cells)" if item.cells else ""
        click.echo(f"  left out: {item.phone}{cells}: {item.reason}", err=True)
    click.echo(f"Follow it with: farm watch {stored.sweep}", err=True)
    return 0


@sweep.command("list")
@lab_option
@json_option
def list_sweeps(lab_folder: Path, as_json: bool) -> None:
    """List all sweeps, newest first."""
    from orchestrator.store.queries import sweep_summaries

    found = sweep_summaries(open_store(read_lab(lab_folder)))
    if as_json:
        print_json([asdict(item) for item in found])
        return
    headings = ("SWEEP", "NAME", "SUBMITTED", "TRIALS", "DONE", "FAILED", "LEFT")
    rows = [
        (
            *(item.id, item.name, f"{item.created_at:%Y-%m-%d %H:%M}"),
            *(item.trials, item.done, item.failed, item.left),
        )
        for item in found
    ]
    print_table(headings, rows)


@sweep.command()
@click.argument("name", metavar="SWEEP")
@lab_option
@json_option
def show(name: str, lab_folder: Path, as_json: bool) -> None:
    """Show one SWEEP: its counts, its failures and its figures."""
    from orchestrator.store import queries

    db = open_store(read_lab(lab_folder))
    found = queries.find_sweep(db, name)
    failed = queries.failed_runs(db, found.id)
    if as_json:
        keys = ("trial", "repeat", "phone", "why")
        failures = [dict(zip(keys, item, strict=True)) for item in failed]
        source = queries.sweep_source(db, found.id)
        print_json(asdict(found) | {"failures": failures, "source": source})
        return
    counts = ", ".join(f"{count} {state}" for state, count in sorted(found.runs.items()))
    click.echo(f"{found.id} {found.name}: {found.trials} trials, {found.total} runs: {counts}.")
    for trial, repeat, phone, why in failed:
        click.echo(f"  failed: {trial} repeat {repeat} on {phone}: {why}")
    runs = queries.measured_runs(db, found.id)
    if runs:
        from orchestrator.commands.comparison import print_comparison

        print_comparison(runs)


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise Refused(f"{file} cannot be read: {reason}") from error


def _show_problems(file: Path, error: Exception) -> None:
    from orchestrator.plan.problem import BadSweep

    assert isinstance(error, BadSweep)
    count = len(error.problems)
    click.echo(error.render(str(file)), err=True)
    click.echo(f"{count} error{'s' if count > 1 else ''}. Nothing was submitted.", err=True)
