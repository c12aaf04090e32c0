"""`farm sweep`: validates, plans, submits, lists, shows and controls sweeps."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import (
    connect,
    count_words,
    json_option,
    lab_option,
    print_items,
    print_json,
    wide_option,
)
from orchestrator.commands.completion import complete_sweep
from orchestrator.commands.sweep_control import CONTROL_COMMANDS
from orchestrator.commands.training_view import feasible
from workloads.command_output import say
from workloads.input_file import TEXT_BYTES_MAX, read_input
from workloads.protocol.faults import BadFile, InvalidRequest
from workloads.text import safe_text
from workloads.units import count_text

if TYPE_CHECKING:
    from orchestrator.app.control_sweeps import MeasuredRun, RunNote
    from orchestrator.app.lab_connection import LabConnection
    from orchestrator.app.plan_sweep import BadSweep

INVALID_FILE = 3
_FILE = click.argument("file", type=click.Path(path_type=Path))


@click.group()
def sweep() -> None:
    """Validate, plan, submit, list, show and control sweeps."""


for _command in (*CONTROL_COMMANDS, feasible):
    sweep.add_command(_command)


@sweep.command()
@_FILE
@json_option
def validate(file: Path, as_json: bool) -> int:
    """Check a sweep FILE; needs no lab.

    Example: farm sweep validate examples/smoke.yaml
    """
    from orchestrator.app.plan_sweep import BadSweep, check_sweep
    from orchestrator.commands.plan_view import describe_size

    try:
        checked = check_sweep(_read_text(file), _fetch_beside(file))
    except BadSweep as error:
        if as_json:
            problems = [asdict(problem) for problem in error.problems]
            print_json({"file": str(file), "valid": False, "problems": problems})
        else:
            _print_problems(file, error, "")
        return INVALID_FILE
    runs = checked.runs_per_phone
    if as_json:
        print_json({"file": str(file), "valid": True, "id": checked.id, "runs_per_phone": runs})
    else:
        size = f"{describe_size(checked)}: {count_text(runs, 'run')} per phone"
        click.echo(f"{file}: ok ({checked.id}). {size}.")
    return 0


@sweep.command("plan")
@_FILE
@wide_option
@lab_option
@json_option
def plan(file: Path, lab_folder: Path, as_json: bool) -> int:
    """Print what a sweep FILE would run; queue nothing.

    The plan has runs, phones, time, disk space and warnings.

    Example: farm sweep plan examples/smoke.yaml
    """
    from orchestrator.app.plan_sweep import BadSweep, check_sweep, plan_sweep
    from orchestrator.commands.plan_view import print_plan

    text, fetch = _read_text(file), _fetch_beside(file)
    try:
        checked = check_sweep(text, fetch)
        planned = plan_sweep(connect(lab_folder), text, fetch)
    except BadSweep as error:
        _print_problems(file, error, "")
        return INVALID_FILE
    if planned.store_error:
        reason = safe_text(planned.store_error, 300)
        click.echo(f"The plan does not cover any phone: {reason}", err=True)
    if as_json:
        print_json({"file": str(file)} | planned.as_json(checked))
    else:
        print_plan(planned, checked, file)
    return 0


@sweep.command()
@_FILE
@lab_option
@json_option
def submit(file: Path, lab_folder: Path, as_json: bool) -> int:
    """Queue the runs of a sweep FILE (-: standard input).

    Submitting the same sweep again queues only what is missing.

    Example: farm sweep submit examples/smoke.yaml
    """
    from orchestrator.app.plan_sweep import BadSweep
    from orchestrator.app.submit_sweep import submit_sweep
    from orchestrator.commands.plan_view import WARNING_MAX

    text = _read_text(file)
    try:
        submission = submit_sweep(connect(lab_folder), text, _fetch_beside(file))
    except BadSweep as error:
        _print_problems(file, error, " Nothing was submitted.")
        return INVALID_FILE
    stored, skipped = submission.stored, submission.skipped
    if as_json:
        shown = {
            "skipped": [asdict(item) for item in skipped],
            "warnings": list(submission.warnings),
            "waits": list(submission.waits),
            "same_clocks": [asdict(item) for item in submission.same_clocks],
        }
        print_json(asdict(stored) | shown)
        return 0
    old_runs = stored.all_runs - stored.new_runs
    already = f", {old_runs} already stored" if old_runs else ""
    queued = count_text(stored.new_runs, "run")
    click.echo(f"{stored.sweep} {submission.sweep.name}: {queued} queued{already}.")
    reasons: dict[tuple[str, int], list[str]] = {}
    for item in skipped:
        reasons.setdefault((item.reason, len(item.cells)), []).append(item.phone)
    for (reason, cells), phones in reasons.items():
        some = f" ({count_text(cells, 'cell')})" if cells else ""
        click.echo(f"  skipped: {', '.join(phones)}{some}: {safe_text(reason, 600)}", err=True)
    for wait in submission.waits:
        click.echo(f"  start: {safe_text(wait, WARNING_MAX)}", err=True)
    for warning in submission.warnings:
        click.echo(f"  warning: {safe_text(warning, WARNING_MAX)}", err=True)
    say(f"Follow it with: farm watch {stored.sweep}", err=True)
    return 0


@sweep.command("list")
@wide_option
@lab_option
@json_option
def list_all(lab_folder: Path, as_json: bool) -> int:
    """List all sweeps, newest first.

    Example: farm sweep list
    """
    from orchestrator.app.control_sweeps import list_sweeps

    sweeps = list_sweeps(connect(lab_folder))
    headings = (
        *("SWEEP", "NAME", "STATE", "OWNER", "PRIORITY", "SUBMITTED"),
        *("TRIALS", "RUNS", "DONE", "FAILED", "LEFT"),
        *("SUSPECT", "VOID", "MOST FREQUENT REASON"),
    )
    rows = [
        (
            *(item.id, item.name, item.state, item.owner),
            *(item.priority, f"{item.created_at:%Y-%m-%d %H:%M}"),
            *(item.trials, item.total, item.done, item.failed, item.left),
            *(item.left_out.suspect, item.left_out.void, safe_text(item.left_out.reason_text, 120)),
        )
        for item in sweeps
    ]
    if_empty = "no sweep yet; queue one with: farm sweep submit FILE"
    counts = f"{count_text(len(sweeps), 'sweep')}: {count_words(item.state for item in sweeps)}."
    hide = ("TRIALS", "PRIORITY", "OWNER", "MOST FREQUENT REASON", "SUBMITTED", "RUNS")
    return print_items(sweeps, as_json, headings, rows, if_empty, counts, hide)


@sweep.command()
@click.argument("name", metavar="SWEEP", shell_complete=complete_sweep)
@click.option("--digest", is_flag=True, help="Print only the SHA-256 of all results.")
@wide_option
@lab_option
@json_option
def show(name: str, digest: bool, lab_folder: Path, as_json: bool) -> None:
    """Show the runs, failures and results of a SWEEP.

    On virtual phones in event time, a sweep that runs alone in an empty lab, without a budget, has
    the same digest on every computer. 'farm export SWEEP --format results' writes what it is of.

    \b
    Examples:
      farm sweep show smoke
      farm sweep show smoke --digest
    """
    if digest:
        _print_digest(connect(lab_folder), name, as_json)
        return
    from orchestrator.app.compare_results import same_applied_clocks
    from orchestrator.app.control_sweeps import RunState, judgement_text, show_sweep
    from orchestrator.commands.fleet_view import print_clocks, print_comparison

    details = show_sweep(connect(lab_folder), name, headlines=not as_json)
    summary = details.summary
    if as_json:
        failures = [item._asdict() for item in details.failures]
        figures = [_figures(run) for run in details.runs if run.valid]
        shown = {"failures": failures, "source": details.source, "figures": figures}
        same = [asdict(item) for item in same_applied_clocks(details.runs)]
        print_json(asdict(summary) | shown | {"same_clocks": same})
        return
    counts = ", ".join(f"{count} {state}" for state, count in sorted(summary.runs.items()))
    say(
        f"{summary.id} {summary.name}: {count_text(summary.trials, 'trial')}, "
        f"{count_text(summary.total, 'run')}: {counts}."
    )
    if summary.left_out.text:
        say(f"  {safe_text(summary.left_out.text, 400)}")
    if text := judgement_text(details.runs):
        say(f"  {text}")
    if summary.state_reason:
        say(f"  {summary.state}: {safe_text(summary.state_reason, 400)}")
    for line in failure_lines(details.failures):
        say(f"  failed: {safe_text(line, 700)}")
    if summary.runs.get(RunState.BLOCKED):
        say(f"  blocked runs are tried again after: farm sweep retry {summary.id}")
    if details.runs:
        print_comparison(details.runs)
        print_clocks(details.runs)


def _print_digest(lab: "LabConnection", name: str, as_json: bool) -> None:
    from orchestrator.app.export_results import read_results_digest

    digest, count = read_results_digest(lab, name)
    if as_json:
        print_json({"digest": digest, "reports": count})
    else:
        click.echo(f"{digest}  {count_text(count, 'report')}")


def failure_lines(failures: Sequence["RunNote"]) -> list[str]:
    """Say every reason once, with its runs: one by name, several by number."""
    groups: dict[str, list[RunNote]] = {}
    for item in failures:
        groups.setdefault(item.reason, []).append(item)
    return [
        f"{items[0].trial} repeat {items[0].repeat} on {items[0].phone}: {reason}"
        if len(items) == 1
        else f"{len(items)} runs on {count_text(len({item.phone for item in items}), 'phone')}: "
        f"{reason}; one is {items[0].trial} repeat {items[0].repeat}"
        for reason, items in groups.items()
    ]


def _figures(run: "MeasuredRun") -> dict[str, object]:
    metrics = {name: metric.model_dump() for name, metric in run.metrics.items()}
    where = {"phone": run.phone, "model": run.facts.model, "trial": run.trial, "repeat": run.repeat}
    what = {"case": run.case.label, "condition": run.condition.label}
    what |= run.applied.model_dump(include={"clocks_khz", "gpu_khz"})
    return where | what | {"verdict": run.verdict.validity, "metrics": metrics}


def _read_text(file: Path) -> str:
    """Read a file, or standard input for "-"."""
    try:
        if str(file) != "-":
            return read_input(file).decode()
        text = sys.stdin.read(TEXT_BYTES_MAX + 1)
        if len(text) > TEXT_BYTES_MAX:
            raise InvalidRequest(f"the input has more than {TEXT_BYTES_MAX} characters")
        return text
    except UnicodeDecodeError as error:
        raise BadFile(f"{file} cannot be read: it is not UTF-8 text") from error


def _fetch_beside(file: Path) -> Callable[[str], str]:
    """Return a function that reads the files that a sweep names, relative to the sweep file."""
    from orchestrator.app.external_engines import changed_files

    warned: set[str] = set()

    def fetch(name: str) -> str:
        manifest = file.parent / name
        text = manifest.read_text(encoding="utf-8")
        for program, digest in changed_files(text, manifest.parent).items():
            if program not in warned:
                say(
                    f"Warning: {program} has changed, but {name} names the old file; run 'farm "
                    f"workload add {program}' and write '{program}: {digest}' there.",
                    err=True,
                )
            warned.add(program)
        return text

    return fetch


def _print_problems(file: Path, error: "BadSweep", consequence: str) -> None:
    count = len(error.problems)
    click.echo(error.render(str(file)), err=True)
    click.echo(f"{count} error{'s' if count > 1 else ''}.{consequence}", err=True)
