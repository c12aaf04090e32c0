"""The table of `farm demo` for the README: virtual phones print the same one on every computer."""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

FIRST, LAST = "SIMULATED values", "MEASURED"
COLD, HOT = 1, 3  # columns


def run_demo() -> str:
    """Run the demo, and return what it prints; this takes about half a minute."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "orchestrator", "demo", "--dir", str(Path(folder) / "lab")]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def demo_table(printed: str) -> str:
    """Return the simulated part of what a demo printed, as Markdown, with the difference that heat
    makes.
    """
    lines = printed.splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith(FIRST))
    last = next(index for index, line in enumerate(lines) if line.startswith(LAST))
    title, headings, *rows = lines[first:last]
    cells = [line.split("\t") for line in (headings, *rows)]
    ruler = ["---"] * len(cells[0])
    table = "\n".join(f"| {' | '.join(row)} |" for row in (cells[0], ruler, *cells[1:]))
    cold, hot = _difference(cells[1:4], COLD), _difference(cells[1:4], HOT)
    differences = (
        f"The three phones that are fastest when cold differ by {100 * cold:.0f} %. "
        f"After ten minutes they differ by {100 * hot:.0f} %."
    )
    return f"{title}.\n\n{table}\n\n{differences}"


def _difference(rows: list[list[str]], column: int) -> float:
    values = [float(row[column].split()[0]) for row in rows]
    return max(values) / min(values) - 1
