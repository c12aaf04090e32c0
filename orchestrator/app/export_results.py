"""Exports a sweep: tables, a timeline of one run, a report page, a bundle."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from io import BytesIO
from typing import BinaryIO

from orchestrator.analysis.failure_groups import FAILED_STATES
from orchestrator.analysis.fleet_ranking import FleetTable, compare_fleet
from orchestrator.analysis.measurements import MeasuredRun, NothingMatches
from orchestrator.app.app_errors import InvalidState
from orchestrator.app.control_sweeps import find_sweep
from orchestrator.app.exchange_bundles import write_sweep_bundle
from orchestrator.app.export_formats import FORMATS, TABLES
from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.operation import Download, Role, operation
from orchestrator.export import table_schemas
from orchestrator.export.formats import TABLE_FORMATS
from orchestrator.export.perfetto_trace import write_trace
from orchestrator.export.report.page import (
    CONTENT_POLICY,
    choose_figure,
    render_page,
    report_figures,
    write_figure,
)
from orchestrator.export.report.paper_table import paper_table
from orchestrator.export.report.report_data import ENERGY, ReportInput, SweepRecord
from orchestrator.export.result_lines import StoredReport, results_digest, write_results
from orchestrator.export.table import Table
from orchestrator.export.table_writers import csv_pieces, write_latex
from orchestrator.store import results, sweep_queries
from orchestrator.store.database import Database
from orchestrator.store.sweep_queries import SweepSummary
from orchestrator.store.verdict_totals import with_left_out
from workloads.protocol.condition import HEADLINES
from workloads.protocol.faults import InvalidRequest
from workloads.protocol.limits import TELEMETRY_BYTES_MAX, TELEMETRY_TOGETHER_BYTES_MAX
from workloads.protocol.restored_memory import RestoredMemory
from workloads.protocol.telemetry import Telemetry, read_telemetry
from workloads.text import safe_text
from workloads.units import count_text

TRACES_MAX = 200  # runs whose telemetry a report draws: one per phone and cell
ENERGY_METRIC = "energy_per_step_mj"

RecordedRun = tuple[MeasuredRun, Telemetry]


@dataclass(frozen=True)
class ExportRequest:
    """What is exported, and in which format."""

    format: str
    table: str
    include_invalid: bool = False
    run: str = ""  # TRIAL.REPEAT, or a prefix of it, for a timeline

    def __post_init__(self) -> None:
        for value, known in ((self.format, FORMATS), (self.table, TABLES)):
            if value not in known:
                shown = safe_text(value, 40)
                raise InvalidRequest(f"'{shown}' cannot be exported; use {', '.join(known)}")


@dataclass(frozen=True)
class Export:
    """An export that can be written; file names of simulated results contain 'simulated'."""

    file_name: str
    simulated: bool
    incomplete: str  # which runs are missing; empty if the sweep is complete
    left_out: str  # how many runs do not count, and why


@dataclass(frozen=True)
class ReportFile:
    """A report page."""

    file_name: str
    simulated: bool
    html: str
    policy: str = CONTENT_POLICY  # of the page, as the header Content-Security-Policy


@dataclass(frozen=True)
class FigureFile:
    """A figure of a report as a file for a paper, with a caption."""

    name: str
    kind: str  # pdf, svg, png
    title: str
    caption: str
    content: bytes


@operation(Role.VIEWER)
def prepare_export(lab: LabConnection, name: str, request: ExportRequest) -> Export:
    """Return the name of an export's file, and what is missing in it."""
    sweep = find_sweep(lab, name)
    simulated = sweep_queries.has_simulated_metrics(lab.store, sweep.id)
    left_out = _left_out_text(lab.store, sweep)
    name = marked_name(_file_name(sweep, request), simulated)
    return Export(name, simulated, incomplete_text(sweep), left_out)


@operation(Role.VIEWER, heavy=True)
def write_export(lab: LabConnection, name: str, request: ExportRequest, stream: Download) -> str:
    """Write the export of a sweep; return a note for the user, or nothing."""
    return _write(lab.store, find_sweep(lab, name), request, stream)


@operation(Role.VIEWER, heavy=True)
def prepare_report(lab: LabConnection, name: str, allow_mixed: bool = False) -> ReportFile:
    """Render the report page of a sweep."""
    sweep = find_sweep(lab, name)
    html = page_of_sweep(lab.store, sweep, allow_mixed)
    simulated = sweep_queries.has_simulated_metrics(lab.store, sweep.id)
    return ReportFile(marked_name(f"{sweep.name}.html", simulated), simulated, html)


@operation(Role.VIEWER, heavy=True)
def draw_figures(
    lab: LabConnection,
    name: str,
    kinds: tuple[str, ...] = ("svg",),
    which: str | None = None,
    allow_mixed: bool = False,
) -> list[FigureFile]:
    """Draw figures of a sweep's report for a paper: all, one by its name, or "", the main one."""
    sweep = find_sweep(lab, name)
    given = report_input(lab.store, [sweep], allow_mixed)
    if not given.runs:
        raise InvalidState(
            f"{sweep.id} has no results yet; 'farm sweep show {sweep.id}' shows its state"
        )
    figures = report_figures(given)
    chosen = figures if which is None else [choose_figure(figures, which)]
    return [
        FigureFile(f.name, kind, f.title, f.caption, write_figure(f, kind, given))
        for f in chosen
        for kind in kinds
    ]


@operation(Role.VIEWER)
def read_results_digest(lab: LabConnection, name: str) -> tuple[str, int]:
    """Return the digest of all that a sweep measured, and of how many reports it is."""
    return results_digest(_stored_reports(lab.store, find_sweep(lab, name)))


@operation(Role.VIEWER)
def all_runs(lab: LabConnection, name: str) -> list[MeasuredRun]:
    """Return all runs of a sweep, void ones too."""
    sweep = find_sweep(lab, name)
    return results.measured_runs(lab.store, sweep.id, include_void=True)


@operation(Role.VIEWER)
def result_files(lab: LabConnection, name: str) -> dict[str, bytes]:
    """Return a sweep's report page and its ranking as CSV and LaTeX, by file name."""
    sweep = find_sweep(lab, name)
    runs = results.measured_runs(lab.store, sweep.id, include_void=True)
    seed = sweep_queries.sweep_seed(lab.store, sweep.id)
    rankings, latex = rank_fleet(runs), BytesIO()
    note = _caption_note(lab.store, sweep)
    write_latex(paper_table(sweep.name, rank_fleet(runs, ENERGY), note), latex)
    return {
        "report.html": page_of_sweep(lab.store, sweep).encode(),
        "comparison.csv": b"".join(csv_pieces(table_schemas.ranking_table(seed, rankings))),
        "comparison.tex": latex.getvalue(),
    }


def marked_name(name: str, simulated: bool) -> str:
    """Return the name of a file; that of simulated results contains 'simulated'."""
    stem, dot, extension = name.partition(".")
    is_marked = not simulated or ".simulated." in name
    return name if is_marked else f"{stem}.simulated{dot}{extension}"


def _left_out_text(store: Database, sweep: SweepSummary) -> str:
    """How many runs of a sweep do not count, and the most frequent reason."""
    (counted,) = with_left_out(store, [sweep])
    return f"{counted.left_out.text}." if counted.left_out.text else ""


def _caption_note(store: Database, sweep: SweepSummary) -> str:
    """Which runs a table of a sweep does not have, and how many do not count."""
    return f"{incomplete_text(sweep)} {_left_out_text(store, sweep)}".strip()


def incomplete_text(sweep: SweepSummary) -> str:
    """Which runs of a sweep are missing from its results; empty if the sweep is complete."""
    if not sweep.missing:
        return ""
    counts = f"{sweep.done} of {sweep.total} runs done, {sweep.failed} failed"
    return f"Incomplete: {counts}, {sweep.left} left."


def page_of_sweep(store: Database, sweep: SweepSummary, allow_mixed: bool = False) -> str:
    """Render the report of a sweep, with the telemetry of the first valid run of every trial."""
    unreadable: list[MeasuredRun] = []
    given = report_input(store, [sweep], allow_mixed, unreadable)
    if not given.runs and not given.failures:
        raise InvalidState(
            f"{sweep.id} has no results yet; 'farm sweep show {sweep.id}' shows its state"
        )
    notes = (incomplete_text(sweep), _unreadable_text(unreadable))
    return render_page(sweep.name, given, " ".join(note for note in notes if note))


def report_input(
    store: Database,
    sweeps: Sequence[SweepSummary],
    allow_mixed: bool = False,
    unreadable: list[MeasuredRun] | None = None,
) -> ReportInput:
    """Read what the report of some sweeps is made of; `unreadable` gets runs without telemetry."""
    lost = [] if unreadable is None else unreadable
    runs, recorded = recorded_runs(store, [sweep.id for sweep in sweeps], lost)
    failures = [
        failed
        for sweep in sweeps
        for failed in results.run_outcomes(store, sweep.id, FAILED_STATES)
    ]
    records = [
        SweepRecord(
            *(sweep.id, sweep.name, sweep_queries.sweep_source(store, sweep.id)),
            sweep_queries.sweep_seed(store, sweep.id),
        )
        for sweep in sweeps
    ]
    return ReportInput(runs, recorded, failures, records, allow_mixed, version("farmhand"))


def recorded_runs(
    store: Database, sweeps: Sequence[str], unreadable: list[MeasuredRun]
) -> tuple[list[MeasuredRun], list[RecordedRun]]:
    """All runs of sweeps, and the telemetry of the first valid run of every trial."""
    runs = [
        run for sweep in sweeps for run in results.measured_runs(store, sweep, include_void=True)
    ]
    first = {run.trial: run for run in reversed(runs) if run.valid and run.telemetry}
    chosen = list(first.values())[:TRACES_MAX]
    together = RestoredMemory(TELEMETRY_TOGETHER_BYTES_MAX)
    return runs, list(with_telemetry(store, chosen, unreadable, together))


def with_telemetry(
    store: Database,
    runs: Iterable[MeasuredRun],
    unreadable: list[MeasuredRun],
    together: RestoredMemory | None = None,
) -> Iterator[RecordedRun]:
    """Yield runs with their telemetry, one at a time; runs whose telemetry is malformed are noted.

    A host may have sent anything, and one run must not keep the others from being read. `together`
    limits the runs of a caller who keeps all of them.
    """
    for run in runs:
        blob = results.telemetry_blob(store, run.telemetry) if run.telemetry else None
        if blob is None:
            continue
        try:
            allowed = min(TELEMETRY_BYTES_MAX, together.left if together else TELEMETRY_BYTES_MAX)
            own = RestoredMemory(allowed)
            telemetry = read_telemetry(blob, own)
        except InvalidRequest:
            unreadable.append(run)
        else:
            if together is not None:
                together.spend(allowed - own.left)
            yield run, telemetry


def _unreadable_text(runs: Sequence[MeasuredRun]) -> str:
    count = count_text(len(runs), "run")
    return f"The telemetry of {count} is malformed and left out." if runs else ""


def rank_fleet(runs: Sequence[MeasuredRun], energy: str = ENERGY_METRIC) -> list[FleetTable]:
    """Rank the phones by the headline metric of each protocol, and by an energy."""
    rankings = []
    for protocol, metric in HEADLINES.items():
        of_protocol = [run for run in runs if run.condition.protocol is protocol]
        rankings += [compare_fleet(of_protocol, name) for name in (metric, energy)]
    return rankings


def _file_name(sweep: SweepSummary, request: ExportRequest) -> str:
    special = {"trace": "trace.json", "bundle": "bundle.zip", "results": "results.jsonl"}.get(
        request.format
    )
    if special is not None:
        return f"{sweep.name}.{special}"
    table = "" if request.table == "figures" else f"{request.table}."
    return f"{sweep.name}.{table}{TABLE_FORMATS[request.format].extension}"


def _write(store: Database, sweep: SweepSummary, request: ExportRequest, stream: BinaryIO) -> str:
    if request.format == "bundle":
        figures = _table(store, sweep, ExportRequest("csv", "figures", include_invalid=True), [])
        write_sweep_bundle(store, sweep, figures, stream)
        return ""
    if request.format == "results":
        if write_results(_stored_reports(store, sweep), stream):
            return ""
        raise InvalidState(f"{sweep.id} has no report yet")
    if request.format == "trace":
        return _write_trace(store, sweep, request, stream)
    unreadable: list[MeasuredRun] = []
    table = _table(store, sweep, request, unreadable)
    if not TABLE_FORMATS[request.format].write(table, stream):
        (counted,) = with_left_out(store, [sweep])
        if counted.left_out.text and request.table == "figures":
            raise InvalidState(
                f"{sweep.id} has no valid run: {counted.left_out.text}; "
                "'--include-invalid' exports all runs"
            )
        raise InvalidState(
            f"{sweep.id} has no {request.table} yet; 'farm sweep show {sweep.id}' shows its state"
        )
    return _unreadable_text(unreadable)


def _table(
    store: Database, sweep: SweepSummary, request: ExportRequest, unreadable: list[MeasuredRun]
) -> Table:
    seed = sweep_queries.sweep_seed(store, sweep.id)
    recorded = with_telemetry(store, _runs(store, sweep, request.include_invalid), unreadable)
    kinds = table_schemas.parameter_kinds(results.cases_of_sweep(store, sweep.id))
    first = table_schemas.RunColumns(seed, kinds)
    match request.table:
        case "outcomes":
            return table_schemas.outcomes_table(seed, results.run_outcomes(store, sweep.id))
        case "samples":
            return table_schemas.samples_table(first, recorded)
        case "readings":
            return table_schemas.readings_table(first, recorded)
        case "ops":
            return table_schemas.ops_table(first, recorded)
        case "ranking":
            runs = list(_runs(store, sweep, include_invalid=True))
            if request.format in ("md", "latex"):
                note = _caption_note(store, sweep)
                return paper_table(sweep.name, rank_fleet(runs, ENERGY), note)
            return table_schemas.ranking_table(seed, rank_fleet(runs))
        case _:
            counted = _runs(store, sweep, request.include_invalid)
            return table_schemas.figures_table(first, counted)


def _stored_reports(store: Database, sweep: SweepSummary) -> Iterator[StoredReport]:
    return (StoredReport(*stored) for stored in results.stored_reports(store, sweep.id))


def _runs(store: Database, sweep: SweepSummary, include_invalid: bool) -> Iterator[MeasuredRun]:
    runs = results.iterate_measured_runs(store, sweep.id, include_void=include_invalid)
    return (run for run in runs if include_invalid or run.valid)


def _write_trace(
    store: Database, sweep: SweepSummary, request: ExportRequest, stream: BinaryIO
) -> str:
    runs = _runs(store, sweep, request.include_invalid)
    for run, telemetry in with_telemetry(store, runs, []):
        name = f"{run.trial}.{run.repeat}"
        if name.startswith(request.run):
            stream.write(write_trace(run, telemetry))
            what = f"{run.facts.model}, {run.case.label}, {run.condition.label}"
            return safe_text(f"timeline of {name}: {what}")
    which = f"matches '{request.run}'" if request.run else "has telemetry"
    raise NothingMatches(
        f"no valid run of {sweep.id} {which}; '--include-invalid' searches all runs"
    )
