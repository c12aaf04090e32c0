"""`farm export`: a sweep's figures for other tools."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.common import lab_option, open_store, read_lab
from workloads.fault import Refused

if TYPE_CHECKING:
    from orchestrator.nouns import MeasuredRun, SweepSummary
    from orchestrator.store.database import Database


@click.command()
@click.argument("name", metavar="SWEEP")
@lab_option
@click.option(
    "--format",
    "form",
    type=click.Choice(["csv", "comparison", "ops", "outcomes", "html"]),
    default="csv",
    show_default=True,
    help="One row a figure, a phone and cell, a traced operation or a run; or a report page.",
)
@click.option("-o", "--output", default="", help="File to write; - for standard output.")
@click.option("--everything", is_flag=True, help="With suspect and void runs, marked as such.")
def export(name: str, lab_folder: Path, form: str, output: str, everything: bool) -> None:
    """Write the figures of a SWEEP to a file (simulated ones say so in its name)."""
    from orchestrator.export.csv import file_name
    from orchestrator.store.queries import find_sweep, measured_runs

    db = open_store(read_lab(lab_folder))
    sweep = find_sweep(db, name)
    runs = measured_runs(db, sweep.id, void=everything or form == "html")
    if not runs and form != "outcomes":
        raise Refused(f"{sweep.id} has no figures yet; 'farm sweep show {sweep.id}' says why")
    if form == "ops":
        text = render_ops(db, runs, everything)
    elif form == "outcomes":
        text = render_outcomes(db, sweep.id)
    else:
        text = render(form, sweep.name, runs, everything, incomplete(sweep))
    if incomplete(sweep):
        click.echo(incomplete(sweep), err=True)
    if output == "-":
        click.echo(text, nl=False)
        return
    default = {"csv": ".csv", "html": ".html"}.get(form, f".{form}.csv")
    wanted = Path(output or ".")
    wanted = wanted / f"{sweep.name}{default}" if wanted.is_dir() else wanted
    plain = str(wanted.with_suffix("")).removesuffix(".simulated")
    path = Path(file_name(plain, runs, wanted.suffix.removeprefix(".") or "csv"))
    try:
        path.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise Refused(f"{path} cannot be written: {error.strerror}") from error
    click.echo(str(path))


def incomplete(sweep: "SweepSummary") -> str:
    """What is missing from a sweep's figures, as a sentence; nothing when all is there."""
    if sweep.done == sweep.total:
        return ""
    counts = f"{sweep.done} of {sweep.total} runs are done, {sweep.failed} failed"
    return f"Not all is in: {counts}, {sweep.left} are to come."


def render_ops(db: "Database", runs: "Sequence[MeasuredRun]", everything: bool = False) -> str:
    """The operations of every traced run, joined with what was sampled beside them."""
    from orchestrator.export.ops_csv import write_ops_csv
    from orchestrator.store.queries import telemetry
    from workloads.timeline import join, read_blob, telemetry_of

    found = []
    for run in runs:
        blob = telemetry(db, run.telemetry) if run.telemetry else None
        if blob is not None and (run.valid or everything):
            found.append((run, join(telemetry_of(read_blob(blob)))))
    stream = io.StringIO(newline="")
    if not write_ops_csv(found, stream):
        raise Refused("no run of this sweep was traced, so nothing is known of its operations")
    return stream.getvalue()


def render_outcomes(db: "Database", sweep_id: str) -> str:
    """What became of every planned run, memory included."""
    from orchestrator.export.outcomes_csv import write_outcomes_csv
    from orchestrator.store.queries import run_outcomes

    stream = io.StringIO(newline="")
    write_outcomes_csv(run_outcomes(db, sweep_id), stream)
    return stream.getvalue()


def render(
    form: str,
    title: str,
    runs: "Sequence[MeasuredRun]",
    everything: bool = False,
    unfinished: str = "",
) -> str:
    """The text of an export."""
    stream = io.StringIO(newline="")
    if form == "html":
        from orchestrator.export.page import render_page

        return render_page(title, runs, unfinished=unfinished)
    if form == "comparison":
        from orchestrator.analysis.compare import compare_fleet
        from orchestrator.export.comparison_csv import write_comparison_csv

        write_comparison_csv(compare_fleet(runs), stream)
    else:
        from orchestrator.export.csv import write_csv

        write_csv(runs, stream, everything)
    return stream.getvalue()
