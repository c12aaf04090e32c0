"""`farm sweep`: what somebody wants to know."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

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
from orchestrator.commands.completion import complete_sweep
from orchestrator.commands.sweep_control import VERBS
from workloads.protocol.faults import BadFile, FarmError, InvalidRequest
from workloads.text import safe_text

if TYPE_CHECKING:
    from orchestrator.analysis.measurements import MeasuredRun

_FILE = click.argument("file", type=click.Path(path_type=Path))


@click.group()
def sweep() -> None:
    """Validate, submit, list, show and steer sweeps."""


for _verb in VERBS:
    sweep.add_command(_verb)


@sweep.command()
@_FILE
@json_option
def validate(file: Path, as_json: bool) -> int:
    """Check a sweep FILE; needs no service."""
    from orchestrator.commands.plan_view import describe_size
    from orchestrator.sweepfile.sweep_errors import BadSweep
    from orchestrator.sweepfile.sweep_file import read_sweep

    try:
        found = read_sweep(_text_of(file), _beside(file))
    except BadSweep as error:
        if as_json:
            problems = [asdict(problem) for problem in error.problems]
            print_json({"file": str(file), "valid": False, "problems": problems})
        else:
            _show_problems(file, error, "")
        return 3
    if as_json:
        count = found.runs_per_phone
        print_json({"file": str(file), "valid": True, "id": found.id, "runs_per_phone": count})
    else:
        click.echo(
            f"{file}: ok ({found.id}). {describe_size(found)}: {found.runs_per_phone} runs a phone."
        )
    return 0


@sweep.command("plan")
@_FILE
@lab_option
@json_option
def plan_sweep(file: Path, lab_folder: Path, as_json: bool) -> int:
    """Say what a sweep FILE would become here: runs, phones, time, disk, doubts. Queues nothing."""
    from orchestrator.app.plan_sweep import plan_sweep
    from orchestrator.commands.plan_view import show
    from orchestrator.sweepfile.sweep_errors import BadSweep
    from orchestrator.sweepfile.sweep_file import read_sweep

    try:
        found = read_sweep(_text_of(file), _beside(file))
    except BadSweep as error:
        _show_problems(file, error, "")
        return 3
    try:
        db = open_store(read_lab(lab_folder))
    except FarmError as error:
        click.echo(f"The phones are not known here: {safe_text(error, 300)}", err=True)
        db = None
    outlook = plan_sweep(found, db)
    if as_json:
        print_json({"file": str(file)} | outlook.as_json())
    else:
        show(outlook, file)
    return 0


@sweep.command()
@_FILE
@lab_option
@json_option
def submit(file: Path, lab_folder: Path, as_json: bool) -> int:
    """Queue a sweep FILE; submitting the same sweep twice queues nothing twice."""
    from orchestrator.app import submit_sweep
    from orchestrator.sweepfile.sweep_errors import BadSweep

    text = _text_of(file)
    lab = read_lab(lab_folder)
    try:
        done = submit_sweep.submit_sweep(text, open_store(lab), open_broker(lab), _beside(file))
    except BadSweep as error:
        _show_problems(file, error, " Nothing was submitted.")
        return 3
    stored, skipped = done.stored, done.expansion.skipped
    if as_json:
        print_json(asdict(stored) | {"skipped": [asdict(item) for item in skipped]})
        return 0
    known = stored.all_runs - stored.new_runs
    before = f", {known} were queued before" if known else ""
    click.echo(f"{stored.sweep} {done.sweep.name}: {stored.new_runs} runs queued{before}.")
    reasons: dict[tuple[str, int], list[str]] = {}
    for item in skipped:
        reasons.setdefault((item.reason, len(item.cells)), []).append(item.phone)
    for (reason, cells), phones in reasons.items():
        some = f" ({cells} cells)" if cells else ""
        click.echo(f"  left out: {', '.join(phones)}{some}: {safe_text(reason, 600)}", err=True)
    click.echo(f"Follow it with: farm watch {stored.sweep}", err=True)
    return 0


@sweep.command("list")
@lab_option
@json_option
def list_sweeps(lab_folder: Path, as_json: bool) -> None:
    """List all sweeps, newest first."""
    from orchestrator.store.sweep_queries import sweep_summaries

    found = sweep_summaries(open_store(read_lab(lab_folder)))
    if as_json:
        print_json([asdict(item) for item in found])
        return
    headings = (
        *("SWEEP", "NAME", "STATE", "OWNER", "PRIORITY", "SUBMITTED"),
        *("TRIALS", "RUNS", "DONE", "FAILED", "LEFT"),
    )
    rows = [
        (
            *(item.id, item.name, "finished" if item.finished else item.state, item.owner),
            *(item.priority, f"{item.created_at:%Y-%m-%d %H:%M}"),
            *(item.trials, item.total, item.done, item.failed, item.left),
        )
        for item in found
    ]
    print_table(headings, rows)


@sweep.command()
@click.argument("name", metavar="SWEEP", shell_complete=complete_sweep)
@lab_option
@json_option
def show(name: str, lab_folder: Path, as_json: bool) -> None:
    """Show one SWEEP: its counts, its failures and its figures."""
    from orchestrator.decisions.states import RunState
    from orchestrator.store import results, sweep_queries

    db = open_store(read_lab(lab_folder))
    found = sweep_queries.find_sweep(db, name)
    failed = sweep_queries.runs_in_state(db, found.id, RunState.FAILED)
    if as_json:
        failures = [item._asdict() for item in failed]
        source = sweep_queries.sweep_source(db, found.id)
        figures = [_figures(run) for run in results.measured_runs(db, found.id)]
        print_json(asdict(found) | {"failures": failures, "source": source, "figures": figures})
        return
    counts = ", ".join(f"{count} {state}" for state, count in sorted(found.runs.items()))
    click.echo(f"{found.id} {found.name}: {found.trials} trials, {found.total} runs: {counts}.")
    if found.state != "active":
        click.echo(f"  {found.state}: {safe_text(found.state_reason, 400)}")
    for trial, repeat, phone, why in failed:
        click.echo(f"  failed: {trial} repeat {repeat} on {phone}: {safe_text(why, 600)}")
    runs = results.measured_runs(db, found.id)
    if runs:
        from orchestrator.commands.fleet_view import print_comparison

        print_comparison(runs)


def _figures(run: "MeasuredRun") -> dict[str, object]:
    metrics = {name: metric.model_dump() for name, metric in run.metrics.items()}
    where = {"phone": run.phone, "model": run.facts.model, "trial": run.trial, "repeat": run.repeat}
    what = {"case": run.case.label, "condition": run.condition.label}
    return where | what | {"verdict": run.verdict.validity, "metrics": metrics}


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        kind = InvalidRequest if isinstance(error, OSError) else BadFile
        raise kind(f"{file} cannot be read: {reason}") from error


def _beside(file: Path) -> Callable[[str], str]:
    """Fetch what a sweep names from where the sweep lies."""

    def fetch(name: str) -> str:
        return (file.parent / name).read_text(encoding="utf-8")

    return fetch


def _show_problems(file: Path, error: Exception, after: str) -> None:
    from orchestrator.sweepfile.sweep_errors import BadSweep

    assert isinstance(error, BadSweep)
    count = len(error.problems)
    click.echo(error.render(str(file)), err=True)
    click.echo(f"{count} error{'s' if count > 1 else ''}.{after}", err=True)
