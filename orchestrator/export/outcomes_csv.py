"""Outcomes as CSV: one row per run that was planned, whether it came to figures or not.

What fits, what swaps, what is killed and what was never tried are findings like any other.
"""

import csv
import json
from collections.abc import Iterable
from typing import TextIO

from orchestrator.export.cell import text_cell
from orchestrator.nouns import RunOutcome

COLUMNS = (
    "trial",
    "repeat",
    "phone",
    "workload",
    "parameters",
    "protocol",
    "cores",
    "freq",
    "state",
    "verdict",
    "memory",
    "peak_rss_mb",
    "why",
)


def write_outcomes_csv(outcomes: Iterable[RunOutcome], stream: TextIO) -> int:
    """Write outcomes; answer how many rows."""
    writer = csv.writer(stream, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    rows = 0
    for each in outcomes:
        writer.writerow(
            [
                text_cell(each.trial),
                each.repeat,
                text_cell(each.phone),
                text_cell(each.case.name),
                text_cell(json.dumps(each.case.parameters, sort_keys=True)),
                text_cell(each.condition.protocol),
                text_cell(each.condition.cores),
                text_cell(each.condition.freq),
                text_cell(each.state),
                text_cell(each.verdict or ""),
                text_cell(each.fit or ""),
                each.peak_rss_mb,
                text_cell(each.why),
            ]
        )
        rows += 1
    return rows
