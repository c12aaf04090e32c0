"""A table on its way out: named columns, and rows that come in blocks, never all at once.

Rows of a block share their first cells (the run they belong to), so that a million samples cost no
more than what tells them apart. Units stand in the column names.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

CellValue = str | int | float | None


@dataclass(frozen=True)
class TableColumn:
    """A name, and what its cells are: str, int or float."""

    name: str
    kind: type


@dataclass(frozen=True)
class TableBlock:
    """Rows with the same first cells; `plain` promises that the others are numbers or empty."""

    shared: Sequence[CellValue]
    rows: Iterable[Sequence[CellValue]]
    numeric_only: bool = False

    def full_rows(self) -> Iterator[tuple[CellValue, ...]]:
        """Every row, whole."""
        return ((*self.shared, *row) for row in self.rows)


@dataclass(frozen=True)
class Table:
    """What is exported, under which name."""

    name: str
    columns: tuple[TableColumn, ...]
    blocks: Iterable[TableBlock]
    caption: str = ""

    @property
    def names(self) -> list[str]:
        """The names of its columns."""
        return [column.name for column in self.columns]


def make_columns(**kinds: type) -> tuple[TableColumn, ...]:
    """Columns by name."""
    return tuple(TableColumn(name, kind) for name, kind in kinds.items())
