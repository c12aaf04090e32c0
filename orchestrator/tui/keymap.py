"""What a key does: a pure function from the state of the screen to the next state."""

from collections.abc import Callable, Sequence
from datetime import datetime

from orchestrator.app.lab_snapshot import LabSnapshot
from orchestrator.app.lab_status import KnownPhone, SweepSummary
from orchestrator.app.phone_filter import PhoneFilter
from orchestrator.decisions.health import Health
from orchestrator.decisions.states import SweepState
from orchestrator.tui.matrix import axis_names
from orchestrator.tui.panels import layout
from orchestrator.tui.sorting import position_of, visible_phones, window
from orchestrator.tui.text_cells import safe_cell
from orchestrator.tui.ui_state import ActionKind, Mode, PendingAction, Sort, Ui
from workloads.protocol.faults import InvalidRequest

FILTER_MAX = 200
ParseFilter = Callable[[str], PhoneFilter]  # raises InvalidRequest
NextUi = tuple[Ui, PendingAction | None]


def handle_key(
    ui: Ui, key: str, snapshot: LabSnapshot, now: datetime, parse_filter: ParseFilter
) -> NextUi:
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
        return _edit_filter(ui, key, parse_filter), None
    if ui.mode is Mode.SEARCH:
        return _edit_search(ui, key), None
    if key in _SWEEP_STEPS:
        return _next_sweep(ui, _SWEEP_STEPS[key], snapshot), None
    if ui.mode is Mode.MATRIX:
        return _move_in_matrix(ui, key, snapshot), None
    phones = visible_phones(snapshot.view.phones, ui, now)
    if key in _STEPS:
        return _move(ui, phones, _STEPS[key]), None
    if key in _ACTION_KEYS:
        return _request_action(ui, key, snapshot, phones), None
    return _change_view(ui, key), None


def _typed(ui: Ui, key: str) -> str:
    if key == "backspace":
        return ui.typed[:-1]
    return (ui.typed + key if len(key) == 1 else ui.typed)[:FILTER_MAX]


def _edit_filter(ui: Ui, key: str, parse_filter: ParseFilter) -> Ui:
    """Apply the filter while it is typed; an unfinished selector changes nothing yet."""
    if key == "escape":
        text, matches = ui.before
        return ui.with_(mode=Mode.TABLE, typed="", filter_error="", filter=text, matches=matches)
    typed = _typed(ui, key)
    text = typed.strip()
    try:
        matches = parse_filter(text) if text else None
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


def _next_sweep(ui: Ui, step: int, snapshot: LabSnapshot) -> Ui:
    """Follow another of the newest sweeps, in the order of their submission."""
    view = snapshot.view
    known = sorted((*view.sweeps, *view.others), key=lambda sweep: (sweep.created_at, sweep.id))
    if len(known) < 2:
        return ui.with_(note="There is no other sweep.")
    current = ui.sweep or view.sweeps[0].id
    position = next((i for i, sweep in enumerate(known) if sweep.id == current), 0)
    chosen = known[(position + step) % len(known)]
    return ui.with_(sweep=chosen.id, cell=(0, 0), note=f"Now following {safe_cell(chosen.name)}.")


_CELL_STEPS = {"up": (-1, 0), "k": (-1, 0), "down": (1, 0), "j": (1, 0)}
_CELL_STEPS |= {"left": (0, -1), "right": (0, 1), "l": (0, 1)}
_CELL_STEPS |= {"pageup": (-10, 0), "pagedown": (10, 0), " ": (0, 10), "b": (0, -10)}


def _move_in_matrix(ui: Ui, key: str, snapshot: LabSnapshot) -> Ui:
    if key not in _CELL_STEPS:
        return ui.with_(mode=Mode.TABLE) if key in ("escape", "q", "m", "enter") else ui
    conditions, cases = axis_names(snapshot.view.cells)
    row, column = (old + step for old, step in zip(ui.cell, _CELL_STEPS[key], strict=True))
    last_row, last_column = max(0, len(conditions) - 1), max(0, len(cases) - 1)
    return ui.with_(cell=(min(max(row, 0), last_row), min(max(column, 0), last_column)))


# by how many rows; pages and ends depend on the screen
_STEPS = {
    "up": "-1",
    "k": "-1",
    "down": "+1",
    "j": "+1",
    "pageup": "-page",
    "pagedown": "+page",
    " ": "+page",
    "b": "-page",
    "home": "first",
    "g": "first",
    "end": "last",
    "G": "last",
}


def _move(ui: Ui, phones: Sequence[KnownPhone], step: str) -> Ui:
    if not phones:
        return ui
    rows = max(1, layout(ui, len(phones)).rows)
    by = {"-1": -1, "+1": 1, "-page": -rows, "+page": rows}.get(step)
    last = len(phones) - 1
    to = {"first": 0, "last": last}.get(step)
    if by is not None:
        to = max(0, min(last, position_of(phones, ui.selected) + by))
    assert to is not None
    top = window(to, len(phones), ui.top, rows)
    return ui.with_(selected=phones[to].serial, top=top)


def _change_view(ui: Ui, key: str) -> Ui:
    if key == "q" and ui.mode is Mode.TABLE:
        return ui.with_(quit=True)
    if key in ("escape", "q", "backspace", "left"):
        cleared = ui.with_(filter="", matches=None, search="") if ui.mode is Mode.TABLE else ui
        return cleared.with_(mode=Mode.TABLE)
    if key in ("enter", "right", "d"):
        return ui.with_(mode=Mode.PHONE)
    if key in ("?", "h"):
        return ui.with_(mode=Mode.HELP)
    if key == "/":
        return ui.with_(mode=Mode.FILTER, typed=ui.filter, before=(ui.filter, ui.matches))
    if key == "e":
        return ui.with_(mode=Mode.SEARCH, typed=ui.search)
    if key == "m":
        return ui.with_(mode=Mode.MATRIX)
    if key == "s":
        orders = list(Sort)
        return ui.with_(sort=orders[(orders.index(ui.sort) + 1) % len(orders)], top=0)
    return ui


_ACTION_KEYS = frozenset("pcrQ+-")
_SWEEP_STEPS = {"n": 1, "N": -1}


def _request_action(ui: Ui, key: str, snapshot: LabSnapshot, phones: Sequence[KnownPhone]) -> Ui:
    """Ask for confirmation before anything is changed."""
    if ui.read_only:
        return ui.with_(note="This screen is read-only; start it without --read-only.")
    if key == "Q":
        if not phones:
            return ui.with_(note="No phone is selected.")
        phone = phones[position_of(phones, ui.selected)]
        return ui.with_(mode=Mode.CONFIRM, pending=_phone_action(phone))
    sweep = snapshot.view.sweeps[0] if snapshot.view.sweeps else None
    if sweep is None:
        return ui.with_(note="There is no sweep.")
    running = sum(phone.lease is not None for phone in snapshot.view.phones)
    return ui.with_(mode=Mode.CONFIRM, pending=_sweep_action(key, sweep, running))


def _sweep_action(key: str, sweep: SweepSummary, running: int) -> PendingAction:
    name = sweep.name
    pause = (
        (ActionKind.RESUME, f"Resume {name}?")
        if sweep.state is SweepState.PAUSED
        else (ActionKind.PAUSE, f"Pause {name}? {running} running will finish.")
    )
    kind, question = {
        "p": pause,
        "c": (ActionKind.CANCEL, f"Cancel {name}? {sweep.left} runs are dropped."),
        "r": (ActionKind.RETRY, f"Retry {name}? {sweep.failed} failed runs."),
        "+": (ActionKind.RAISE, f"Raise the priority of {name}?"),
        "-": (ActionKind.LOWER, f"Lower the priority of {name}?"),
    }[key]
    return PendingAction(kind, sweep.id, question)


def _phone_action(phone: KnownPhone) -> PendingAction:
    name = safe_cell(f"{phone.facts.model} ({phone.serial})", 60)
    if phone.health is Health.GOOD:
        question = f"Quarantine {name}? It gets no more runs."
        return PendingAction(ActionKind.QUARANTINE, phone.serial, question)
    return PendingAction(ActionKind.RELEASE, phone.serial, f"Release {name}? It gets runs again.")
