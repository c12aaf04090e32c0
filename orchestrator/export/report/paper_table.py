"""The table that a paper prints: phone models and conditions, with units, and a caption."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from orchestrator.analysis.cell_axes import BACKEND, FREQ, PROTOCOL, CellAxis, varying_axes
from orchestrator.analysis.fleet_ranking import FleetGroup, FleetTable
from orchestrator.analysis.measurements import weakest_provenance
from orchestrator.export.report.report_data import (
    ENERGY,
    ModelValue,
    pooled_values,
    readable_unit,
    unit_of,
)
from orchestrator.export.table import CellValue, Table, TableBlock, TableColumn
from workloads.protocol.condition import HEADLINES, Protocol

COLUMNS_MAX = 6  # conditions side by side; more of them become rows
_WHEN = {Protocol.COLD: "cold", Protocol.SOAKED: "steady heat", Protocol.ENDURANCE: "10 min"}

SOURCE = TableColumn("source", str)
Cells = list[tuple[FleetGroup, dict[str, ModelValue]]]


def paper_table(name: str, tables: Iterable[FleetTable], note: str = "") -> Table:
    """Return the table of a sweep: a row per phone model, or per model and condition."""
    tables = list(tables)
    times = _cells(tables, set(HEADLINES.values()))
    energies = _cells(tables, {ENERGY})
    axes = varying_axes(group.settings for group, _ in times)
    is_long = len(times) > COLUMNS_MAX or any(axis.name == FREQ for axis in axes)
    columns, blocks = _without_one_source(*(_long if is_long else _wide)(times, energies, axes))
    values = [value for _, by_model in times for value in by_model.values()]
    sources = ", ".join(sorted({str(value.provenance) for value in values})) or "none"
    runs = sorted({value.runs for value in values}) or [0]
    each = f"{runs[0]}" if len(runs) == 1 else f"{runs[0]} to {runs[-1]}"
    caption = (
        f"Sweep {name}: step time and energy per sample, medians over {each} valid runs per phone "
        f"and condition. Source of the numbers: {sources}. {note}"
    ).strip()
    return Table("ranking", columns, blocks, caption, label=f"ranking-{name}")


def _cells(tables: Sequence[FleetTable], metrics: set[str]) -> Cells:
    groups = [group for table in tables if table.metric in metrics for group in table.groups]
    return [(group, pooled_values(group)) for group in groups if group.rows]


def _wide(
    times: Cells, energies: Cells, axes: Sequence[CellAxis]
) -> tuple[tuple[TableColumn, ...], list[TableBlock]]:
    """One row per model; the energy is that of the condition with most models."""
    unit, factor = _energy_unit(energies)
    at, joules = max(energies, key=_weight, default=(None, {}))
    heads = [_heading(group, axes) for group, _ in times]
    columns = [TableColumn("phone", str), TableColumn("GHz", str)]
    columns += [TableColumn(f"{head}, ms".removeprefix(", "), float) for head in heads]
    columns += [TableColumn(f"{_heading(at, axes)}, {unit}/sample", float)] if at else []
    rows: list[list[CellValue]] = []
    for model in dict.fromkeys(model for _, values in times for model in values):
        own = [values.get(model) for _, values in times]
        ghz = next((value.ghz for value in own if value), "")
        row: list[CellValue] = [_name(model, own), ghz]
        row += [value.value if value else None for value in own]
        row += [joules[model].value * factor if model in joules else None] if joules else []
        rows.append([*row, _source([*own, joules.get(model)])])
    return (*columns, SOURCE), [TableBlock([], rows)]


def _long(
    times: Cells, energies: Cells, axes: Sequence[CellAxis]
) -> tuple[tuple[TableColumn, ...], list[TableBlock]]:
    """One row per model and condition."""
    unit, factor = _energy_unit(energies)
    energy = {(g.case.digest, g.condition.digest): values for g, values in energies}
    columns = [TableColumn("phone", str), *(TableColumn(axis.plain_title, str) for axis in axes)]
    columns += [TableColumn("GHz", str), TableColumn("step, ms", float)]
    columns += [TableColumn(f"energy, {unit}/sample", float)] if energies else []
    blocks = []
    for model in dict.fromkeys(model for _, values in times for model in values):
        rows: list[list[CellValue]] = []
        for group, values in times:
            if model in values:
                joules = energy.get((group.case.digest, group.condition.digest), {}).get(model)
                settings = [str(group.settings.get(axis.name, "")) for axis in axes]
                row: list[CellValue] = [*settings, values[model].ghz, values[model].value]
                row += [joules.value * factor if joules else None] if energies else []
                rows.append([*row, _source([values[model], joules])])
        blocks.append(TableBlock([_name(model, [v.get(model) for _, v in times])], rows))
    return (*columns, SOURCE), blocks


def _source(values: Iterable[ModelValue | None]) -> str:
    return str(weakest_provenance(value.provenance for value in values if value))


def _without_one_source(
    columns: tuple[TableColumn, ...], blocks: list[TableBlock]
) -> tuple[tuple[TableColumn, ...], list[TableBlock]]:
    """Leave the source of each row out if all rows have one: the caption says it."""
    if len({row[-1] for block in blocks for row in block.rows}) > 1:
        return columns, blocks
    return columns[:-1], [replace(b, rows=[row[:-1] for row in b.rows]) for b in blocks]


def _weight(cell: tuple[FleetGroup, dict[str, ModelValue]]) -> tuple[int, float]:
    """The cell with most models, and of those the one whose steps are longest."""
    return len(cell[1]), float(cell[0].condition.protocol is not Protocol.COLD)


def _heading(group: FleetGroup, axes: Sequence[CellAxis]) -> str:
    words = []
    for axis in axes:
        value = group.settings.get(axis.name, "")
        name = axis.plain_title.removesuffix(" size")
        if axis.name == PROTOCOL:
            words.append(_WHEN[group.condition.protocol])
        elif axis.name != BACKEND or value != "cpu":
            words.append(f"{name} {value}" if axis.is_numeric else str(value))
    return " ".join(words)


def _name(model: str, values: Sequence[ModelValue | None]) -> str:
    units = max((len(value.units) for value in values if value), default=1)
    return f"{model} ({units})" if units > 1 else model


def _energy_unit(energies: Cells) -> tuple[str, float]:
    found = (value.value for _, values in energies for value in values.values())
    return readable_unit(unit_of(ENERGY), found)
