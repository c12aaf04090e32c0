"""Renders the whole screen: a pure function from a snapshot and the user's selection to lines.

Every line has exactly the width of the screen, and there are as many lines as it is high.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.text import Text

from orchestrator.app.lab_page import group_problems
from orchestrator.app.lab_snapshot import LabSnapshot
from orchestrator.app.lab_status import KnownPhone
from orchestrator.app.phone_state_text import display_names
from orchestrator.tui.event_lines import event_panel, matching_events
from orchestrator.tui.header import header
from orchestrator.tui.matrix import heat_map
from orchestrator.tui.phone_detail import PANE_LINES, phone_page, phone_pane
from orchestrator.tui.phone_table import heading_of, phone_table
from orchestrator.tui.sorting import position_of, visible_phones
from orchestrator.tui.text_cells import Piece, between, line, rule, safe_cell
from orchestrator.tui.ui_state import Mode, Ui
from workloads.protocol.messages import PhoneState

BESIDE_WIDTH, BESIDE_HEIGHT = 160, 32
LEFT_WIDTH = 130
PANE_HEIGHT, PANE_WIDTH = 30, 60
EVENTS_MIN = 5
MANY_KEYS_WIDTH = 120
FOOTER_HEIGHT_MIN = 8  # lower screens have no footer

HELP = (
    ("↑ ↓ j k", "move; PgUp, PgDn; g and G jump to the ends"),
    ("⏎", "open the phone; esc closes it"),
    ("/", "filter phones, e.g. xiaomi   ram_mb >= 6000 and root   tag == paper"),
    ("e", "search the events, e.g. fault pixel"),
    ("s", "sort by state, name, host, temperature, battery, remaining time"),
    ("n N", "follow the next or the previous sweep"),
    ("m", "open the matrix of the sweep; arrows move, the last line describes the cell"),
    ("p", "pause or resume the sweep: running runs finish, no new ones start"),
    ("c", "cancel the sweep: queued runs are dropped, results are kept"),
    ("r", "retry failed and blocked runs"),
    ("Q", "quarantine or release the selected phone"),
    ("+ -", "raise or lower the sweep's priority"),
    ("? h", "this help"),
    ("q", "quit, also Ctrl-C; the lab keeps running"),
    ("", ""),
    ("run", "the phone trains; prepare, pin, collect and restore come before and after"),
    ("cool", "the phone cools down to its start temperature; LEFT is the expected time"),
    ("SUSPECT", "the phone failed repeatedly and is checked before it gets runs again"),
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


@dataclass(frozen=True)
class Layout:
    """How many lines each part of the screen gets."""

    head: int
    rows: int
    pane: int
    events: int
    left: int
    footer: int


def layout(ui: Ui, phones: int) -> Layout:
    """Assign lines to the header, the phones, the selected phone and the events, in this order."""
    tiny = ui.width < 40 or ui.height < FOOTER_HEIGHT_MIN
    head = min(3, ui.height) if tiny else 3
    footer = 0 if ui.height < FOOTER_HEIGHT_MIN else 1
    left = LEFT_WIDTH if ui.width >= BESIDE_WIDTH and ui.height >= BESIDE_HEIGHT else ui.width
    body = ui.height - head - footer
    if ui.width < 40 or body < 3:
        return Layout(head, 0, 0, 0, left, footer)
    pane = PANE_LINES if ui.height >= PANE_HEIGHT and ui.width >= PANE_WIDTH else 0
    kept = EVENTS_MIN if ui.height >= 20 else 0
    rows = max(1, min(max(phones, 1), body - 2 - pane - kept))
    events = max(0, body - 2 - rows - pane)
    if events < 2:
        rows, events = rows + events, 0
    return Layout(head, rows, pane, events, left, footer)


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
        lines += heat_map(snapshot.view.cells, ui.width, body, ui.cell)
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
    lines = [*heat_map(snapshot.view.cells, width, room), line(width), *problems, line(width)]
    lines += hosts
    return [*lines, *[line(width)] * (height - len(lines))]


def _problems(snapshot: LabSnapshot, width: int, height: int, now: datetime) -> list[Text]:
    """List the problems, grouped: the reason first, then the phones that it concerns."""
    lines = []
    for title, text, phones in group_problems(snapshot, display_names(snapshot.view.phones), now):
        listed = f" ({safe_cell(', '.join(phones), 300)})" if phones else ""
        detail = f": {safe_cell(text, 300)}{listed}"
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
    return between(ui.width, _keys(ui), _key_names([("?", "help"), ("q", "quit")]))


def _keys(ui: Ui) -> list[Piece]:
    keys = [("↑↓", "select"), ("⏎", "open"), ("/", "filter"), ("s", "sort")]
    if ui.width >= MANY_KEYS_WIDTH:
        keys += [("e", "events"), ("n", "sweep"), ("m", "matrix")]
    if ui.mode is Mode.PHONE:
        keys = [("↑↓", "select"), ("esc", "back")]
    if ui.mode is Mode.MATRIX:
        keys = [("↑↓←→", "move"), ("n", "sweep"), ("esc", "back")]
    if not ui.read_only:
        keys += [("p", "pause"), ("c", "cancel"), ("r", "retry"), ("Q", "quarantine")]
    return _key_names(keys) + ([("read-only", "dim")] if ui.read_only else [])


def _key_names(keys: Sequence[tuple[str, str]]) -> list[Piece]:
    pieces: list[Piece] = []
    for key, word in keys:
        pieces += [(key, "bold"), (f" {word}  ", "dim")]
    return pieces


def _help(ui: Ui) -> list[Text]:
    lines = [rule(ui.width, "keys and terms", "any key closes this help")]
    for key, text in HELP:
        lines.append(line(ui.width, (f" {key:<9}", "bold"), (text, "")))
    return lines


def _fill(lines: Sequence[Text], ui: Ui) -> list[Text]:
    """Pad or cut to exactly as many lines as the screen has."""
    return [*lines, *[line(ui.width)] * (ui.height - len(lines))][: ui.height]
