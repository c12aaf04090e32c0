"""Which phones are shown, in which order, and which of them fit on the screen."""

from collections.abc import Callable, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any

from orchestrator.app.lab_status import KnownPhone
from orchestrator.app.phone_state_text import remaining_s, state_badge
from orchestrator.tui.ui_state import Sort, Ui

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
