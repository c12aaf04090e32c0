"""Which phones are shown, in which order, and which of them fit: pure, and quick for thousands."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from orchestrator.store.phone_queries import KnownPhone
from orchestrator.tui.phone_state_text import remaining_s, state_badge
from orchestrator.tui.ui_state import Sort, Ui

LAST = float("inf")


def visible_phones(phones: Sequence[KnownPhone], ui: Ui, now: datetime) -> list[KnownPhone]:
    """The phones that pass the filter, in the chosen order."""
    passing = phones if ui.matches is None else [item for item in phones if ui.matches(item)]
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
    key = keys[ui.sort]
    return sorted(passing, key=lambda phone: (key(phone), phone.serial))


def position_of(phones: Sequence[KnownPhone], selected: str) -> int:
    """Where the selected phone stands; the first place if it is not there."""
    return next((at for at, phone in enumerate(phones) if phone.serial == selected), 0)


def window(place: int, count: int, top: int, rows: int) -> int:
    """The first row to show, so that the selected one is among those that fit."""
    if rows <= 0:
        return 0
    top = min(top, place)
    top = max(top, place - rows + 1)
    return max(0, min(top, count - rows))
