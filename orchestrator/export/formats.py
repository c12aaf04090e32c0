"""The formats of tables: one line per format. A writer is imported when it is used.

A writer is `write(table: Table, stream: BinaryIO) -> int`: it writes the rows of a table and
returns how many there were. Text from phones must be escaped for whatever reads the file.
"""

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

if TYPE_CHECKING:
    from orchestrator.export.table import Table


class TableFormat(NamedTuple):
    """A file name extension, and where the writer is."""

    extension: str
    module: str
    function: str = "write"

    @property
    def write(self) -> "Callable[[Table, BinaryIO], int]":
        """The writer."""
        found: Callable[[Table, BinaryIO], int]
        found = getattr(importlib.import_module(self.module), self.function)
        return found


_WRITERS = "orchestrator.export.table_writers"
TABLE_FORMATS: dict[str, TableFormat] = {
    "csv": TableFormat("csv", _WRITERS, "write_csv"),
    "jsonl": TableFormat("jsonl", _WRITERS, "write_jsonl"),
    "parquet": TableFormat("parquet", _WRITERS, "write_parquet"),
    "md": TableFormat("md", _WRITERS, "write_markdown"),
    "latex": TableFormat("tex", _WRITERS, "write_latex"),
}
