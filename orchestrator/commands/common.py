"""What commands share: their lab, common options, and how they print."""

import gc
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.commands.exit_codes import NOTHING
from workloads.cli_options import lab_folder_option
from workloads.command_output import as_typed, say, wrapped
from workloads.lab.settings import Lab
from workloads.text import safe_text

if TYPE_CHECKING:
    from orchestrator.app.control_sweeps import OperatorChange
    from orchestrator.app.lab_connection import LabConnection

# Control characters that JSON leaves as they are, and invisible ones that reorder a line.
_UNSEEN = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")

_WIDE = "farm.wide"  # key of the context
_GAP = 2  # cells between two columns
WHOLE_CELL = 20  # texts up to this length are broken only where no column can be hidden

lab_option = lab_folder_option("The lab folder.")
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Print what would be changed, and change nothing."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
wide_option = click.option(
    *("-w", "--wide"),
    is_flag=True,
    expose_value=False,
    callback=lambda context, _, wide: context.meta.update({_WIDE: wide}),
    help="Show all columns, also where the terminal is too narrow for them.",
)
yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
reason_option = click.option("--why", "reason", default="", help="Reason, shown to other users.")


def change_options(command: click.decorators.FC) -> click.decorators.FC:
    """Add the options of every command that changes something in a lab."""
    return dry_run_option(lab_option(command))


def confirm(question: str, skip: bool) -> None:
    """Ask a person at a terminal, and stop if the answer is no."""
    if not skip and sys.stdin.isatty():
        click.confirm(question, abort=True, err=True)


def read_lab(folder: Path) -> Lab:
    """Read a lab's settings."""
    return Lab.read(folder, dict(os.environ))


def connect(folder: Path) -> "LabConnection":
    """Connect the current user to a lab."""
    from orchestrator.app.open_lab import open_lab

    gc.set_threshold(100_000)  # reading results makes millions of objects, and no cycles
    return open_lab(folder, os.environ)


def forget_other_labs() -> None:
    """Remove the settings of other labs: a temporary lab has its own broker and store."""
    for variable in ("FARM_BROKER", "FARM_STORE", "FARM_LAB", "FARM_API"):
        os.environ.pop(variable, None)


def print_json(content: object) -> None:
    """Print one JSON document; characters that could change a terminal are escaped."""
    text = json.dumps(content, default=_plain, ensure_ascii=not has_unicode(), indent=2)
    click.echo(_UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def has_unicode() -> bool:
    """Whether standard output can represent every character."""
    return (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf")


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if dump is not None else str(value)


def print_paragraph(text: str, bullet: str = "") -> None:
    """Print a text: broken between words on a terminal, as one line when piped."""
    click.echo(
        wrapped(as_typed(text), bullet) if sys.stdout.isatty() else f"{bullet}{as_typed(text)}"
    )


def column_widths(
    words: Sequence[int], bodies: Sequence[int], headings: Sequence[int], space: int
) -> list[int]:
    """Divide the space among columns: the longest words first, then whole cells, then headings.

    What is too long is broken. Narrow columns are widened first, so the widest texts are broken.
    """
    widths = list(words)
    for wanted in (bodies, headings):
        while sum(widths) < space:
            narrow = [(width, i) for i, width in enumerate(widths) if width < wanted[i]]
            if not narrow:
                break
            widths[min(narrow)[1]] += 1
    return widths


def choose_columns(
    headings: Sequence[str], needed: Sequence[int], hide: Sequence[str], space: int
) -> list[int]:
    """Return the columns that fit; `hide` names those that may go, the least important first."""
    shown = list(range(len(headings)))
    for name in hide:
        if sum(needed[i] for i in shown) + _GAP * (len(shown) - 1) <= space:
            break
        shown = [i for i in shown if headings[i] != name]
    return shown


def print_table(
    headings: Sequence[str], rows: Sequence[Sequence[object]], hide: Sequence[str] = ()
) -> None:
    """Print a table: Rich on a terminal, tab-separated lines when piped.

    On a narrow terminal the columns of `hide` are left out, the first ones first, and named below.
    """
    texts = [[safe_text(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for line in [list(headings), *texts]:
            click.echo("\t".join(line))
        return
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    columns = list(zip(headings, *texts, strict=True)) if texts else [(each,) for each in headings]
    # A column is never narrower than its longest word; a terminal breaks lines that are too long.
    words = [
        max(cell_len(word) for cell in cells for word in cell.split() or [""]) for cells in columns
    ]
    bodies = [max(map(cell_len, ("", *cells))) for _, *cells in columns]
    needed = [max(word, min(body, WHOLE_CELL)) for word, body in zip(words, bodies, strict=True)]
    console = Console()
    shown = choose_columns(headings, needed, () if is_wide() else hide, console.width)
    kept = [words[i] for i in shown]
    gaps = _GAP * (len(shown) - 1)
    console.width = max(console.width, sum(kept) + gaps)
    names = [headings[i] for i in shown]
    widths = column_widths(
        kept, [bodies[i] for i in shown], [*map(cell_len, names)], console.width - gaps
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading, width in zip(names, widths, strict=True):
        table.add_column(heading, width=width)
    for line in texts:
        table.add_row(*(Text(line[i]) for i in shown))
    console.print(table)
    if len(shown) < len(headings):
        hidden = [name for i, name in enumerate(headings) if i not in shown]
        print_paragraph(f"hidden: {', '.join(hidden)}; -w for all")


def print_items(
    items: Sequence[Any],
    as_json: bool,
    headings: Sequence[str],
    rows: Sequence[Sequence[object]],
    if_empty: str,
    summary: str = "",
    hide: Sequence[str] = (),
) -> int:
    """Print dataclasses as JSON, or their rows as a table; return the exit code."""
    if not as_json:
        return print_list(headings, rows, if_empty, summary, hide)
    print_json([asdict(item) for item in items])
    return 0 if items else NOTHING


def print_list(
    headings: Sequence[str],
    rows: Sequence[Sequence[object]],
    if_empty: str,
    summary: str = "",
    hide: Sequence[str] = (),
) -> int:
    """Print a table below its summary; return the exit code, which differs for an empty list."""
    if rows:
        print_summary(summary)
    if rows or not sys.stdout.isatty():
        print_table(headings, rows, hide)
    if rows:
        return 0
    say(safe_text(if_empty, 200), err=True)
    return NOTHING


def is_wide() -> bool:
    """Whether the user asked for all columns and rows."""
    return bool(click.get_current_context().meta.get(_WIDE))


def print_summary(text: str) -> None:
    """Print the line above a table; a pipe gets only the table."""
    if text and sys.stdout.isatty():
        print_paragraph(safe_text(text, 400))


def count_words(words: Iterable[str]) -> str:
    """Count equal words, the most frequent first: '4 idle, 1 away'."""
    return ", ".join(f"{count} {word}" for word, count in Counter(words).most_common())


def print_change(change: "OperatorChange") -> None:
    """Print what was changed and how to undo it."""
    summary, *undo = change.lines
    say(safe_text(summary, 600))
    for line in undo:
        say(safe_text(line, 600), err=True)
