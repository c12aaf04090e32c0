"""What a key does: pure, from what is looked at to what comes next, and a change asked for."""

from collections.abc import Callable
from datetime import datetime

from orchestrator.decisions.states import SweepState
from orchestrator.store.phone_queries import KnownPhone
from orchestrator.tui.panels import layout
from orchestrator.tui.sorting import position_of, visible_phones, window
from orchestrator.tui.text_cells import safe_cell
from orchestrator.tui.ui_state import LabSnapshot, Matches, Mode, PendingAction, Sort, Ui
from workloads.protocol.faults import InvalidRequest

FILTER_MAX = 200
Read = Callable[[str], Matches]  # a filter's words; raises Refused
NextUi = tuple[Ui, PendingAction | None]


def handle_key(ui: Ui, key: str, seen: LabSnapshot, now: datetime, read: Read) -> NextUi:
    """Take one key; answer what to show, and a change that was confirmed."""
    ui = ui.with_(note="")
    if ui.mode is Mode.HELP:
        return ui.with_(mode=Mode.TABLE), None
    if ui.mode is Mode.FILTER:
        return _type(ui, key, read), None
    if ui.mode is Mode.CONFIRM:
        agreed = key in ("y", "Y")
        note = "" if agreed else "Nothing was changed."
        return ui.with_(mode=Mode.TABLE, ask=None, note=note), ui.ask if agreed else None
    phones = visible_phones(seen.view.phones, ui, now)
    if key in _STEPS:
        return _move(ui, phones, _STEPS[key]), None
    if key in _CHANGES:
        return _want(ui, key, seen, phones), None
    return _turn(ui, key), None


def _type(ui: Ui, key: str, read: Read) -> Ui:
    if key == "escape":
        return ui.with_(mode=Mode.TABLE, typed="", wrong="")
    if key == "backspace":
        return ui.with_(typed=ui.typed[:-1], wrong="")
    if key != "enter":
        typed = ui.typed + key if len(key) == 1 else ui.typed
        return ui.with_(typed=typed[:FILTER_MAX], wrong="")
    words = ui.typed.strip()
    try:
        matches = read(words) if words else None
    except InvalidRequest as error:
        return ui.with_(wrong=str(error))
    return ui.with_(mode=Mode.TABLE, filter=words, matches=matches, typed="", wrong="", top=0)


# by how many rows; pages and ends are worked out from the screen
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


def _move(ui: Ui, phones: list[KnownPhone], step: str) -> Ui:
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


def _turn(ui: Ui, key: str) -> Ui:
    if key == "q" and ui.mode is Mode.TABLE:
        return ui.with_(quit=True)
    if key in ("escape", "q", "backspace", "left"):
        cleared = ui.with_(filter="", matches=None) if ui.mode is Mode.TABLE else ui
        return cleared.with_(mode=Mode.TABLE)
    if key in ("enter", "right", "d"):
        return ui.with_(mode=Mode.PHONE)
    if key in ("?", "h"):
        return ui.with_(mode=Mode.HELP)
    if key == "/":
        return ui.with_(mode=Mode.FILTER, typed=ui.filter)
    if key == "s":
        orders = list(Sort)
        return ui.with_(sort=orders[(orders.index(ui.sort) + 1) % len(orders)], top=0)
    return ui


_CHANGES = frozenset("pcrQ+-")


def _want(ui: Ui, key: str, seen: LabSnapshot, phones: list[KnownPhone]) -> Ui:
    """Ask before anything is changed."""
    if ui.read_only:
        return ui.with_(note="This screen is read-only; open it without --read-only.")
    if key == "Q":
        if not phones:
            return ui.with_(note="No phone is selected.")
        return ui.with_(mode=Mode.CONFIRM, ask=_of_phone(phones[position_of(phones, ui.selected)]))
    sweep = seen.view.sweeps[0] if seen.view.sweeps else None
    if sweep is None:
        return ui.with_(note="There is no sweep.")
    running = sum(phone.lease is not None for phone in seen.view.phones)
    paused = sweep.state is SweepState.PAUSED
    asks = {
        "p": PendingAction("resume", sweep.id, f"Resume {sweep.name}?")
        if paused
        else PendingAction(
            "pause", sweep.id, f"Pause {sweep.name}? {running} running will finish."
        ),
        "c": PendingAction(
            "cancel", sweep.id, f"Cancel {sweep.name}? {sweep.left} runs are dropped."
        ),
        "r": PendingAction("retry", sweep.id, f"Retry {sweep.name}? {sweep.failed} failed runs."),
        "+": PendingAction("raise", sweep.id, f"Raise the priority of {sweep.name}?"),
        "-": PendingAction("lower", sweep.id, f"Lower the priority of {sweep.name}?"),
    }
    return ui.with_(mode=Mode.CONFIRM, ask=asks[key])


def _of_phone(phone: KnownPhone) -> PendingAction:
    name = safe_cell(f"{phone.facts.model} ({phone.serial})", 60)
    if phone.health == "good":
        return PendingAction(
            "quarantine", phone.serial, f"Quarantine {name}? It gets no more runs."
        )
    return PendingAction("release", phone.serial, f"Release {name}? It gets runs again.")
