"""Writes tables as CSV, JSON lines, Parquet, Markdown or LaTeX, row by row.

Phones choose their own names, so text is escaped for the program that reads the file: a spreadsheet
must not run formulas, and LaTeX no commands. JSON and Parquet contain text unescaped, without
control characters. Formats that have a place for it name the version that wrote the file.
"""

import csv
import io
import json
import math
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, BinaryIO

from orchestrator.export.escape import latex_cell, markdown_cell, text_cell
from orchestrator.export.table import CellValue, Table
from workloads.lab.process_identity import software_version
from workloads.protocol.faults import InvalidRequest
from workloads.text import safe_text
from workloads.units import format_ms

PARQUET_ROWS = 65_536
TEXT_MAX = 2000


def write_csv(table: Table, stream: BinaryIO) -> int:
    """Write CSV (RFC 4180); return the number of rows."""
    lines = 0
    for piece in csv_pieces(table):
        stream.write(piece)
        lines += piece.count(b"\r\n")  # cells contain no line breaks
    return lines - 1


def csv_pieces(table: Table) -> Iterator[bytes]:
    """Yield the heading and then block after block, as CSV."""
    yield _csv_lines([table.names])
    for block in table.blocks:
        shared = [_csv_cell(cell) for cell in block.shared]
        if block.numeric_only:
            prefix = _csv_lines([shared]).decode().removesuffix("\r\n")
            yield "".join([f"{prefix},{_number_cells(row)}\r\n" for row in block.rows]).encode()
        else:
            yield _csv_lines([[*shared, *map(_csv_cell, row)] for row in block.rows])


def _number_cells(row: Sequence[CellValue]) -> str:
    return ",".join(["" if cell is None else str(cell) for cell in row])


def _csv_lines(rows: list[list[Any]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue().encode()


def _csv_cell(cell: CellValue) -> CellValue:
    return text_cell(cell) if isinstance(cell, str) else _finite(cell)


def write_jsonl(table: Table, stream: BinaryIO) -> int:
    """Write one JSON object per line; return the number of rows."""
    names, count = table.names, 0
    for count, row in enumerate(table.rows, 1):  # noqa: B007 (it is returned)
        content = dict(zip(names, map(_plain, row), strict=True))
        stream.write(json.dumps(content, ensure_ascii=False, allow_nan=False).encode() + b"\n")
    return count


def write_parquet(table: Table, stream: BinaryIO) -> int:
    """Write Parquet in row groups, with pyarrow; return the number of rows."""
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError:
        raise InvalidRequest(
            "pyarrow is not installed, and Parquet needs it; run: .venv/bin/pip install pyarrow"
        ) from None
    kinds = {str: arrow.string(), int: arrow.int64(), float: arrow.float64()}
    fields = [(column.name, kinds[column.kind]) for column in table.columns]
    schema = arrow.schema(fields, metadata={"farmhand": software_version()})
    rows, count = (tuple(map(_plain, row)) for row in table.rows), 0
    with parquet.ParquetWriter(stream, schema, compression="zstd") as writer:
        while group := list(islice(rows, PARQUET_ROWS)):
            by_column = zip(*group, strict=True)
            arrays = [
                arrow.array(values, kind.type)
                for values, kind in zip(by_column, schema, strict=True)
            ]
            writer.write_table(arrow.Table.from_arrays(arrays, schema=schema))
            count += len(group)
    return count


def _plain(cell: CellValue) -> CellValue:
    return safe_text(cell, TEXT_MAX) if isinstance(cell, str) else _finite(cell)


def _finite(cell: CellValue) -> CellValue:
    """Replace values that are not finite by an empty cell."""
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell


def write_markdown(table: Table, stream: BinaryIO) -> int:
    """Write a Markdown table with its caption; return the number of rows."""
    numeric = ["--:" if column.kind is not str else ":--" for column in table.columns]
    stream.write(f"| {' | '.join(table.names)} |\n| {' | '.join(numeric)} |\n".encode())
    count = 0
    for count, row in enumerate(table.rows, 1):  # noqa: B007 (it is returned)
        cells = [markdown_cell(_format_cell(cell)) for cell in row]
        stream.write(f"| {' | '.join(cells)} |\n".encode())
    if table.caption:
        stream.write(f"\n{markdown_cell(table.caption)}\n".encode())
    stream.write(f"\n<!-- written by Farmhand {software_version()} -->\n".encode())
    return count


def write_latex(table: Table, stream: BinaryIO) -> int:
    """Write a LaTeX table in the booktabs style; return the number of rows.

    The first row of a block shows the cells that all its rows share; the others leave them empty.
    """
    alignment = "".join("l" if column.kind is str else "r" for column in table.columns)
    heading = " & ".join(latex_cell(name.replace("_", " ")) for name in table.names)
    stream.write(
        f"% written by Farmhand {software_version()}\n"
        f"% needs \\usepackage{{booktabs}}\n\\begin{{table}}\n\\centering\\small\n"
        f"\\begin{{tabular}}{{{alignment}}}\n\\toprule\n{heading} \\\\\n\\midrule\n".encode()
    )
    count = 0
    for index, block in enumerate(table.blocks):
        stream.write(b"\\addlinespace\n" if index else b"")
        shared = block.shared
        for row in block.rows:
            cells = " & ".join(latex_cell(_format_cell(cell)) for cell in (*shared, *row))
            stream.write(f"{cells} \\\\\n".encode())
            shared = [""] * len(shared)
            count += 1
    stream.write(b"\\bottomrule\n\\end{tabular}\n")
    if table.caption:
        stream.write(f"\\caption{{{latex_cell(table.caption)}}}\n".encode())
    label = re.sub("[^A-Za-z0-9]+", "-", table.label or table.name).strip("-")
    stream.write(f"\\label{{tab:{label}}}\n\\end{{table}}\n".encode())
    return count


def _format_cell(cell: CellValue) -> str:
    """Format a cell with three significant digits."""
    if isinstance(cell, float):
        return format_ms(cell) if math.isfinite(cell) else ""
    return "" if cell is None else safe_text(cell, TEXT_MAX)
