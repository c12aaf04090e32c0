"""What README shows of `farm demo`: virtual phones print the same on every computer."""

import subprocess
import sys
from pathlib import Path

FIRST = "SIMULATED"
COLD, HOT = 1, 2  # columns
TIED, CLOSE = 3, 1.03  # so many phones, and how close they are when cold


def run_demo(folder: Path) -> str:
    """Run the demo in a folder, and return what it prints; this takes about half a minute."""
    command = [sys.executable, "-m", "orchestrator", "demo", "--dir", str(folder)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def demo_table(printed: str) -> str:
    """Return the simulated part of what a demo printed, as Markdown: the table and what follows."""
    title, rows, sentences = _parts(printed)
    ruler = ["---"] * len(rows[0])
    table = "\n".join(f"| {' | '.join(row)} |" for row in (rows[0], ruler, *rows[1:]))
    return "\n\n".join((f"{title}.", table, "\n".join(sentences)))


def demo_hook(printed: str) -> str:
    """Return the sentence about the phones that tie when cold and differ most when hot."""
    _, (_, *rows), _ = _parts(printed)
    cold, hot = ([float(row[column].split()[0]) for row in rows] for column in (COLD, HOT))
    spans = (range(begin, begin + TIED) for begin in range(len(rows) - TIED + 1))
    found = {
        _spread([hot[i] for i in span]): _spread([cold[i] for i in span])
        for span in spans
        if _spread([cold[i] for i in span]) < CLOSE
    }
    if not found:
        raise LookupError("no three phones of the demo tie when cold")
    most = max(found)
    return (
        f"Three phones that are within {100 * found[most] - 100:.0f} % of each other in a "
        f"ten-second run are **{100 * most - 100:.0f} % apart after ten minutes** (simulated)."
    )


def _spread(values: list[float]) -> float:
    return max(values) / min(values)


def _parts(printed: str) -> tuple[str, list[list[str]], list[str]]:
    """Return title, rows with the headings, and sentences of what a demo printed."""
    lines = printed.splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith(FIRST))
    rows = [line.split("\t") for line in lines[first + 1 :] if "\t" in line]
    return lines[first], rows, [line for line in lines if line.startswith("- ")]
