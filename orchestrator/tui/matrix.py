"""The matrix of a sweep as a map with one mark per cell."""

from collections.abc import Sequence

from rich.text import Text

from orchestrator.app.lab_status import CellProgress
from orchestrator.app.screen.phone_state_text import shorten_label
from orchestrator.planning.states import RunState
from orchestrator.tui.layout import window
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
    conditions = sorted({cell.condition for cell in cells}, key=natural_sort_key)
    return conditions, sorted({cell.case for cell in cells}, key=natural_sort_key)


def heat_map(
    cells: Sequence[CellProgress],
    width: int,
    height: int,
    cursor: tuple[int, int] | None = None,
) -> list[Text]:
    """Render conditions as rows and cases as columns, around the cursor where there is one."""
    conditions, cases = axis_names(cells)
    keys = ("↑↓←→ move", "esc closes") if cursor else ("m opens",)
    lines = [rule(width, f"matrix: {len(conditions)} conditions x {len(cases)} cases", *keys)]
    if not cells:
        return [*lines, line(width, ("no cells yet", "dim"))][:height]
    name = min(max(len(label) for label in conditions), max(8, width // 3))
    room = max(1, width - name - 1)
    step = 2 if len(cases) * 2 <= room else 1
    named = 1 if cursor else min(len(cases), NAMED)
    rows = max(1, height - len(lines) - 1 - named - 2)
    row, column = cursor or (0, 0)
    first_row = window(row, len(conditions), max(0, row - rows // 2), rows)
    fitting = room // step
    first_column = window(column, len(cases), max(0, column - fitting // 2), fitting)
    shown = cases[first_column : first_column + fitting]
    marks = {(cell.condition, cell.case): MARKS[mark_of(cell)] for cell in cells}
    for condition in conditions[first_row : first_row + rows]:
        pieces: list[Piece] = [(fit(safe_cell(condition, 80), name) + " ", "")]
        for case in shown:
            mark, style = marks.get((condition, case), MARKS["unplanned"])
            here = cursor is not None and (condition, case) == (conditions[row], cases[column])
            pieces.append((mark, f"{style} reverse" if here else style))
            pieces.append((" " * (step - 1), ""))
        lines.append(line(width, *pieces))
    hidden = (len(conditions) - rows, len(cases) - len(shown))
    if max(hidden) > 0:
        more = f"… {max(hidden[0], 0)} conditions and {max(hidden[1], 0)} cases do not fit"
        lines.append(line(width, (more, "dim")))
    if cursor:
        found = [c for c in cells if (c.condition, c.case) == (conditions[row], cases[column])]
        lines.append(line(width, (_describe(conditions[row], cases[column], found), "bold")))
    else:
        lines += _column_names(cells, shown, name, step, width)
    return [*lines, *_legend(width)][:height]


def _describe(condition: str, case: str, cells: Sequence[CellProgress]) -> str:
    """Describe a cell: its name, and its runs by state."""
    if not cells:
        return f"{case}, {condition}: not planned"
    (cell,) = cells
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


def _legend(width: int) -> list[Text]:
    """Explain the marks."""
    pieces: list[Piece] = []
    for word, (mark, style) in MARKS.items():
        pieces += [(mark, style), (f" {word}  ", "dim")]
    return [line(width, *pieces)]
