"""Tables as files: CSV, JSON lines, Parquet, Markdown, LaTeX. Each takes its rows one by one.

Phones choose their own names: text is made harmless for whatever reads the file, so that a
spreadsheet runs no formula and LaTeX no command. JSON and Parquet carry text as it is, without
control characters.
"""

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, BinaryIO

from orchestrator.export.escape import latex_cell, markdown_cell, text_cell
from orchestrator.export.table import CellValue, Table
from workloads.protocol.faults import InvalidRequest
from workloads.text import safe_text
from workloads.units import format_ms

PARQUET_ROWS = 65_536
TEXT_MAX = 2000
Write = Callable[[Table, BinaryIO], int]


def write_csv(table: Table, stream: BinaryIO) -> int:
    """Write RFC 4180; answer how many rows."""
    lines = 0
    for piece in csv_pieces(table):
        stream.write(piece)
        lines += piece.count(b"\r\n")  # cells hold no line break of their own
    return lines - 1


def csv_pieces(table: Table) -> Iterator[bytes]:
    """The heading and then block after block, as CSV."""
    yield _csv_lines([table.names])
    for block in table.blocks:
        shared = [_csv_cell(cell) for cell in block.shared]
        if block.numeric_only:
            begun = _csv_lines([shared]).decode().removesuffix("\r\n")
            yield "".join([f"{begun},{_numbers(row)}\r\n" for row in block.rows]).encode()
        else:
            yield _csv_lines([[*shared, *map(_csv_cell, row)] for row in block.rows])


def _numbers(row: Sequence[CellValue]) -> str:
    return ",".join(["" if cell is None else str(cell) for cell in row])


def _csv_lines(rows: list[list[Any]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue().encode()


def _csv_cell(cell: CellValue) -> CellValue:
    return text_cell(cell) if isinstance(cell, str) else _finite(cell)


def write_jsonl(table: Table, stream: BinaryIO) -> int:
    """Write one JSON object a line; answer how many."""
    names, count = table.names, 0
    for block in table.blocks:
        for row in block.full_rows():
            told = dict(zip(names, map(_plain, row), strict=True))
            stream.write(json.dumps(told, ensure_ascii=False, allow_nan=False).encode() + b"\n")
            count += 1
    return count


def write_parquet(table: Table, stream: BinaryIO) -> int:
    """Write Parquet in groups of rows; it needs pyarrow."""
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError:
        raise InvalidRequest(
            "Parquet needs pyarrow, which is not installed; run: .venv/bin/pip install 'pyarrow'"
        ) from None
    kinds = {str: arrow.string(), int: arrow.int64(), float: arrow.float64()}
    schema = arrow.schema([(column.name, kinds[column.kind]) for column in table.columns])
    rows, count = _plain_rows(table), 0
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


def _plain_rows(table: Table) -> Iterator[tuple[CellValue, ...]]:
    for block in table.blocks:
        for row in block.full_rows():
            yield tuple(map(_plain, row))


def _plain(cell: CellValue) -> CellValue:
    return safe_text(cell, TEXT_MAX) if isinstance(cell, str) else _finite(cell)


def _finite(cell: CellValue) -> CellValue:
    """What is no number is no figure: an empty cell."""
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell


def write_markdown(table: Table, stream: BinaryIO) -> int:
    """Write a Markdown table with its caption; answer how many rows."""
    numeric = ["--:" if column.kind is not str else ":--" for column in table.columns]
    stream.write(f"| {' | '.join(table.names)} |\n| {' | '.join(numeric)} |\n".encode())
    count = 0
    for block in table.blocks:
        for row in block.full_rows():
            cells = [markdown_cell(_shown(cell)) for cell in row]
            stream.write(f"| {' | '.join(cells)} |\n".encode())
            count += 1
    if table.caption:
        stream.write(f"\n{markdown_cell(table.caption)}\n".encode())
    return count


def write_latex(table: Table, stream: BinaryIO) -> int:
    """Write a table for a paper, in the booktabs style; answer how many rows.

    What the rows of a block share stands in the first of them.
    """
    aligned = "".join("l" if column.kind is str else "r" for column in table.columns)
    heading = " & ".join(latex_cell(name.replace("_", " ")) for name in table.names)
    stream.write(
        f"% needs \\usepackage{{booktabs}}\n\\begin{{table}}\n\\centering\\small\n"
        f"\\begin{{tabular}}{{{aligned}}}\n\\toprule\n{heading} \\\\\n\\midrule\n".encode()
    )
    count = 0
    for at, block in enumerate(table.blocks):
        stream.write(b"\\addlinespace\n" if at else b"")
        shared = block.shared
        for row in block.rows:
            cells = " & ".join(latex_cell(_shown(cell)) for cell in (*shared, *row))
            stream.write(f"{cells} \\\\\n".encode())
            shared = [""] * len(shared)
            count += 1
    stream.write(b"\\bottomrule\n\\end{tabular}\n")
    if table.caption:
        stream.write(f"\\caption{{{latex_cell(table.caption)}}}\n".encode())
    stream.write(f"\\label{{tab:{table.name}}}\n\\end{{table}}\n".encode())
    return count


def _shown(cell: CellValue) -> str:
    """A cell for people: three significant digits."""
    if isinstance(cell, float):
        return format_ms(cell) if math.isfinite(cell) else ""
    return "" if cell is None else safe_text(cell, TEXT_MAX)


WRITERS: dict[str, Write] = {
    "csv": write_csv,
    "jsonl": write_jsonl,
    "parquet": write_parquet,
    "md": write_markdown,
    "latex": write_latex,
}
EXTENSIONS = {"csv": "csv", "jsonl": "jsonl", "parquet": "parquet", "md": "md", "latex": "tex"}
