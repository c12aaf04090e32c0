"""The keys of the screen: one table, which dispatch, help and footer read.

What a key does is a pure function from the state of the screen to the next state.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from orchestrator.app.lab_status import KnownPhone
from orchestrator.app.screen.lab_snapshot import LabSnapshot
from orchestrator.app.screen.phone_filter import parse_phone_filter
from orchestrator.planning.states import Health, SweepState
from orchestrator.tui.layout import layout, position_of, visible_phones, window
from orchestrator.tui.matrix import axis_names
from orchestrator.tui.text_cells import safe_cell
from orchestrator.tui.ui_state import ActionKind, Mode, PendingAction, Sort, Ui
from workloads.protocol.faults import InvalidRequest

FILTER_MAX = 200
NextUi = tuple[Ui, PendingAction | None]


class Shown(NamedTuple):
    """What the screen shows while a key is pressed."""

    snapshot: LabSnapshot
    phones: Sequence[KnownPhone]


Act = Callable[[Ui, str, Shown], Ui]


@dataclass(frozen=True)
class Binding:
    """What some keys do and where, and how footer and help name them."""

    keys: Sequence[str]
    words: Mapping[Mode, str]  # for the footer of every mode in which the keys act; "": not there
    act: Act
    help: str = ""
    shown: str = ""  # how the keys are written; by default as they are

    @property
    def label(self) -> str:
        """The keys for the help; the footer has the first."""
        return self.shown or " ".join(self.keys)


def handle_key(ui: Ui, key: str, snapshot: LabSnapshot, now: datetime) -> NextUi:
    """Handle one key; return the next state, and an action that was confirmed."""
    ui = ui.with_(note="")
    if ui.mode is Mode.HELP:
        return ui.with_(mode=Mode.TABLE), None
    if ui.mode is Mode.CONFIRM:
        confirmed = key in ("y", "Y")
        note = "" if confirmed else "Nothing was changed."
        action = ui.pending if confirmed else None
        return ui.with_(mode=Mode.TABLE, pending=None, note=note), action
    if ui.mode is Mode.FILTER:
        return _edit_filter(ui, key), None
    if ui.mode is Mode.SEARCH:
        return _edit_search(ui, key), None
    binding = _BY_KEY.get((ui.mode, key))
    if binding is None:
        return ui, None
    if changes_lab(binding) and ui.read_only:
        return ui.with_(note="This screen is read-only; start it without --read-only."), None
    shown = Shown(snapshot, visible_phones(snapshot.view.phones, ui, now))
    return binding.act(ui, key, shown), None


def changes_lab(binding: Binding) -> bool:
    """Return whether some keys change the lab, and not only the screen."""
    return any(binding is change for change in CHANGES)


def footer_words(ui: Ui) -> list[tuple[str, str]]:
    """Return the keys of this mode with a word for each, the most important first."""
    return [
        (binding.label.split()[0], word)
        for binding in BINDINGS
        if (word := binding.words.get(ui.mode)) and not (changes_lab(binding) and ui.read_only)
    ]


def _typed(ui: Ui, key: str) -> str:
    if key == "backspace":
        return ui.typed[:-1]
    return (ui.typed + key if len(key) == 1 else ui.typed)[:FILTER_MAX]


def _edit_filter(ui: Ui, key: str) -> Ui:
    """Apply the filter while it is typed; an unfinished selector changes nothing yet."""
    if key == "escape":
        text, matches = ui.before
        return ui.with_(mode=Mode.TABLE, typed="", filter_error="", filter=text, matches=matches)
    typed = _typed(ui, key)
    text = typed.strip()
    try:
        matches = parse_phone_filter(text) if text else None
    except InvalidRequest as error:
        if key != "enter":
            return ui.with_(typed=typed, filter_error="")
        text, matches = ui.before
        return ui.with_(filter_error=str(error), filter=text, matches=matches)
    shown = ui.with_(filter=text, matches=matches, typed=typed, filter_error="", top=0)
    return shown.with_(mode=Mode.TABLE, typed="") if key == "enter" else shown


def _edit_search(ui: Ui, key: str) -> Ui:
    """Search the events while words are typed."""
    if key == "escape":
        return ui.with_(mode=Mode.TABLE, typed="", search="")
    if key == "enter":
        return ui.with_(mode=Mode.TABLE, typed="")
    typed = _typed(ui, key)
    return ui.with_(typed=typed, search=typed.strip())


# By how many rows or pages, or to which end.
_ROWS = {"up": -1, "k": -1, "down": 1, "j": 1}
_PAGES = {"pageup": -1, "b": -1, "pagedown": 1, " ": 1}
_ENDS = {"home": 0, "g": 0, "end": -1, "G": -1}


def _move(ui: Ui, key: str, shown: Shown) -> Ui:
    phones = shown.phones
    if not phones:
        return ui
    rows, last = max(1, layout(ui, len(phones)).rows), len(phones) - 1
    if key in _ENDS:
        to = _ENDS[key] % len(phones)
    else:
        by = _ROWS.get(key, 0) + rows * _PAGES.get(key, 0)
        to = max(0, min(last, position_of(phones, ui.selected) + by))
    return ui.with_(selected=phones[to].serial, top=window(to, len(phones), ui.top, rows))


_CELLS = {"up": (-1, 0), "k": (-1, 0), "down": (1, 0), "j": (1, 0)}
_CELLS |= {"left": (0, -1), "right": (0, 1), "l": (0, 1)}
_CELLS |= {"pageup": (-10, 0), "pagedown": (10, 0), " ": (0, 10), "b": (0, -10)}


def _move_in_matrix(ui: Ui, key: str, shown: Shown) -> Ui:
    conditions, cases = axis_names(shown.snapshot.view.cells)
    row, column = (old + step for old, step in zip(ui.cell, _CELLS[key], strict=True))
    last_row, last_column = max(0, len(cases) - 1), max(0, len(conditions) - 1)
    return ui.with_(cell=(min(max(row, 0), last_row), min(max(column, 0), last_column)))


def _open_cell(ui: Ui, _: str, shown: Shown) -> Ui:
    cells = shown.snapshot.view.cells
    conditions, cases = axis_names(cells)
    if not cells or ui.cell[0] >= len(cases) or ui.cell[1] >= len(conditions):
        return ui.with_(note="There is no cell yet.")
    label = f"{cases[ui.cell[0]]} {conditions[ui.cell[1]]}"
    return ui.with_(mode=Mode.CELL, opened=label, trials=None)


def _next_sweep(ui: Ui, key: str, shown: Shown) -> Ui:
    """Follow another of the newest sweeps, in the order of their submission."""
    view = shown.snapshot.view
    known = sorted((*view.sweeps, *view.others), key=lambda sweep: (sweep.created_at, sweep.id))
    if len(known) < 2:
        return ui.with_(note="There is no other sweep.")
    current = ui.sweep or view.sweeps[0].id
    position = next((i for i, sweep in enumerate(known) if sweep.id == current), 0)
    chosen = known[(position + (1 if key == "n" else -1)) % len(known)]
    return ui.with_(sweep=chosen.id, cell=(0, 0), note=f"Now following {safe_cell(chosen.name)}.")


def _open(mode: Mode) -> Act:
    return lambda ui, _, __: ui.with_(mode=mode)


def _ask(kind: ActionKind, question: str) -> Act:
    """Return what asks before the sweep is changed."""

    def act(ui: Ui, _: str, shown: Shown) -> Ui:
        view = shown.snapshot.view
        if not view.sweeps:
            return ui.with_(note="There is no sweep.")
        sweep, running = view.sweeps[0], sum(phone.lease is not None for phone in view.phones)
        text = question.format(sweep=sweep, running=running)
        return ui.with_(mode=Mode.CONFIRM, pending=PendingAction(kind, sweep.id, text))

    return act


def _pause_or_resume(ui: Ui, key: str, shown: Shown) -> Ui:
    sweeps = shown.snapshot.view.sweeps
    if sweeps and sweeps[0].state is SweepState.PAUSED:
        return _ask(ActionKind.RESUME, "Resume {sweep.name}?")(ui, key, shown)
    question = "Pause {sweep.name}? {running} running will finish."
    return _ask(ActionKind.PAUSE, question)(ui, key, shown)


def _quarantine_or_release(ui: Ui, _: str, shown: Shown) -> Ui:
    if not shown.phones:
        return ui.with_(note="No phone is selected.")
    phone = shown.phones[position_of(shown.phones, ui.selected)]
    name = safe_cell(f"{phone.facts.model} ({phone.serial})", 60)
    kind, question = ActionKind.RELEASE, f"Release {name}? It gets runs again."
    if phone.health is Health.GOOD:
        kind, question = ActionKind.QUARANTINE, f"Quarantine {name}? It gets no more runs."
    return ui.with_(mode=Mode.CONFIRM, pending=PendingAction(kind, phone.serial, question))


def _next_order(ui: Ui, _: str, __: Shown) -> Ui:
    orders = list(Sort)
    return ui.with_(sort=orders[(orders.index(ui.sort) + 1) % len(orders)], top=0)


def _by_phone(word: str) -> dict[Mode, str]:
    return {Mode.TABLE: word, Mode.PHONE: word}


def _in_table(word: str) -> dict[Mode, str]:
    """Act on the table and the phone, but only the table's footer has the word."""
    return {Mode.TABLE: word, Mode.PHONE: ""}


def _anywhere(word: str = "") -> dict[Mode, str]:
    return {**_by_phone(word), Mode.MATRIX: word}


# Refused on a read-only screen, confirmed on any other.
CHANGES = (
    Binding(
        *("p", _anywhere("pause"), _pause_or_resume),
        "pause or resume the sweep: running runs finish, no new ones start",
    ),
    Binding(
        *("c", _anywhere("cancel")),
        _ask(ActionKind.CANCEL, "Cancel {sweep.name}? {sweep.left} runs are dropped."),
        "cancel the sweep: queued runs are dropped, results are kept",
    ),
    Binding(
        *("r", _anywhere("retry")),
        _ask(ActionKind.RETRY, "Retry {sweep.name}? {sweep.failed} failed runs."),
        "retry failed and blocked runs",
    ),
    Binding(
        *("Q", _by_phone("quarantine"), _quarantine_or_release),
        "quarantine or release the selected phone",
    ),
    Binding(
        *("+", _anywhere(), _ask(ActionKind.RAISE, "Raise the priority of {sweep.name}?")),
        *("raise or lower the sweep's priority", "+ -"),
    ),
    Binding("-", _anywhere(), _ask(ActionKind.LOWER, "Lower the priority of {sweep.name}?")),
)
BINDINGS = (
    Binding(
        *((*_ROWS, *_PAGES, *_ENDS), _by_phone("move"), _move),
        *("move; PgUp, PgDn; g and G jump to the ends", "↑↓ j k"),
    ),
    Binding(tuple(_CELLS), {Mode.MATRIX: "move"}, _move_in_matrix, shown="↑↓←→"),
    Binding(
        *(("enter", "right", "d"), _in_table("open"), _open(Mode.PHONE)),
        *("open the phone; esc closes it", "⏎"),
    ),
    Binding(
        *(("escape", "q", "backspace", "left"), {Mode.PHONE: "back"}, _open(Mode.TABLE)),
        shown="esc",
    ),
    Binding(
        *(("enter", "d"), {Mode.MATRIX: "open", Mode.CELL: "read again"}, _open_cell), shown="⏎"
    ),
    Binding(*(("escape", "q", "m"), {Mode.MATRIX: "back"}, _open(Mode.TABLE)), shown="esc"),
    Binding(
        *(("escape", "q", "backspace", "left"), {Mode.CELL: "back"}, _open(Mode.MATRIX)),
        shown="esc",
    ),
    Binding(
        *(("escape", "backspace", "left"), {Mode.TABLE: ""}),
        lambda ui, _, __: ui.with_(filter="", matches=None, search=""),
    ),
    Binding(
        *("/", _in_table("filter")),
        lambda ui, _, __: ui.with_(
            mode=Mode.FILTER, typed=ui.filter, before=(ui.filter, ui.matches)
        ),
        "filter phones, e.g. xiaomi   ram_mb >= 6000 and root   tag == paper",
    ),
    Binding(
        *("s", _in_table("sort"), _next_order),
        "sort by state, name, host, temperature, battery, remaining time",
    ),
    *CHANGES,
    Binding(
        *("e", _in_table("events")),
        lambda ui, _, __: ui.with_(mode=Mode.SEARCH, typed=ui.search),
        "search the events, e.g. fault pixel",
    ),
    Binding(
        *("nN", {**_in_table("sweep"), Mode.MATRIX: "sweep"}, _next_sweep),
        "follow the next or the previous sweep",
    ),
    Binding(
        *("m", _in_table("matrix"), _open(Mode.MATRIX)),
        "open the matrix of the sweep; arrows move, ⏎ opens a cell",
    ),
    Binding("?h", _anywhere(), _open(Mode.HELP), "this help"),
    Binding(
        *("q", {Mode.TABLE: ""}, lambda ui, _, __: ui.with_(quit=True)),
        "quit, also Ctrl-C; the lab keeps running",
    ),
)
_BY_KEY = {(mode, key): each for each in BINDINGS for mode in each.words for key in each.keys}
