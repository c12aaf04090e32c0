"""Runs as CSV, in long form: one row per run and metric, so that no unit hides in a heading.

RFC 4180; open the stream with newline="". Runs that do not count are left out unless asked for.
"""

import csv
import json
from collections.abc import Iterable
from typing import TextIO

from orchestrator.export.cell import text_cell
from orchestrator.nouns import MeasuredRun
from workloads.measure import Metric, Source

COLUMNS = (
    "sweep",
    "trial",
    "repeat",
    "attempt",
    "block",
    "position",
    "phone",
    "model",
    "soc",
    "host",
    "workload",
    "parameters",
    "protocol",
    "cores",
    "freq",
    "control",
    "verdict",
    "reasons",
    "metric",
    "value",
    "unit",
    "source",
    "model_kind",
    "error_rel",
    "started_at",
    "ended_at",
)


def write_csv(runs: Iterable[MeasuredRun], stream: TextIO, everything: bool = False) -> int:
    """Write runs, valid ones only unless everything is asked for; answer how many rows."""
    writer = csv.writer(stream, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    rows = 0
    for run in runs:
        if run.valid or everything:
            for _, metric in sorted(run.metrics.items()):
                writer.writerow(_row(run, metric))
                rows += 1
    return rows


def file_name(base: str, runs: Iterable[MeasuredRun], extension: str = "csv") -> str:
    """Name a file so that nobody takes a simulation for a measurement."""
    return f"{base}.simulated.{extension}" if any_simulated(runs) else f"{base}.{extension}"


def any_simulated(runs: Iterable[MeasuredRun]) -> bool:
    """Whether a single number among them was simulated."""
    return any(
        metric.provenance.source is Source.SIMULATED
        for run in runs
        for metric in run.metrics.values()
    )


def _row(run: MeasuredRun, metric: Metric) -> list[str | int | float | None]:
    return [
        text_cell(run.sweep),
        text_cell(run.trial),
        run.repeat,
        run.attempt,
        run.block,
        run.position,
        text_cell(run.phone),
        text_cell(run.facts.model),
        text_cell(run.facts.soc),
        text_cell(run.host),
        text_cell(run.case.name),
        text_cell(json.dumps(run.case.parameters, sort_keys=True)),
        text_cell(run.condition.protocol),
        text_cell(run.condition.cores),
        text_cell(run.condition.freq),
        text_cell(run.control or ""),
        text_cell(run.verdict.standing),
        text_cell("; ".join(run.verdict.reasons)),
        text_cell(metric.name),
        metric.value,
        text_cell(metric.unit),
        text_cell(metric.provenance.source),
        text_cell(metric.provenance.model or ""),
        metric.provenance.error_rel,
        run.started_at.isoformat(),
        run.ended_at.isoformat(),
    ]
