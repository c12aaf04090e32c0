"""What is shown where: which phones in which order, and how many lines each part gets."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any

from orchestrator.app.lab_status import KnownPhone
from orchestrator.app.screen.phone_state_text import remaining_s, state_badge
from orchestrator.tui.ui_state import Sort, Ui

BESIDE_WIDTH, BESIDE_HEIGHT = 160, 32
LEFT_WIDTH = 130
PANE_HEIGHT, PANE_WIDTH = 30, 60
EVENTS_MIN = 5
FOOTER_HEIGHT_MIN = 8  # lower screens have no footer
PANE_LINES = 5  # of the selected phone, with its heading
LAST = float("inf")


def visible_phones(phones: Sequence[KnownPhone], ui: Ui, now: datetime) -> list[KnownPhone]:
    """Return the phones that match the filter, sorted."""
    matching = phones if ui.matches is None else [item for item in phones if ui.matches(item)]
    keys: dict[Sort, Callable[[KnownPhone], Any]] = {
        Sort.STATE: lambda phone: (state_badge(phone, now).order, phone.facts.model),
        Sort.NAME: lambda phone: phone.facts.model,
        Sort.HOST: lambda phone: (phone.host, phone.facts.model),
        Sort.TEMP: lambda phone: (
            -(phone.status.temp_c if phone.status.temp_c is not None else -LAST)
        ),
        Sort.BATTERY: lambda phone: (
            LAST if phone.status.battery_pct is None else phone.status.battery_pct
        ),
        Sort.LEFT: lambda phone: LAST if remaining_s(phone) is None else remaining_s(phone),
    }
    # Sorting is stable: phones with the same key stay in the order of their serials.
    return sorted(sorted(matching, key=attrgetter("serial")), key=keys[ui.sort])


def position_of(phones: Sequence[KnownPhone], selected: str) -> int:
    """Return the index of the selected phone, or 0 if it is not shown."""
    return next((index for index, phone in enumerate(phones) if phone.serial == selected), 0)


def window(position: int, count: int, top: int, rows: int) -> int:
    """Return the first row to show, so that the selected row is visible."""
    if rows <= 0:
        return 0
    top = min(top, position)
    top = max(top, position - rows + 1)
    return max(0, min(top, count - rows))


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
