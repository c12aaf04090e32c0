"""The table of phones: one row per phone, more columns on wider screens."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from rich.text import Text

from orchestrator.app.lab_status import KnownPhone, LabView, ReportedProblem
from orchestrator.app.screen.lab_snapshot import NO_TRACE, LabSnapshot, PhoneTrace
from orchestrator.app.screen.phone_state_text import (
    activity_text,
    clock_text,
    clock_time,
    count,
    display_names,
    remaining_s,
    state_badge,
)
from orchestrator.tui.layout import window
from orchestrator.tui.text_cells import Piece, cells, fit, fit_name, line, rule, safe_cell
from orchestrator.tui.ui_state import Ui

TREND_HEARTBEATS, TREND_C = 8, 0.4
MODEL_MIN = 12
HOT_C = 75.0  # CPU temperature from which phones commonly throttle


class PhoneColumn(NamedTuple):
    """A column: heading, width in cells, the screen width from which it is shown, and content."""

    heading: str
    cells: int
    from_width: int
    show: Callable[[KnownPhone, PhoneTrace, datetime], Piece]
    right: bool = False


def trend(trace: PhoneTrace) -> str:
    """Return an arrow if the temperature rises or falls."""
    recent = trace.temps_c[-TREND_HEARTBEATS:]
    if len(recent) < 2 or abs(recent[-1] - recent[0]) < TREND_C:
        return " "
    return "↑" if recent[-1] > recent[0] else "↓"


def _temp(phone: KnownPhone, trace: PhoneTrace, now: datetime) -> Piece:
    if phone.status.temp_c is None:
        return "--  ", "dim"
    return f"{phone.status.temp_c:.1f}{trend(trace)}", "red" if phone.status.temp_c >= HOT_C else ""


def _state(phone: KnownPhone, trace: PhoneTrace, now: datetime) -> Piece:
    badge = state_badge(phone, now)
    return f"{badge.mark} {badge.word}", badge.style


def _battery(phone: KnownPhone, trace: PhoneTrace, now: datetime) -> Piece:
    level = phone.status.battery_pct
    return ("--" if level is None else f"{level}%"), "red" if (level or 100) < 20 else ""


def _clocks(phone: KnownPhone, trace: PhoneTrace, now: datetime) -> Piece:
    text = clock_text(phone)
    return text, "bold yellow" if "!" in text else ""


def _progress(phone: KnownPhone, trace: PhoneTrace, now: datetime) -> Piece:
    return ("" if phone.status.progress is None else f"{phone.status.progress:.0%}"), ""


def _steps(phone: KnownPhone, trace: PhoneTrace, now: datetime) -> Piece:
    return ("" if phone.status.steps is None else count(phone.status.steps)), ""


def _left(phone: KnownPhone, trace: PhoneTrace, now: datetime) -> Piece:
    seconds = remaining_s(phone)
    return ("" if seconds is None else clock_time(seconds)), ""


# On a narrower screen the columns with the largest from_width are left out.
COLUMNS = (
    PhoneColumn("HOST", 10, 110, lambda phone, _, __: (safe_cell(phone.host, 63), "dim")),
    PhoneColumn("SOC", 10, 150, lambda phone, _, __: (safe_cell(phone.facts.soc, 24), "dim")),
    PhoneColumn("STATE", 10, 0, _state),
    PhoneColumn("°C", 6, 44, _temp, right=True),
    PhoneColumn("BAT", 4, 60, _battery, right=True),
    PhoneColumn("GHz", 17, 104, _clocks),
)
AFTER = (
    PhoneColumn("STEPS", 6, 128, _steps, right=True),
    PhoneColumn("DONE", 4, 66, _progress, right=True),
    PhoneColumn("LEFT", 5, 72, _left, right=True),
)


def heading_of(shown: int, view: LabView, ui: Ui) -> Text:
    """Render the line above the phones: their number, sort order and filter."""
    every = len(view.phones)
    total = f"phones {shown}" if shown == every else f"phones {shown} of {every}"
    total += f" and {len(view.problems)} unusable" if view.problems else ""
    filter_text = f"filter: {safe_cell(ui.filter, 40)}" if ui.filter else "filter: none"
    return rule(ui.width, total, f"sort: {ui.sort.value}", filter_text)


def phone_table(
    phones: Sequence[KnownPhone],
    snapshot: LabSnapshot,
    ui: Ui,
    now: datetime,
    rows: int,
    position: int,
) -> list[Text]:
    """Render the headings and the rows around the selected phone."""
    before = [column for column in COLUMNS if ui.width >= column.from_width]
    after = [column for column in AFTER if ui.width >= column.from_width]
    names = display_names(snapshot.view.phones)
    longest = max(map(cells, names.values()), default=MODEL_MIN)
    name_cells = min(26, longest, max(MODEL_MIN, ui.width // 5))
    fixed = 2 + name_cells + 2 + sum(column.cells + 1 for column in (*before, *after))
    trial_cells = max(0, ui.width - fixed)
    top = window(position, len(phones), ui.top, rows)
    lines = [_headings(before, after, name_cells, trial_cells, ui.width)]
    short = ui.width < 150
    for index, phone in enumerate(phones[top : top + rows], top):
        trace = snapshot.traces.get(phone.serial, NO_TRACE)
        selected = index == position
        pieces: list[Piece] = [("> " if selected else "  ", "bold")]
        pieces.append((fit_name(names[phone.serial], name_cells) + " ", "bold" * selected))
        pieces += [_piece(column, phone, trace, now) for column in before]
        pieces.append((fit(activity_text(phone, now, short), trial_cells), ""))
        pieces += [(" ", ""), *(_piece(column, phone, trace, now) for column in after)]
        row = line(ui.width, *pieces)
        if selected:
            row.stylize("reverse", 0, 2 + name_cells)
        lines.append(row)
    free = rows + 1 - len(lines)
    problems = snapshot.view.problems[:free] if not ui.filter else ()
    lines += [problem_line(problem, ui.width) for problem in problems]
    if not phones and not problems:
        empty = "no phone matches; esc shows all" if ui.filter else "no phone yet"
        lines.append(line(ui.width, (f"  {empty}", "dim")))
    return lines + [line(ui.width)] * (rows + 1 - len(lines))


def problem_line(problem: ReportedProblem, width: int) -> Text:
    """Render a phone that its host cannot use: address, host, and what to do."""
    where = f" {safe_cell(problem.address, 60)} on {safe_cell(problem.host, 63)}: "
    return line(width, ("  ! UNUSABLE", "yellow"), (where + safe_cell(problem.text, 300), ""))


def _piece(column: PhoneColumn, phone: KnownPhone, trace: PhoneTrace, now: datetime) -> Piece:
    text, style = column.show(phone, trace, now)
    return fit(text, column.cells, column.right) + " ", style


def _headings(
    before: Sequence[PhoneColumn], after: Sequence[PhoneColumn], name: int, trial: int, width: int
) -> Text:
    text = "  " + fit("PHONE", name) + " "
    text += "".join(fit(column.heading, column.cells, column.right) + " " for column in before)
    text += fit("TRIAL, OR WHY NOT", trial) + " "
    text += "".join(fit(column.heading, column.cells, column.right) + " " for column in after)
    return line(width, (text, "dim"))
