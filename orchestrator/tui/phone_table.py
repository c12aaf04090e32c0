"""The phones: a line each, with as many columns as the screen is wide."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from rich.cells import cell_len
from rich.text import Text

from orchestrator.store.phone_queries import KnownPhone
from orchestrator.tui.phone_state_text import (
    activity_text,
    clock_text,
    clock_time,
    count,
    display_names,
    fit_name,
    remaining_s,
    state_badge,
)
from orchestrator.tui.sorting import window
from orchestrator.tui.text_cells import Piece, fit, line, rule, safe_cell
from orchestrator.tui.ui_state import NO_TRACE, LabSnapshot, PhoneTrace, Ui

TREND_LOOKS, TREND_C = 8, 0.4
MODEL_MIN = 12
HOT_C = 75.0  # of a CPU; phones are held cool by their own means from about here


class PhoneColumn(NamedTuple):
    """A column: its heading, its cells, from which width on it is shown, and what it shows."""

    heading: str
    cells: int
    from_width: int
    show: Callable[[KnownPhone, PhoneTrace, datetime], Piece]
    right: bool = False


def trend(trace: PhoneTrace) -> str:
    """Whether it gets warmer or cooler."""
    recent = trace.temps_c[-TREND_LOOKS:]
    if len(recent) < 2 or abs(recent[-1] - recent[0]) < TREND_C:
        return " "
    return "↑" if recent[-1] > recent[0] else "↓"


def _temp(phone: KnownPhone, trace: PhoneTrace, now: datetime) -> Piece:
    if phone.status.temp_c is None:
        return "--  ", "dim"
    return f"{phone.status.temp_c:.1f}{trend(trace)}", "red" if phone.status.temp_c >= HOT_C else ""


def _state(phone: KnownPhone, trace: PhoneTrace, now: datetime) -> Piece:
    look = state_badge(phone, now)
    return f"{look.mark} {look.word}", look.style


def _battery(phone: KnownPhone, trace: PhoneTrace, now: datetime) -> Piece:
    level = phone.status.battery_pct
    return ("--" if level is None else f"{level}%"), "red" if (level or 100) < 20 else ""


def _clocks(phone: KnownPhone, trace: PhoneTrace, now: datetime) -> Piece:
    words = clock_text(phone)
    return words, "bold yellow" if "!" in words else ""


def _step(phone: KnownPhone, trace: PhoneTrace, now: datetime) -> Piece:
    return ("" if phone.status.progress is None else f"{phone.status.progress:.0%}"), ""


def _steps(phone: KnownPhone, trace: PhoneTrace, now: datetime) -> Piece:
    return ("" if phone.status.steps is None else count(phone.status.steps)), ""


def _left(phone: KnownPhone, trace: PhoneTrace, now: datetime) -> Piece:
    seconds = remaining_s(phone)
    return ("" if seconds is None else clock_time(seconds)), ""


# In this order they go when the screen gets narrow: the widest from_width first.
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
    PhoneColumn("DONE", 4, 66, _step, right=True),
    PhoneColumn("LEFT", 5, 72, _left, right=True),
)


def heading_of(shown: int, every: int, ui: Ui) -> Text:
    """The line above the phones: how many there are, and how they were chosen."""
    of = f"phones {shown}" if shown == every else f"phones {shown} of {every}"
    chosen = f"filter: {safe_cell(ui.filter, 40)}" if ui.filter else "filter: none"
    return rule(ui.width, of, f"sort: {ui.sort.value}", chosen)


def phone_table(
    phones: Sequence[KnownPhone], seen: LabSnapshot, ui: Ui, now: datetime, rows: int, place: int
) -> list[Text]:
    """Headings and so many rows around the selected phone."""
    before = [column for column in COLUMNS if ui.width >= column.from_width]
    after = [column for column in AFTER if ui.width >= column.from_width]
    names = display_names(seen.view.phones)
    longest = max((cell_len(name) for name in names.values()), default=MODEL_MIN)
    name_cells = min(26, longest, max(MODEL_MIN, ui.width // 5))
    fixed = 2 + name_cells + 2 + sum(column.cells + 1 for column in (*before, *after))
    trial_cells = max(0, ui.width - fixed)
    top = window(place, len(phones), ui.top, rows)
    lines = [_headings(before, after, name_cells, trial_cells, ui.width)]
    short = ui.width < 150
    for at, phone in enumerate(phones[top : top + rows], top):
        trace = seen.traces.get(phone.serial, NO_TRACE)
        selected = at == place
        pieces: list[Piece] = [("> " if selected else "  ", "bold")]
        pieces.append((fit_name(names[phone.serial], name_cells) + " ", "bold" * selected))
        pieces += [_piece(column, phone, trace, now) for column in before]
        pieces.append((fit(activity_text(phone, now, short), trial_cells), ""))
        pieces += [(" ", ""), *(_piece(column, phone, trace, now) for column in after)]
        row = line(ui.width, *pieces)
        if selected:
            row.stylize("reverse", 0, 2 + name_cells)
        lines.append(row)
    if not phones:
        none = "no phone matches; esc shows all" if ui.filter else "no phone yet"
        lines.append(line(ui.width, (f"  {none}", "dim")))
    return lines + [line(ui.width)] * (rows + 1 - len(lines))


def _piece(column: PhoneColumn, phone: KnownPhone, trace: PhoneTrace, now: datetime) -> Piece:
    words, style = column.show(phone, trace, now)
    return fit(words, column.cells, column.right) + " ", style


def _headings(
    before: Sequence[PhoneColumn], after: Sequence[PhoneColumn], name: int, trial: int, width: int
) -> Text:
    words = "  " + fit("PHONE", name) + " "
    words += "".join(fit(each.heading, each.cells, each.right) + " " for each in before)
    words += fit("TRIAL, OR WHY NOT", trial) + " "
    words += "".join(fit(each.heading, each.cells, each.right) + " " for each in after)
    return line(width, (words, "dim"))
