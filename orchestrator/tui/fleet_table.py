"""The fleet comparison as a table: one row per phone, one column per case and condition.

What all columns share is in the caption; a heading has only what differs.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from orchestrator.app.compare_results import FleetGroup, FleetRow
from workloads.protocol.condition import Protocol
from workloads.text import safe_text
from workloads.units import format_ms

MEANINGS = {
    Protocol.COLD: "ms/step",
    Protocol.SOAKED: "ms/step, steady",
    Protocol.ENDURANCE: "ms/step, last minute",
}
_PLAIN = ("workload", "backend", "protocol", "cores", "freq")  # settings whose values say enough


@dataclass(frozen=True)
class FleetGrid:
    """Headings and rows, for a screen or a pipe."""

    shared: tuple[str, ...]
    headings: tuple[tuple[str, ...], ...]
    lines: tuple[tuple[str, ...], ...]
    sources: tuple[str, ...]
    has_unknown_error: bool = False


def fleet_grid(groups: Sequence[FleetGroup], models: Mapping[str, str]) -> FleetGrid:
    """Lay a ranking out as a table; the best phone of the first column comes first."""
    columns = [{row.phone: row for row in group.rows} for group in groups]
    phones = sorted(
        models, key=lambda phone: [c[phone].rank if phone in c else math.inf for c in columns]
    )
    lines = tuple(
        (
            safe_text(models[phone], 24),
            *(
                _cell(column[phone]) if phone in column else _why_missing(group, phone)
                for column, group in zip(columns, groups, strict=True)
            ),
        )
        for phone in phones
    )
    terms = _terms(groups)
    shared = tuple(term for term in terms[0] if all(term in other for other in terms[1:]))
    headings = [tuple(term for term in column if term not in shared) for column in terms]
    if len(groups) == 1:
        headings = [(MEANINGS[groups[0].condition.protocol],)]
    provenances = [row.provenance for column in columns for row in column.values()]
    sources = tuple(sorted({*map(str, provenances)}))
    has_unknown = any(provenance.error_unknown for provenance in provenances)
    return FleetGrid(shared, tuple(headings), lines if groups else (), sources, has_unknown)


def _terms(groups: Sequence[FleetGroup]) -> list[list[str]]:
    """The terms that describe each column: what was run, and every setting that differs."""
    cells = [group.settings for group in groups]
    names = list(dict.fromkeys(name for cell in cells for name in cell))
    differing = {name for name in names if len({cell.get(name) for cell in cells}) > 1}
    return [
        [
            *(
                f"{cell[name]}" if name in _PLAIN else f"{name}={cell[name]}"
                for name in names
                if name in cell and (name in differing or name in {*_PLAIN, *group.case.parameters})
            ),
            MEANINGS[group.condition.protocol],
        ]
        for group, cell in zip(groups, cells, strict=True)
    ]


def _why_missing(group: FleetGroup, phone: str) -> str:
    """Why a phone has no value in a column."""
    unranked = next((one for one in group.unranked if one.phone == phone), None)
    if unranked is None:
        return "not run"
    counts = ((unranked.suspect, "suspect"), (unranked.void, "void"))
    return ", ".join(f"{count} {word}" for count, word in counts if count) or unranked.reason.value


def _cell(row: FleetRow) -> str:
    """The median, its interval where its error is known, and its ratio to the fastest phone."""
    ends, spread = row.interval.known_ends, ""
    if row.n == 1:
        spread = " n=1"
    elif ends and row.interval.is_symmetric:
        spread = f" ±{row.interval.half_width_rel:.1%}"
    elif ends:
        spread = f" ({format_ms(ends[0])} to {format_ms(ends[1])})"
    ratio = "" if row.ratio is None else f"  {row.ratio:.2f}x"
    return f"{format_ms(row.median)}{spread}{ratio}"


def fleet_tables(grid: FleetGrid, width: int) -> list[Table]:
    """Split the table into tables that fit the width of a screen."""
    first = max(len(line[0]) for line in grid.lines) + 2
    widths = [
        2 + max([len(term) for term in heading] + [len(line[index + 1]) for line in grid.lines])
        for index, heading in enumerate(grid.headings)
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
    """Say what the numbers are and where they come from."""
    shared = f" ({', '.join(grid.shared)})" if grid.shared else ""
    what = f"Medians over runs{shared} with intervals; x: ratio to the fastest phone."
    if grid.has_unknown_error:
        what += " Without interval: simulated, error unknown."
    return f"{what} Source: {', '.join(grid.sources)}."
