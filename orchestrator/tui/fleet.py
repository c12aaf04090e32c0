"""The fleet comparison as a table: one line a phone, one column a case under a condition."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from orchestrator.analysis.compare import FleetGroup, FleetRow, compare_fleet
from orchestrator.nouns import MeasuredRun
from workloads.condition import Protocol
from workloads.text import safe_text
from workloads.units import format_ms

# which figure answers a protocol's question, and how its column is headed
FIGURE = {
    Protocol.COLD: ("step_ms", "ms/step"),
    Protocol.ENDURANCE: ("last_minute_step_ms", "ms/step, last minute"),
}


@dataclass(frozen=True)
class FleetGrid:
    """Headings and lines, ready for a screen or a pipe."""

    headings: tuple[tuple[str, str, str], ...]
    lines: tuple[tuple[str, ...], ...]
    sources: tuple[str, ...]
    runs: tuple[int, ...]


def fleet_grid(runs: Sequence[MeasuredRun], mix: bool = False) -> FleetGrid:
    """Lay the comparison out; the best phone of the first column comes first."""
    columns: list[tuple[str, FleetGroup]] = []
    for protocol, (metric, unit) in FIGURE.items():
        groups = compare_fleet(runs, metric, mix).groups
        columns += [(unit, group) for group in groups if group.condition.protocol is protocol]
    rows = [{row.phone: row for row in group.rows} for _, group in columns]
    known = {run.phone: run.facts.model for run in runs}
    phones = sorted(known, key=lambda phone: tuple(_place(row, phone) for row in rows))
    lines = tuple(
        (safe_text(known[phone], 24), *(_cell(column.get(phone)) for column in rows))
        for phone in phones
    )
    sources = sorted({str(row.provenance) for column in rows for row in column.values()})
    counts = sorted({row.n for column in rows for row in column.values()})
    headings = tuple((group.case.label, group.condition.label, unit) for unit, group in columns)
    return FleetGrid(headings, lines, tuple(sources), tuple(counts))


def _place(rows: dict[str, FleetRow], phone: str) -> float:
    return rows[phone].rank if phone in rows else float("inf")


def _cell(row: FleetRow | None) -> str:
    if row is None:
        return "-"
    half = (row.interval.high - row.interval.low) / 2 / row.median
    ratio = "" if row.ratio is None else f"  {row.ratio:.2f}x"
    return f"{format_ms(row.median)} ±{half:.1%}{ratio}"


def fleet_table(grid: FleetGrid) -> Table:
    """The grid for a screen."""
    table = Table(title=None, header_style="bold", pad_edge=False, box=None, padding=(0, 2))
    table.add_column("PHONE")
    for heading in grid.headings:
        table.add_column(Text("\n".join(heading)), justify="right")
    for line in grid.lines:
        table.add_row(*(Text(cell) for cell in line))
    return table


def source_note(grid: FleetGrid) -> str:
    """What the numbers are and where they come from, as a sentence."""
    counts = " to ".join(str(count) for count in sorted({*grid.runs[:1], *grid.runs[-1:]}))
    what = f"Medians of {counts or 'no'} runs with their spread; x times the fastest of the column."
    return f"{what} Source: {', '.join(grid.sources) or 'none'}."
