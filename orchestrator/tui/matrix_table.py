"""The matrix of a sweep as a table: a row per case, a column per condition, a value per cell."""

from collections.abc import Mapping, Sequence

from rich.text import Text

from orchestrator.app.lab_status import CellProgress
from orchestrator.app.read_trials import TrialResult
from orchestrator.app.screen.phone_state_text import shorten_label
from orchestrator.planning.states import RunState
from orchestrator.tui.layout import window
from orchestrator.tui.matrix import MARKS, axis_names, describe_cell, legend, mark_of
from orchestrator.tui.text_cells import Piece, cells, fit, fit_name, line, rule, safe_cell
from orchestrator.tui.ui_state import Ui
from workloads.units import count_text, format_ms

UNPLANNED = "–"


def differing_words(labels: Sequence[str]) -> tuple[str, list[list[str]]]:
    """Return the words that all labels share, and for each label those that differ."""
    words = [shorten_label(label).split() for label in labels]
    if len({len(each) for each in words}) != 1 or len(labels) == 1:
        return "", [[shorten_label(label)] for label in labels]
    columns = list(zip(*words, strict=True))
    shared = [column[0] for column in columns if len(set(column)) == 1]
    differ = [index for index, column in enumerate(columns) if len(set(column)) > 1]
    return " ".join(shared), [[each[index] for index in differ] for each in words]


def value_text(cell: CellProgress) -> str:
    """Return what a cell measured, or how many of its runs have ended."""
    if cell.value is not None:
        return format_ms(cell.value)
    left = sum(cell.runs.get(state, 0) for state in (RunState.QUEUED, RunState.LEASED))
    total = sum(cell.runs.values())
    return f"{total - left}/{total}"


def matrix_table(
    shown: Sequence[CellProgress], width: int, height: int, cursor: tuple[int, int] | None = None
) -> list[Text]:
    """Render as many rows and columns as fit around the cursor; none if a screen shows no cursor
    and not all of them fit."""
    conditions, cases = axis_names(shown)
    shared, headings = differing_words(conditions)
    planned = {(cell.case, cell.condition): cell for cell in shown}
    texts = [value_text(cell) for cell in shown]
    column = 2 + max([cells(text) for text in (*texts, *(w for h in headings for w in h))] or [1])
    names = [shorten_label(case) for case in cases]
    name = min(max(map(cells, names), default=1), max(8, width // 2))
    gap = 2 if name + len(conditions) * (column + 2) <= width else 1
    fitting = max(1, (width - name) // (column + gap))
    lines = [rule(width, _title(cases, conditions), *_keys(cursor)), _about(shared, width)]
    depth = max(map(len, headings), default=0)
    rows = max(1, height - len(lines) - depth - (3 if cursor else 2))
    if cursor is None and (len(conditions) > fitting or len(cases) > rows or not shown):
        return []
    at_row, at_column = cursor or (0, 0)
    top = window(at_row, len(cases), max(0, at_row - rows // 2), rows)
    first = window(at_column, len(conditions), max(0, at_column - fitting // 2), fitting)
    for level in range(depth):
        pieces: list[Piece] = [(" " * name, "")]
        for words in headings[first : first + fitting]:
            word = words[level] if level < len(words) else ""
            pieces.append((" " * gap + fit(safe_cell(word, 80), column, right=True), "bold"))
        lines.append(line(width, *pieces))
    for index, case in list(enumerate(cases))[top : top + rows]:
        pieces = [(fit_name(safe_cell(names[index], 80), name), "")]
        for number, condition in list(enumerate(conditions))[first : first + fitting]:
            here = cursor == (index, number)
            pieces += [(" " * gap, ""), _cell(planned.get((case, condition)), column, here)]
        lines.append(line(width, *pieces))
    hidden = (len(cases) - rows, len(conditions) - fitting)
    if max(hidden) > 0:
        more = [
            count_text(n, noun)
            for n, noun in zip(hidden, ("case", "condition"), strict=True)
            if n > 0
        ]
        lines.append(line(width, (f"… {' and '.join(more)} more; move there", "dim")))
    if cursor and shown:
        lines.append(line(width, (describe_cell(shown, cases[at_row], conditions[at_column]), "")))
    marks = {mark_of(cell) for cell in shown}
    marks |= {"unplanned"} if len(planned) < len(cases) * len(conditions) else set()
    return [*lines, *legend(width, marks)][:height]


def _title(cases: Sequence[str], conditions: Sequence[str]) -> str:
    return f"matrix: {count_text(len(cases), 'case')} x {count_text(len(conditions), 'condition')}"


def _keys(cursor: tuple[int, int] | None) -> tuple[str, ...]:
    return ("⏎ opens the cell", "esc closes") if cursor else ("m opens",)


def _about(shared: str, width: int) -> Text:
    what = "median ms per step; without a valid run: runs ended/planned"
    common: list[Piece] = [(f"{safe_cell(shared, 80)}  ", "bold")] if shared else []
    return line(width, *common, (what, "dim"))


def _cell(cell: CellProgress | None, width: int, here: bool) -> Piece:
    mark, style = MARKS["unplanned" if cell is None else mark_of(cell)]
    text = UNPLANNED if cell is None else value_text(cell)
    shown = f"{mark}{fit(text, width - 1, right=True)}"
    return shown, f"{style} reverse" if here else style


def cell_page(
    shown: Sequence[CellProgress], ui: Ui, names: Mapping[str, str], height: int
) -> list[Text]:
    """Render one cell: what each phone measured, the fastest first."""
    conditions, cases = axis_names(shown)
    lines = [rule(ui.width, shorten_label(ui.opened), "⏎ reads again", "esc back")]
    if cases:
        row, column = ui.cell
        text = describe_cell(shown, cases[row], conditions[column])
        lines.append(line(ui.width, (text, "dim")))
    if ui.trials is None:
        return [*lines, line(ui.width, ("reading …", "dim"))][:height]
    if not ui.trials:
        lines.append(line(ui.width, ("no phone has a trial of this cell", "dim")))
    ordered = sorted(ui.trials, key=lambda each: (each.value is None, each.value or 0.0))
    wide = max([12, *(cells(names.get(each.summary.phone, "")) for each in ordered)])
    for each in ordered[: height - len(lines)]:
        lines.append(_trial_line(each, names, min(wide, ui.width // 3), ui.width))
    return lines[:height]


def _trial_line(each: TrialResult, names: Mapping[str, str], name: int, width: int) -> Text:
    summary = each.summary
    value = "" if each.value is None else f"{format_ms(each.value)} ms"
    counts = ", ".join(f"{count} {state}" for state, count in sorted(summary.runs.items()) if count)
    note = f"  {safe_cell(summary.note, 200)}" if summary.note else ""
    source = f"  {safe_cell(each.source.partition(' (')[0], 60)}" if each.source else ""
    return line(
        width,
        (fit_name(safe_cell(names.get(summary.phone, summary.phone), 80), name), ""),
        (f"  {fit(value, 9, right=True)}", "bold"),
        (f"  {summary.id[:11]}  {counts}", ""),
        (note or source, "yellow" if note else "dim"),
    )
