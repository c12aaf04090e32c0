"""The fleet comparison as a table: one line a phone, one column a case under a condition.

What all columns share stands once, in the caption; the headings say only what tells them apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from orchestrator.analysis.fleet_ranking import FleetGroup, FleetRow, compare_fleet
from orchestrator.analysis.measurements import MeasuredRun
from workloads.protocol.condition import HEADLINES, Protocol
from workloads.text import safe_text
from workloads.units import format_ms

MEANINGS = {
    Protocol.COLD: "ms/step",
    Protocol.SOAKED: "ms/step, steady",
    Protocol.ENDURANCE: "ms/step, last minute",
}


@dataclass(frozen=True)
class FleetGrid:
    """Headings and lines, ready for a screen or a pipe."""

    shared: tuple[str, ...]
    headings: tuple[tuple[str, ...], ...]
    lines: tuple[tuple[str, ...], ...]
    sources: tuple[str, ...]


def fleet_grid(runs: Sequence[MeasuredRun], mix: bool = False) -> FleetGrid:
    """Lay the comparison out; the best phone of the first column comes first."""
    groups: list[FleetGroup] = []
    for protocol, metric in HEADLINES.items():
        found = compare_fleet(runs, metric, mix).groups
        groups += [group for group in found if group.condition.protocol is protocol]
    columns = [{row.phone: row for row in group.rows} for group in groups]
    known = {run.phone: run.facts.model for run in runs}
    phones = sorted(known, key=lambda phone: tuple(_place(column, phone) for column in columns))
    lines = tuple(
        (safe_text(known[phone], 24), *(_cell(column.get(phone)) for column in columns))
        for phone in phones
    )
    words = [_words(group) for group in groups]
    shared = tuple(word for word in words[0] if all(word in other for other in words[1:]))
    own = [tuple(word for word in each if word not in shared) for each in words]
    if len(groups) == 1:
        own = [(MEANINGS[groups[0].condition.protocol],)]
    sources = sorted({str(row.provenance) for column in columns for row in column.values()})
    return FleetGrid(shared, tuple(own), lines if groups else (), tuple(sources))


def _words(group: FleetGroup) -> list[str]:
    """What a column is, word by word."""
    case, condition = group.case, group.condition
    parameters = [f"{key}={value}" for key, value in sorted(case.parameters.items())]
    asked = [condition.protocol.value, condition.cores, condition.freq]
    return [case.name, *parameters, *asked, MEANINGS[condition.protocol]]


def _place(rows: dict[str, FleetRow], phone: str) -> float:
    return rows[phone].rank if phone in rows else float("inf")


def _cell(row: FleetRow | None) -> str:
    """Median, its spread over runs, and how many times the fastest; one run has no spread."""
    if row is None:
        return "-"
    half = (row.interval.high - row.interval.low) / 2 / row.median
    spread = f"±{half:.1%}" if row.n > 1 else "n=1"
    ratio = "" if row.ratio is None else f"  {row.ratio:.2f}x"
    return f"{format_ms(row.median)} {spread}{ratio}"


def fleet_tables(grid: FleetGrid, width: int) -> list[Table]:
    """The grid for a screen, in as many tables as its width asks for."""
    first = max(len(line[0]) for line in grid.lines) + 2
    widths = [
        2 + max(*(len(word) for word in heading), *(len(line[at + 1]) for line in grid.lines))
        for at, heading in enumerate(grid.headings)
    ]
    tables, start = [], 0
    while start < len(widths):
        end = start + 1
        while end < len(widths) and first + sum(widths[start : end + 1]) <= width:
            end += 1
        tables.append(_table(grid, start, end))
        start = end
    return tables


def _table(grid: FleetGrid, start: int, end: int) -> Table:
    table = Table(header_style="bold", pad_edge=False, box=None, padding=(0, 2, 0, 0))
    table.add_column("PHONE", no_wrap=True)
    for heading in grid.headings[start:end]:
        table.add_column(Text("\n".join(heading)), justify="right", no_wrap=True)
    for line in grid.lines:
        table.add_row(*(Text(cell) for cell in (line[0], *line[start + 1 : end + 1])))
    return table


def caption(grid: FleetGrid) -> str:
    """What the numbers are and where they come from, as a sentence."""
    of = f" ({', '.join(grid.shared)})" if len(grid.shared) > 0 else ""
    what = f"Medians over runs{of}, with their spread; x times the fastest of the column."
    return f"{what} Source: {', '.join(grid.sources)}."
