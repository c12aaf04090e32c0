"""The matrix of a sweep as a map with one mark per cell."""

from collections.abc import Sequence

from rich.text import Text

from orchestrator.app.lab_status import CellProgress
from orchestrator.app.phone_state_text import shorten_label
from orchestrator.decisions.states import RunState
from orchestrator.tui.text_cells import Piece, fit, line, rule, safe_cell
from workloads.text import natural_sort_key

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


def heat_map(cells: Sequence[CellProgress], width: int, height: int) -> list[Text]:
    """Render conditions as rows and cases as columns, and how many do not fit."""
    conditions = sorted({cell.condition for cell in cells}, key=natural_sort_key)
    cases = sorted({cell.case for cell in cells}, key=natural_sort_key)
    lines = [rule(width, f"matrix: {len(conditions)} conditions x {len(cases)} cases")]
    if not cells:
        return [*lines, line(width, ("no cells yet", "dim"))][:height]
    name = min(max(len(label) for label in conditions), max(8, width // 3))
    room = max(1, width - name - 1)
    step = 2 if len(cases) * 2 <= room else 1
    fitting = cases[: room // step]
    marks = {(cell.condition, cell.case): MARKS[mark_of(cell)] for cell in cells}
    legend = _legend(width)
    rows = max(1, height - len(lines) - len(legend) - min(len(fitting), 6) - 2)
    for condition in conditions[:rows]:
        pieces: list[Piece] = [(fit(safe_cell(condition, 80), name) + " ", "")]
        for case in fitting:
            mark, style = marks.get((condition, case), MARKS["unplanned"])
            pieces.append((mark + " " * (step - 1), style))
        lines.append(line(width, *pieces))
    hidden = (len(conditions) - rows, len(cases) - len(fitting))
    if max(hidden) > 0:
        more = f"… {max(hidden[0], 0)} conditions and {max(hidden[1], 0)} cases do not fit"
        lines.append(line(width, (more, "dim")))
    lines += _column_names(fitting, name, step, width)
    return [*lines, *legend][:height]


def _column_names(cases: Sequence[str], indent: int, step: int, width: int) -> list[Text]:
    """Name the first columns, each below its column."""
    lines = []
    for index, case in enumerate(cases[:6]):
        arrow = " " * (indent + 1 + index * step) + "↑"
        lines.append(line(width, (f"{arrow} {shorten_label(case)}", "dim")))
    return lines


def _legend(width: int) -> list[Text]:
    """Explain the marks."""
    pieces: list[Piece] = []
    for word, (mark, style) in MARKS.items():
        pieces += [(mark, style), (f" {word}  ", "dim")]
    return [line(width, *pieces)]
