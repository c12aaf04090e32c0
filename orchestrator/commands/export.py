"""`farm export`: a sweep's figures for other tools; `farm import`: a bundle back into a lab."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import click

from orchestrator.commands.common import lab_option, open_store, read_lab
from orchestrator.commands.completion import complete_sweep
from workloads.protocol.faults import InvalidRequest
from workloads.text import safe_text

if TYPE_CHECKING:
    from orchestrator.analysis.measurements import MeasuredRun
    from orchestrator.export.table import Table
    from orchestrator.store.database import Database
    from orchestrator.store.sweep_queries import SweepSummary
    from workloads.protocol.telemetry import Telemetry

FORMATS = ("csv", "jsonl", "parquet", "md", "latex", "trace", "bundle")
TABLES = ("figures", "ranking", "samples", "readings", "ops", "outcomes")


@dataclass(frozen=True)
class ExportOptions:
    """What is to be exported, and how."""

    form: str
    table: str
    everything: bool
    which: str


@click.command()
@click.argument("name", metavar="SWEEP", shell_complete=complete_sweep)
@lab_option
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="csv",
    show_default=True,
    help="A table; the timeline of a run for Perfetto; or all of it, for publication.",
)
@click.option(
    "--table",
    type=click.Choice(TABLES),
    default=None,
    help="One row a figure, phone and cell, window of steps, reading, operation or planned run "
    "(default: figures; for md and latex the ranking).",
)
@click.option("-o", "--output", default="", help="File to write; - for standard output.")
@click.option("--everything", is_flag=True, help="With suspect and void runs, marked as such.")
@click.option("--run", "which", default="", metavar="TRIAL.REPEAT", help="The run of a trace.")
def export(name: str, lab_folder: Path, output: str, form: str, **asked: Any) -> None:
    """Write what is known of a SWEEP to a file (simulated figures say so in its name)."""
    from orchestrator.store.sweep_queries import find_sweep

    usual = "ranking" if form in ("md", "latex") else "figures"
    wish = ExportOptions(form, asked["table"] or usual, asked["everything"], asked["which"])
    db = open_store(read_lab(lab_folder))
    sweep = find_sweep(db, name)
    with target(db, sweep, _usual_name(sweep, wish), output) as stream:
        _write(db, sweep, wish, stream)
    if incomplete(sweep):
        click.echo(incomplete(sweep), err=True)


def incomplete(sweep: "SweepSummary") -> str:
    """What is missing from a sweep's figures, as a sentence; nothing when all is there."""
    if sweep.done == sweep.total:
        return ""
    counts = f"{sweep.done} of {sweep.total} runs are done, {sweep.failed} failed"
    return f"Not all is in: {counts}, {sweep.left} are to come."


@contextmanager
def target(db: "Database", sweep: "SweepSummary", usual: str, output: str) -> Iterator[BinaryIO]:
    """Where the bytes go: a file of the usual or another name, which is there whole or not at all.

    A folder gets the usual name, and - is standard output.
    """
    if output == "-":
        yield sys.stdout.buffer
        return
    path = _path(db, sweep, usual, output)
    try:
        with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as made:
            try:
                yield cast(BinaryIO, made)
                made.close()
                Path(made.name).chmod(0o644)
                Path(made.name).replace(path)
            finally:
                Path(made.name).unlink(missing_ok=True)
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be written: {error.strerror}") from error
    click.echo(str(path))


def _usual_name(sweep: "SweepSummary", wish: ExportOptions) -> str:
    from orchestrator.export.table_writers import EXTENSIONS

    end = {"trace": "trace.json", "bundle": "bundle.zip"}.get(wish.form) or (
        f"{'' if wish.table == 'figures' else wish.table + '.'}{EXTENSIONS[wish.form]}"
    )
    return f"{sweep.name}.{end}"


def _path(db: "Database", sweep: "SweepSummary", usual: str, output: str) -> Path:
    """Name a file so that nobody takes a simulation for a measurement."""
    from orchestrator.store.sweep_queries import has_simulated_metrics

    wanted = Path(output or ".")
    if wanted.is_dir():
        wanted = wanted / usual
    if not has_simulated_metrics(db, sweep.id) or ".simulated." in wanted.name:
        return wanted
    stem, dot, end = wanted.name.partition(".")
    return wanted.with_name(f"{stem}.simulated{dot}{end}")


def _write(db: "Database", sweep: "SweepSummary", wish: ExportOptions, stream: BinaryIO) -> None:
    from orchestrator.app.app_errors import InvalidState
    from orchestrator.export.table_writers import WRITERS

    if wish.form == "bundle":
        _write_bundle(db, sweep, stream)
    elif wish.form == "trace":
        _write_trace(db, sweep, wish, stream)
    elif not WRITERS[wish.form](_table(db, sweep, wish), stream):
        raise InvalidState(
            f"{sweep.id} has no {wish.table} yet; 'farm sweep show {sweep.id}' says why"
        )


def _table(db: "Database", sweep: "SweepSummary", wish: ExportOptions) -> "Table":
    from orchestrator.export import table_schemas
    from orchestrator.store.results import run_outcomes
    from orchestrator.store.sweep_queries import sweep_seed

    seed = sweep_seed(db, sweep.id)
    if wish.table == "outcomes":
        return table_schemas.outcomes_table(seed, run_outcomes(db, sweep.id))
    if wish.table == "samples":
        return table_schemas.samples_table(seed, _telemetry(db, sweep, wish))
    if wish.table == "readings":
        return table_schemas.readings_table(seed, _telemetry(db, sweep, wish))
    if wish.table == "ops":
        return table_schemas.ops_table(seed, _telemetry(db, sweep, wish))
    if wish.table == "ranking":
        ranked = ranking(list(_runs(db, sweep, everything=True)))
        if wish.form in ("md", "latex"):
            return table_schemas.paper_table(sweep.name, ranked)
        return table_schemas.ranking_table(seed, ranked)
    return table_schemas.figures_table(seed, _runs(db, sweep, wish.everything))


def ranking(runs: "list[MeasuredRun]") -> "list[Any]":
    """The fleet in what each protocol asks for, and in energy."""
    from orchestrator.analysis.fleet_ranking import compare_fleet
    from workloads.protocol.condition import HEADLINES

    found = []
    for protocol, metric in HEADLINES.items():
        own = [run for run in runs if run.condition.protocol is protocol]
        found += [compare_fleet(own, name) for name in (metric, "energy_per_step_mj")]
    return found


def _runs(db: "Database", sweep: "SweepSummary", everything: bool) -> "Iterator[MeasuredRun]":
    from orchestrator.store.results import iterate_measured_runs

    found = iterate_measured_runs(db, sweep.id, include_void=everything)
    return (run for run in found if everything or run.valid)


def _telemetry(
    db: "Database", sweep: "SweepSummary", wish: ExportOptions
) -> "Iterator[tuple[MeasuredRun, Telemetry]]":
    """Runs with their telemetry, one at a time."""
    from orchestrator.store.results import telemetry_blob
    from workloads.protocol.telemetry import read_telemetry

    for run in _runs(db, sweep, wish.everything):
        blob = telemetry_blob(db, run.telemetry) if run.telemetry else None
        if blob is not None:
            yield run, read_telemetry(blob)


def _write_trace(
    db: "Database", sweep: "SweepSummary", wish: ExportOptions, stream: BinaryIO
) -> None:
    from orchestrator.analysis.measurements import NothingMatches
    from orchestrator.export.perfetto_trace import write_trace

    for run, recorded in _telemetry(db, sweep, wish):
        if f"{run.trial}.{run.repeat}".startswith(wish.which):
            said = f"{run.trial}.{run.repeat}: {run.facts.model}, {run.case.label}"
            click.echo(safe_text(f"the timeline of {said}, {run.condition.label}"), err=True)
            stream.write(write_trace(run, recorded))
            return
    which = f"matches '{wish.which}'" if wish.which else "has telemetry"
    raise NothingMatches(f"no valid run of {sweep.id} {which}; '--everything' looks at all runs")


def _write_bundle(db: "Database", sweep: "SweepSummary", stream: BinaryIO) -> None:
    from orchestrator.app.app_errors import InvalidState
    from orchestrator.commands.bundle import contents_of
    from orchestrator.export.bundle_file import write_bundle

    if not sweep.finished:
        raise InvalidState(f"{sweep.id} is not finished; a bundle is made of a sweep that is")
    figures = _table(db, sweep, ExportOptions("csv", "figures", True, ""))
    write_bundle(contents_of(db, sweep, figures), stream)
