"""The whole screen: pure, from what was seen and what is looked at to lines of text.

Every line is exactly as wide as the screen, and there are exactly as many as it is high.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.text import Text

from orchestrator.store.phone_queries import KnownPhone
from orchestrator.tui.event_lines import EVENT_STYLES, event_panel
from orchestrator.tui.header import header
from orchestrator.tui.matrix import heat_map
from orchestrator.tui.phone_detail import PANE_LINES, phone_page, phone_pane
from orchestrator.tui.phone_state_text import BADGES, activity_text, display_names, state_badge
from orchestrator.tui.phone_table import heading_of, phone_table
from orchestrator.tui.sorting import position_of, visible_phones
from orchestrator.tui.text_cells import Piece, between, line, rule, safe_cell
from orchestrator.tui.ui_state import LabSnapshot, Mode, Ui
from workloads.protocol.messages import EventKind

BESIDE_WIDTH, BESIDE_HEIGHT = 160, 32
LEFT_WIDTH = 130
PANE_HEIGHT, PANE_WIDTH = 30, 60
EVENTS_MIN = 5
WRONG = frozenset({EventKind.FAULT, EventKind.VOID, EventKind.EXPIRED})
SMALL = 8  # lines; below it there is no room for a footer

HELP = (
    ("↑ ↓ j k", "move; PgUp PgDn, g and G to the ends"),
    ("⏎", "open the phone; esc goes back"),
    ("/", "show only some phones: xiaomi   ram_mb >= 6000 and root   tag == paper"),
    ("s", "sort by state, name, host, temperature, battery, time left"),
    ("p", "pause or resume the sweep: running runs finish, no new one starts"),
    ("c", "cancel the sweep: what is queued is dropped, results stay"),
    ("r", "retry what failed, and nothing else"),
    ("Q", "quarantine the selected phone, or release it"),
    ("+ -", "raise or lower the sweep's priority"),
    ("? h", "this help"),
    ("q", "quit; Ctrl-C too. The lab goes on."),
    ("", ""),
    ("run", "it measures; prepare, pin, collect and restore come around that"),
    ("cool", "it waits until it is cool enough to start; LEFT says how long"),
    ("SUSPECT", "it failed too often and is checked before it works again"),
    ("QUARANT.", "it gets no runs until somebody releases it (Q)"),
    ("AWAY", "its host does not see it: cable, USB debugging, or the host itself"),
    ("2.84L", "a clock in GHz; L: locked, and there it stands; !: locked, and elsewhere"),
    ("34.5↑", "the hottest of its CPU; ↑ gets warmer, ↓ cooler"),
    ("void", "the phone was not in the state asked for: the run is repeated"),
    ("ETA", "when the last phone is done; eight of ten ends lie between the two in brackets"),
)


@dataclass(frozen=True)
class Layout:
    """How the lines of a screen are shared out."""

    head: int
    rows: int
    pane: int
    events: int
    left: int
    footer: int


def layout(ui: Ui, phones: int) -> Layout:
    """Share the lines out: header first, then phones, then the selected one, then events."""
    tiny = ui.width < 40 or ui.height < SMALL
    head = min(3, ui.height) if tiny else 3
    footer = 0 if ui.height < SMALL else 1
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


def screen(seen: LabSnapshot, ui: Ui, now: datetime) -> list[Text]:
    """All lines of the screen."""
    if ui.mode is Mode.HELP:
        return _filled(_help(ui), ui)
    phones = visible_phones(seen.view.phones, ui, now)
    plan = layout(ui, len(phones))
    lines = header(seen, ui, now)[: plan.head]
    lines += [line(ui.width)] * (plan.head - len(lines))
    place = position_of(phones, ui.selected)
    selected = phones[place] if phones else None
    if ui.mode is Mode.PHONE and selected is not None and plan.rows:
        body = ui.height - plan.head - plan.footer
        lines += phone_page(selected, seen, ui, now, body)
    else:
        lines += _body(phones, selected, place, seen, ui, now, plan)
    if plan.footer:
        lines = [*lines[: ui.height - 1], footer(ui)]
    return _filled(lines, ui)


def _body(
    phones: Sequence[KnownPhone],
    selected: KnownPhone | None,
    place: int,
    seen: LabSnapshot,
    ui: Ui,
    now: datetime,
    plan: Layout,
) -> list[Text]:
    if not plan.rows:
        return []
    left = ui.with_(width=plan.left)
    lines = [heading_of(len(phones), len(seen.view.phones), left)]
    lines += phone_table(phones, seen, left, now, plan.rows, place)
    if plan.pane:
        lines += phone_pane(selected, seen, plan.left, now)
    names = display_names(seen.view.phones)
    lines += event_panel(seen.events, names, seen.missed, plan.left, plan.events)
    if plan.left == ui.width:
        return lines
    return _beside(lines, _right(seen, ui.width - plan.left - 3, len(lines), now))


def _right(seen: LabSnapshot, width: int, height: int, now: datetime) -> list[Text]:
    """Beside the phones, where there is room: the matrix, what is wrong, and the hosts."""
    hosts = rule(width, f"hosts {len(seen.view.hosts)}")
    listed = [hosts]
    for host in sorted(seen.view.hosts)[:12]:
        own = [phone for phone in seen.view.phones if phone.host == host]
        busy = sum(phone.status.state == "busy" for phone in own)
        listed.append(
            line(width, (f"{safe_cell(host, 30)}: {len(own)} phones, {busy} at work", ""))
        )
    trouble = _trouble(seen, width, max(3, height // 3), now)
    room = max(6, height - len(listed) - len(trouble) - 2)
    lines = [*heat_map(seen.view.cells, width, room), line(width), *trouble, line(width), *listed]
    return [*lines, *[line(width)] * (height - len(lines))]


def _trouble(seen: LabSnapshot, width: int, height: int, now: datetime) -> list[Text]:
    """Everything that is not as it should be, in full: phones first, then runs that went wrong."""
    lines: list[Text] = []
    names = display_names(seen.view.phones)
    for phone in seen.view.phones:
        look = state_badge(phone, now)
        stuck = look is BADGES["reserved"] and phone.queued
        if look.order <= BADGES["away"].order or stuck:
            words = f" {names[phone.serial]}: {activity_text(phone, now)}"
            lines.append(line(width, (f"{look.mark} {look.word}", look.style), (words, "")))
    for event in reversed(seen.events):
        if event.kind in WRONG:
            at = f"{event.occurred_at.astimezone():%H:%M:%S} "
            lines.append(
                line(width, (at, "dim"), (safe_cell(event.text, 300), EVENT_STYLES[event.kind]))
            )
    if not lines:
        lines.append(line(width, ("nothing", "dim")))
    return [rule(width, "what is wrong"), *lines[: height - 1]]


def _beside(left: Sequence[Text], right: Sequence[Text]) -> list[Text]:
    joined = []
    for at, begins in enumerate(left):
        both = begins.copy()
        both.append(" │ ", "dim")
        if at < len(right):
            both.append_text(right[at])
        joined.append(both)
    return joined


def footer(ui: Ui) -> Text:
    """The last line: a question, what was typed, what happened, or the keys."""
    if ui.mode is Mode.CONFIRM and ui.ask is not None:
        question = [(f"{ui.ask.question} ", "bold yellow"), ("y yes  n no", "bold")]
        return line(ui.width, *question)
    if ui.mode is Mode.FILTER:
        hint = ui.wrong or "⏎ applies, esc leaves; a word of the name, or: root and big >= 4"
        style = "red" if ui.wrong else "dim"
        return line(
            ui.width, ("/", "bold"), (ui.typed, ""), ("█ ", ""), (safe_cell(hint, 200), style)
        )
    if ui.note:
        return line(ui.width, (safe_cell(ui.note, 300), "bold"))
    return between(ui.width, _keys(ui), _named([("?", "help"), ("q", "quit")]))


def _keys(ui: Ui) -> list[Piece]:
    keys = [("↑↓", "pick"), ("⏎", "open"), ("/", "filter"), ("s", "sort")]
    if ui.mode is Mode.PHONE:
        keys = [("↑↓", "pick"), ("esc", "back")]
    if not ui.read_only:
        keys += [("p", "pause"), ("c", "cancel"), ("r", "retry"), ("Q", "quarantine")]
    return _named(keys) + ([("read-only", "dim")] if ui.read_only else [])


def _named(keys: Sequence[tuple[str, str]]) -> list[Piece]:
    pieces: list[Piece] = []
    for key, word in keys:
        pieces += [(key, "bold"), (f" {word}  ", "dim")]
    return pieces


def _help(ui: Ui) -> list[Text]:
    lines = [rule(ui.width, "keys and words", "any key goes back")]
    for key, words in HELP:
        lines.append(line(ui.width, (f" {key:<9}", "bold"), (words, "")))
    return lines


def _filled(lines: Sequence[Text], ui: Ui) -> list[Text]:
    """Exactly as many lines as the screen has."""
    return [*lines, *[line(ui.width)] * (ui.height - len(lines))][: ui.height]
