"""A table on its way out: named columns, and rows that come in blocks, never all at once.

Rows of a block share their first cells (the run they belong to), so that a million samples cost no
more than what tells them apart. Units stand in the column names.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

Cell = str | int | float | None


@dataclass(frozen=True)
class Column:
    """A name, and what its cells are: str, int or float."""

    name: str
    kind: type


@dataclass(frozen=True)
class Block:
    """Rows with the same first cells; `plain` promises that the others are numbers or empty."""

    shared: Sequence[Cell]
    rows: Iterable[Sequence[Cell]]
    plain: bool = False

    def full_rows(self) -> Iterator[tuple[Cell, ...]]:
        """Every row, whole."""
        return ((*self.shared, *row) for row in self.rows)


@dataclass(frozen=True)
class Table:
    """What is exported, under which name."""

    name: str
    columns: tuple[Column, ...]
    blocks: Iterable[Block]
    caption: str = ""

    @property
    def names(self) -> list[str]:
        """The names of its columns."""
        return [column.name for column in self.columns]


def columns(**kinds: type) -> tuple[Column, ...]:
    """Columns by name."""
    return tuple(Column(name, kind) for name, kind in kinds.items())
