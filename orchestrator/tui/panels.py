"""Renders the whole screen: a pure function from a snapshot and the user's selection to lines.

Every line has exactly the width of the screen, and there are as many lines as it is high.
"""

from collections.abc import Sequence
from datetime import datetime

from rich.text import Text

from orchestrator.app.lab_status import KnownPhone
from orchestrator.app.screen.lab_page import group_problems
from orchestrator.app.screen.lab_snapshot import LabSnapshot
from orchestrator.app.screen.phone_state_text import display_names
from orchestrator.tui.event_lines import event_panel, matching_events
from orchestrator.tui.header import header
from orchestrator.tui.keymap import BINDINGS, footer_words
from orchestrator.tui.layout import Layout, layout, position_of, visible_phones
from orchestrator.tui.matrix import heat_map
from orchestrator.tui.matrix_table import cell_page, matrix_table
from orchestrator.tui.phone_detail import phone_page, phone_pane
from orchestrator.tui.phone_table import heading_of, phone_table
from orchestrator.tui.text_cells import Piece, between, cells, line, rule, safe_cell
from orchestrator.tui.ui_state import Mode, Ui
from workloads.command_output import as_typed
from workloads.protocol.messages import PhoneState

TERMS = (
    ("run", "the phone trains; prepare, pin, collect and restore come before and after"),
    ("cool", "the phone cools down to its start temperature; LEFT is the expected time"),
    ("HELD", "the phone failed repeatedly and is checked before it gets runs again"),
    ("QUARANT.", "the phone gets no runs until an operator releases it (Q)"),
    ("AWAY", "no host reports the phone: check cable, USB debugging and host"),
    ("UNUSABLE", "a host sees the phone and cannot use it; the line says what to do"),
    ("2.84L", "CPU clock in GHz; L: locked to this value; !: locked to another value"),
    ("34.5↑", "highest CPU temperature; ↑ rising, ↓ falling"),
    ("void", "a requested condition was not met; the run is repeated"),
    ("ETA", "expected end of the sweep, with its 80 % interval"),
)


HINTS = {
    Mode.FILTER: "⏎ keeps, esc cancels; part of a name, or: root and big >= 4",
    Mode.SEARCH: "⏎ keeps, esc clears; words of an event: its kind, its phone, its text",
}


def screen(snapshot: LabSnapshot, ui: Ui, now: datetime) -> list[Text]:
    """Render all lines of the screen."""
    if ui.mode is Mode.HELP:
        return _fill(_help(ui), ui)
    phones = visible_phones(snapshot.view.phones, ui, now)
    plan = layout(ui, len(phones) + len(snapshot.view.problems))
    lines = header(snapshot, ui, now)[: plan.head]
    lines += [line(ui.width)] * (plan.head - len(lines))
    position = position_of(phones, ui.selected)
    selected = phones[position] if phones else None
    body = ui.height - plan.head - plan.footer
    if ui.mode is Mode.MATRIX:
        lines += matrix_table(snapshot.view.cells, ui.width, body, ui.cell)
        lines += [line(ui.width)] * (ui.height - plan.footer - len(lines))
    elif ui.mode is Mode.CELL:
        names = display_names(snapshot.view.phones)
        lines += cell_page(snapshot.view.cells, ui, names, body)
        lines += [line(ui.width)] * (ui.height - plan.footer - len(lines))
    elif ui.mode is Mode.PHONE and selected is not None and plan.rows:
        lines += phone_page(selected, snapshot, ui, now, body)
    else:
        lines += _body(phones, selected, position, snapshot, ui, now, plan)
    if plan.footer:
        lines = [*lines[: ui.height - 1], footer(ui)]
    return _fill(lines, ui)


def _body(
    phones: Sequence[KnownPhone],
    selected: KnownPhone | None,
    position: int,
    snapshot: LabSnapshot,
    ui: Ui,
    now: datetime,
    plan: Layout,
) -> list[Text]:
    if not plan.rows:
        return []
    left = ui.with_(width=plan.left)
    lines = [heading_of(len(phones), snapshot.view, left)]
    lines += phone_table(phones, snapshot, left, now, plan.rows, position)
    if plan.pane:
        lines += phone_pane(selected, snapshot, plan.left, now)
    names = display_names(snapshot.view.phones)
    more = f"search: {safe_cell(ui.search, 40)}" if ui.search else ""
    events = matching_events(snapshot.events, names, ui.search)
    lines += event_panel(events, names, snapshot.skipped, plan.left, plan.events, more)
    if plan.left == ui.width:
        return lines
    return _join_columns(lines, _right_column(snapshot, ui.width - plan.left - 3, len(lines), now))


def _right_column(snapshot: LabSnapshot, width: int, height: int, now: datetime) -> list[Text]:
    """Render the right column of a wide screen: the matrix, the problems and the hosts."""
    hosts = [rule(width, f"hosts {len(snapshot.view.hosts)}")]
    for host in sorted(snapshot.view.hosts)[:12]:
        phones = [phone for phone in snapshot.view.phones if phone.host == host]
        busy = sum(phone.status.state is PhoneState.BUSY for phone in phones)
        counts = f"{safe_cell(host, 30)}: {len(phones)} phones, {busy} busy"
        hosts.append(line(width, (counts, "")))
    problems = _problems(snapshot, width, max(3, height // 3), now)
    room = max(6, height - len(hosts) - len(problems) - 2)
    shown = snapshot.view.cells
    matrix = matrix_table(shown, width, room) or heat_map(shown, width, room)
    lines = [*matrix, line(width), *problems, line(width), *hosts]
    return [*lines, *[line(width)] * (height - len(lines))]


def _problems(snapshot: LabSnapshot, width: int, height: int, now: datetime) -> list[Text]:
    """List the problems, grouped: the reason first, then the phones that it concerns."""
    lines = []
    for title, text, phones in group_problems(snapshot, display_names(snapshot.view.phones), now):
        listed = f" ({safe_cell(', '.join(phones), 300)})" if phones else ""
        detail = f": {safe_cell(as_typed(text), 300)}{listed}"
        lines.append(line(width, (safe_cell(title, 80), "bold red"), (detail, "")))
    if not lines:
        lines.append(line(width, ("none", "dim")))
    return [rule(width, "problems"), *lines[: height - 1]]


def _join_columns(left: Sequence[Text], right: Sequence[Text]) -> list[Text]:
    joined = []
    for index, text in enumerate(left):
        both = text.copy()
        both.append(" │ ", "dim")
        if index < len(right):
            both.append_text(right[index])
        joined.append(both)
    return joined


def footer(ui: Ui) -> Text:
    """Render the last line: a question, the filter that is typed, a note, or the keys."""
    if ui.mode is Mode.CONFIRM and ui.pending is not None:
        question = [(f"{ui.pending.question} ", "bold yellow"), ("y yes  n no", "bold")]
        return line(ui.width, *question)
    if ui.mode in (Mode.FILTER, Mode.SEARCH):
        hint = ui.filter_error or HINTS[ui.mode]
        style = "red" if ui.filter_error else "dim"
        return line(
            ui.width, ("/", "bold"), (ui.typed, ""), ("█ ", ""), (safe_cell(hint, 200), style)
        )
    if ui.note:
        return line(ui.width, (safe_cell(ui.note, 300), "bold"))
    return _key_line(ui)


def _key_line(ui: Ui) -> Text:
    """Name as many keys as fit, and those for help and quitting."""
    ends = _key_names([("?", "help"), ("q", "quit")])
    room = ui.width - 1 - sum(cells(text) for text, _ in ends)
    words = footer_words(ui)
    start: list[Piece] = [("read-only  ", "dim")] if ui.read_only else []
    while words and sum(cells(text) for text, _ in (*start, *_key_names(words))) > room:
        words.pop()
    return between(ui.width, [*start, *_key_names(words)], ends)


def _key_names(keys: Sequence[tuple[str, str]]) -> list[Piece]:
    pieces: list[Piece] = []
    for key, word in keys:
        pieces += [("  " if pieces else "", ""), (key, "bold"), (f" {word}", "dim")]
    return pieces


def _help(ui: Ui) -> list[Text]:
    lines = [rule(ui.width, "keys and terms", "any key closes this help")]
    keys = [(binding.label, binding.help) for binding in BINDINGS if binding.help]
    for key, text in (*keys, ("", ""), *TERMS):
        lines.append(line(ui.width, (f" {key:<9}", "bold"), (text, "")))
    return lines


def _fill(lines: Sequence[Text], ui: Ui) -> list[Text]:
    """Pad or cut to exactly as many lines as the screen has."""
    return [*lines, *[line(ui.width)] * (ui.height - len(lines))][: ui.height]
