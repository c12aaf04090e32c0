"""A table to export: named columns, and rows that come in blocks, never all at once.

The rows of a block share their first cells (those of their run), so that a million samples cost
only the cells that differ. Column names contain the unit.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

CellValue = str | int | float | None


@dataclass(frozen=True)
class TableColumn:
    """A name, and the type of the cells: str, int or float."""

    name: str
    kind: type


@dataclass(frozen=True)
class TableBlock:
    """Rows with the same first cells; with `numeric_only`, the others are numbers or empty."""

    shared: Sequence[CellValue]
    rows: Iterable[Sequence[CellValue]]
    numeric_only: bool = False

    def full_rows(self) -> Iterator[tuple[CellValue, ...]]:
        """Return every row with the shared cells."""
        return ((*self.shared, *row) for row in self.rows)


@dataclass(frozen=True)
class Table:
    """The rows of an export, with a name and a caption."""

    name: str
    columns: tuple[TableColumn, ...]
    blocks: Iterable[TableBlock]
    caption: str = ""
    label: str = ""  # of a LaTeX table, if its name is not unique in a paper

    @property
    def names(self) -> list[str]:
        """The names of its columns."""
        return [column.name for column in self.columns]

    @property
    def rows(self) -> Iterator[tuple[CellValue, ...]]:
        """The rows of all blocks."""
        return (row for block in self.blocks for row in block.full_rows())


def make_columns(text: str) -> tuple[TableColumn, ...]:
    """Build columns from their names; a name ends with `:int` or `:float` unless it is text."""
    kinds = {"": str, "int": int, "float": float}
    words = (word.partition(":") for word in text.split())
    return tuple(TableColumn(name, kinds[kind]) for name, _, kind in words)
