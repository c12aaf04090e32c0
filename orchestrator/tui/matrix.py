"""The matrix of a sweep as a map with one mark per cell."""

from collections.abc import Collection, Sequence

from rich.text import Text

from orchestrator.app.lab_status import CellProgress
from orchestrator.app.screen.phone_state_text import shorten_label
from orchestrator.planning.states import RunState
from orchestrator.tui.text_cells import Piece, fit, line, rule, safe_cell

MARKS: dict[str, Piece] = {
    "queued": ("·", "dim"),
    "partly": ("▒", "yellow"),
    "done": ("█", "green"),
    "void": ("v", "bold yellow"),
    "suspect": ("s", "bold yellow"),
    "failed": ("!", "bold red"),
    "stopped": ("-", "dim"),
    "unplanned": ("x", "dim"),
}
_ENDED = (RunState.DONE, RunState.SKIPPED)
_DROPPED = (RunState.CANCELLED,)
_WRONG = ("failed", "suspect", "void")
NAMED = 6  # columns


def mark_of(cell: CellProgress) -> str:
    """Return the mark of a cell: problems first, then progress."""
    runs = cell.runs
    total = sum(runs.values())
    ended = sum(runs.get(state, 0) for state in _ENDED)
    if runs.get(RunState.FAILED, 0) or runs.get(RunState.BLOCKED, 0):
        return "failed"
    if total and ended == total:
        return "suspect" if 0 < runs.get(RunState.DONE, 0) <= cell.suspect else "done"
    if total and sum(runs.get(state, 0) for state in _DROPPED) + ended == total:
        return "stopped"
    if cell.void:
        return "void"
    return "partly" if ended or runs.get(RunState.LEASED, 0) else "queued"


def axis_names(cells: Sequence[CellProgress]) -> tuple[list[str], list[str]]:
    """Return the conditions and the cases of a matrix, in their order."""
    conditions = dict.fromkeys(cell.condition for cell in cells)
    return list(conditions), list(dict.fromkeys(cell.case for cell in cells))


def heat_map(cells: Sequence[CellProgress], width: int, height: int) -> list[Text]:
    """Render conditions as rows and cases as columns, one mark per cell: a large matrix fits."""
    conditions, cases = axis_names(cells)
    lines = [rule(width, f"matrix: {len(conditions)} conditions x {len(cases)} cases", "m opens")]
    if not cells:
        return [*lines, line(width, ("no cells yet", "dim"))][:height]
    name = min(max(len(label) for label in conditions), max(8, width // 3))
    room = max(1, width - name - 1)
    step = 2 if len(cases) * 2 <= room else 1
    rows = max(1, height - len(lines) - 1 - min(len(cases), NAMED) - 2)
    shown = cases[: room // step]
    marks = {(cell.condition, cell.case): MARKS[mark_of(cell)] for cell in cells}
    for condition in conditions[:rows]:
        pieces: list[Piece] = [(fit(safe_cell(condition, 80), name) + " ", "")]
        for case in shown:
            pieces.append(marks.get((condition, case), MARKS["unplanned"]))
            pieces.append((" " * (step - 1), ""))
        lines.append(line(width, *pieces))
    hidden = (len(conditions) - rows, len(cases) - len(shown))
    if max(hidden) > 0:
        more = f"… {max(hidden[0], 0)} conditions and {max(hidden[1], 0)} cases do not fit"
        lines.append(line(width, (more, "dim")))
    lines += _column_names(cells, shown, name, step, width)
    return [*lines, *legend(width, MARKS)][:height]


def describe_cell(cells: Sequence[CellProgress], case: str, condition: str) -> str:
    """Describe a cell: its name, and its runs by state."""
    found = [cell for cell in cells if (cell.case, cell.condition) == (case, condition)]
    if not found:
        return f"{case}, {condition}: not planned"
    (cell,) = found
    counts = [f"{count} {state.value}" for state, count in sorted(cell.runs.items()) if count]
    counts += [f"{cell.suspect} suspect"] * bool(cell.suspect) + [f"{cell.void} void"] * bool(
        cell.void
    )
    return f"{case}, {condition}: {', '.join(counts)}"


def _column_names(
    cells: Sequence[CellProgress], cases: Sequence[str], indent: int, step: int, width: int
) -> list[Text]:
    """Name some columns, each below its column: those with problems before the others."""
    wrong = {cell.case for cell in cells if mark_of(cell) in _WRONG}
    chosen = sorted(range(len(cases)), key=lambda index: (cases[index] not in wrong, index))
    lines = []
    for index in sorted(chosen[:NAMED]):
        arrow = " " * (indent + 1 + index * step) + "↑"
        lines.append(line(width, (f"{arrow} {shorten_label(cases[index])}", "dim")))
    return lines


def legend(width: int, words: Collection[str]) -> list[Text]:
    """Explain the marks that are shown."""
    pieces: list[Piece] = []
    for word, (mark, style) in MARKS.items():
        pieces += [(mark, style), (f" {word}  ", "dim")] if word in words else []
    return [line(width, *pieces)]
