"""A fleet comparison as CSV: one row per group and phone, each saying where its number comes from.

Phones without a run that counts stand there too, without a rank.
"""

import csv
import json
from typing import TextIO

from orchestrator.analysis.compare import Absent, FleetGroup, FleetRow, FleetTable
from orchestrator.export.cell import text_cell

COLUMNS = (
    "metric",
    "unit",
    "workload",
    "parameters",
    "protocol",
    "cores",
    "freq",
    "rank",
    "phone",
    "model",
    "soc",
    "n",
    "median",
    "low",
    "high",
    "interval",
    "ratio",
    "suspect",
    "void",
    "control",
    "source",
    "model_kind",
    "error_rel",
    "claim",
)
Cell = str | int | float | None


def write_comparison_csv(table: FleetTable, stream: TextIO) -> int:
    """Write a comparison; answer how many rows."""
    writer = csv.writer(stream, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    rows = [
        [*_cell(table, group), *result]
        for group in table.groups
        for result in [*map(_result, group.rows), *map(_no_result, group.absent)]
    ]
    writer.writerows(rows)
    return len(rows)


def _cell(table: FleetTable, group: FleetGroup) -> list[Cell]:
    return [
        text_cell(table.metric),
        text_cell(table.unit),
        text_cell(group.case.name),
        text_cell(json.dumps(group.case.parameters, sort_keys=True)),
        text_cell(group.condition.protocol),
        text_cell(group.condition.cores),
        text_cell(group.condition.freq),
    ]


def _result(row: FleetRow) -> list[Cell]:
    return [
        row.rank,
        text_cell(row.phone),
        text_cell(row.model),
        text_cell(row.soc),
        row.n,
        row.median,
        row.interval.low,
        row.interval.high,
        text_cell(row.interval.kind),
        row.ratio,
        row.suspect,
        row.void,
        text_cell(row.control or ""),
        text_cell(row.provenance.source),
        text_cell(row.provenance.model or ""),
        row.provenance.error_rel,
        text_cell(row.claim),
    ]


def _no_result(row: Absent) -> list[Cell]:
    names = [text_cell(row.phone), text_cell(row.model), text_cell(row.soc)]
    nothing: list[Cell] = [None] * 5
    counts: list[Cell] = [row.suspect, row.void]
    return [None, *names, 0, *nothing, *counts, None, None, None, None, "no valid run"]
