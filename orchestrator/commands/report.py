"""`farm report`: everything a sweep says, on one page."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import lab_option, open_store, read_lab
from orchestrator.commands.completion import complete_sweep

if TYPE_CHECKING:
    from orchestrator.analysis.measurements import MeasuredRun
    from orchestrator.store.database import Database
    from orchestrator.store.sweep_queries import SweepSummary
    from workloads.protocol.telemetry import Telemetry

TOLD_MAX = 200  # runs whose telemetry is drawn: one a phone and cell


@click.command()
@click.argument("name", metavar="SWEEP", shell_complete=complete_sweep)
@lab_option
@click.option(
    "-o", "--output", default="", help="File to write (default: SWEEP.html); - for standard output."
)
@click.option("--mix", is_flag=True, help="Rank also what was made in unlike ways.")
def report(name: str, lab_folder: Path, output: str, mix: bool) -> None:
    """Write a page that shows what a SWEEP says; it opens offline, anywhere."""
    from orchestrator.commands.export import target
    from orchestrator.store.sweep_queries import find_sweep

    db = open_store(read_lab(lab_folder))
    sweep = find_sweep(db, name)
    page = page_of_sweep(db, sweep, mix)
    with target(db, sweep, f"{sweep.name}.html", output) as stream:
        stream.write(page.encode())


def page_of_sweep(db: "Database", sweep: "SweepSummary", mix: bool = False) -> str:
    """The report of a sweep, with the telemetry of the first valid run of every trial."""
    from orchestrator.app.app_errors import InvalidState
    from orchestrator.commands.export import incomplete
    from orchestrator.export.report.page import render_page

    runs, told = told_runs(db, [sweep.id])
    if not runs:
        raise InvalidState(f"{sweep.id} has no figures yet; 'farm sweep show {sweep.id}' says why")
    return render_page(sweep.name, runs, told, mix, incomplete(sweep))


def told_runs(
    db: "Database", sweeps: "Sequence[str]"
) -> "tuple[list[MeasuredRun], list[tuple[MeasuredRun, Telemetry]]]":
    """All runs of some sweeps, and the telemetry of the first valid one of every trial."""
    from orchestrator.store.results import measured_runs, telemetry_blob
    from workloads.protocol.telemetry import read_telemetry

    runs = [run for sweep in sweeps for run in measured_runs(db, sweep, include_void=True)]
    first = {run.trial: run for run in reversed(runs) if run.valid and run.telemetry}
    told = []
    for run in list(first.values())[:TOLD_MAX]:
        blob = telemetry_blob(db, run.telemetry or "")
        if blob is not None:
            told.append((run, read_telemetry(blob)))
    return runs, told
