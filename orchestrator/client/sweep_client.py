"""A sweep for programs and notebooks: wait for it, control it, take its results."""

import io
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from orchestrator.app import control_sweeps
from orchestrator.app.app_errors import InvalidState, TimedOut
from orchestrator.app.control_sweeps import OperatorChange, SweepNote, SweepSummary
from orchestrator.app.export_results import (
    ExportRequest,
    draw_figures,
    prepare_report,
    write_export,
)
from orchestrator.app.lab_changes import open_poller
from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.lab_status import LabView
from orchestrator.app.read_trials import TrialSummary, list_trials
from orchestrator.app.screen.waiting_sweep import SweepWait, find_obstacles, obstacle_text
from workloads.protocol.faults import InvalidRequest
from workloads.units import format_duration

if TYPE_CHECKING:
    from pandas import DataFrame

POLL_INTERVAL_S = 1.0


class SweepClient:
    """A sweep of a lab. Its results are DataFrames of pandas, or dictionaries with `rows`."""

    def __init__(self, connection: LabConnection, summary: SweepSummary) -> None:
        self._connection = connection
        self.summary = summary  # its counts when it was read; `refresh` reads them again
        self.id, self.name = summary.id, summary.name

    def __repr__(self) -> str:
        return f"<Sweep {self.name} ({self.id}): {_progress(self.summary)}>"

    def refresh(self) -> Self:
        """Read the counts again."""
        self.summary = control_sweeps.find_sweep(self._connection, self.id)
        return self

    def wait(self, progress: bool = False, timeout_s: float | None = None) -> Self:
        """Wait until no run is left; `progress` prints a line that is kept up to date.

        InvalidState if only a person can continue the sweep, TimedOut after `timeout_s`.
        """
        poller, obstacles, started = open_poller(self._connection, self.id), SweepWait(), _now()
        while True:
            view = poller.poll()
            self.summary = view.sweeps[0]
            if progress:
                sys.stderr.write(f"\r{_progress_line(view):<78}")
                sys.stderr.flush()
            stuck = obstacles.is_stuck(view)
            late = timeout_s is not None and _now() - started >= timeout_s
            if self.summary.finished or stuck or late:
                break
            time.sleep(POLL_INTERVAL_S)
        if progress:
            sys.stderr.write("\n")
        if stuck and not self.summary.finished:
            text = obstacle_text(find_obstacles(view))
            raise InvalidState(f"{self.name} does not continue by itself: {text}")
        if not self.summary.finished:
            raise TimedOut(f"{self.name} has runs left: {_progress(self.summary)}")
        return self

    def figures(self, include_invalid: bool = False) -> "DataFrame":
        """Return one row per run and metric; only valid runs, unless asked otherwise."""
        return self.table("figures", include_invalid)

    def samples(self, include_invalid: bool = False) -> "DataFrame":
        """Return one row per window of steps."""
        return self.table("samples", include_invalid)

    def readings(self, include_invalid: bool = False) -> "DataFrame":
        """Return one row per sensor value."""
        return self.table("readings", include_invalid)

    def operations(self, include_invalid: bool = False) -> "DataFrame":
        """Return one row per operation of the network."""
        return self.table("ops", include_invalid)

    def ranking(self) -> "DataFrame":
        """Return the phones in their order, per cell."""
        return self.table("ranking")

    def outcomes(self) -> "DataFrame":
        """Return one row per run, with its state and why."""
        return self.table("outcomes")

    def table(self, name: str, include_invalid: bool = False) -> "DataFrame":
        """Return a table of `farm export`."""
        try:
            import pandas
        except ImportError as error:
            raise InvalidRequest(
                f"pandas is not installed; install it with pip, or use rows('{name}')"
            ) from error
        return pandas.DataFrame(self.rows(name, include_invalid))

    def rows(self, table: str, include_invalid: bool = False) -> list[dict[str, Any]]:
        """Return the rows of a table as dictionaries; needs no pandas."""
        stream = io.BytesIO()
        request = ExportRequest("jsonl", table, include_invalid)
        write_export(self._connection, self.id, request, stream)
        return [json.loads(line) for line in stream.getvalue().splitlines()]

    def trials(self, limit: int = 1000) -> list[TrialSummary]:
        """List the trials."""
        return list_trials(self._connection, self.id, limit)

    def save_report(self, file: str | Path = "") -> Path:
        """Write the report page, by default as `farm report` names it; return its path."""
        report = prepare_report(self._connection, self.id)
        path = Path(file or report.file_name)
        path.write_text(report.html, encoding="utf-8")
        return path

    def save_figure(self, file: str | Path, name: str = "") -> Path:
        """Write the main figure of the report, or a named one, as .pdf, .svg or .png."""
        path = Path(file)
        kind = path.suffix.removeprefix(".").lower()
        (figure,) = draw_figures(self._connection, self.id, (kind,), name)
        path.write_bytes(figure.content)
        return path

    def note(self, text: str) -> OperatorChange:
        """Write a note on the sweep."""
        return control_sweeps.add_note(self._connection, self.id, text)

    def notes(self) -> list[SweepNote]:
        """List the notes, the oldest first."""
        return control_sweeps.list_notes(self._connection, self.id)

    def pause(self, reason: str = "") -> OperatorChange:
        """Start no more runs; running ones finish."""
        return control_sweeps.pause_sweep(self._connection, self.id, reason)

    def resume(self) -> OperatorChange:
        """Continue a paused or cancelled sweep."""
        return control_sweeps.resume_sweep(self._connection, self.id)

    def cancel(self) -> OperatorChange:
        """Drop the queued runs and stop the running ones; results are kept."""
        return control_sweeps.cancel_sweep(self._connection, self.id)

    def retry(self) -> OperatorChange:
        """Queue failed and blocked runs again."""
        return control_sweeps.retry_sweep(self._connection, self.id)


def _now() -> float:
    return time.monotonic()


def _progress(summary: SweepSummary) -> str:
    failed = f", {summary.failed} failed" if summary.failed else ""
    return f"{summary.ended} of {summary.total} runs ended{failed}"


def _progress_line(view: LabView) -> str:
    summary, rest = view.sweeps[0], view.rest
    is_known = rest is not None and not rest.unknown and not summary.finished
    left = f", about {format_duration(rest.likely_s)} left" if rest and is_known else ""
    return f"{summary.name}: {_progress(summary)}{left}"
