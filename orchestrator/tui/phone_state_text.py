"""What a phone is doing, in words that need no manual: one word for its state, one line for why."""

import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from orchestrator.store.phone_queries import KnownPhone
from orchestrator.tui.text_cells import fit, safe_cell
from workloads.protocol.stage import Stage

# the lane's stages, as somebody sees them who does not know the lane
_STAGES = {
    Stage.RESOLVE: "prepare",
    Stage.FENCE: "prepare",
    Stage.INSTALL: "prepare",
    Stage.WATCHDOG: "prepare",
    Stage.QUIESCE: "prepare",
    Stage.CANARY_BEFORE: "pin",
    Stage.CANARY_AFTER: "collect",
}
TWIN = "#"
CLOCK_SLACK = 0.01  # some drivers tell the measured clock, a little beside the step
_PARAMETER = re.compile(r"\b([a-z])[a-z]*(?:_[a-z]+)*=(\S+)")


def display_names(phones: Sequence[KnownPhone]) -> dict[str, str]:
    """What each phone is called here: its model, and where two share it the end of its serial."""
    models = {phone.serial: safe_cell(phone.facts.model, 60) or phone.serial for phone in phones}
    shared = Counter(models.values())
    return {
        serial: f"{model} {TWIN}{serial[-4:]}" if shared[model] > 1 else model
        for serial, model in models.items()
    }


def fit_name(name: str, cells: int) -> str:
    """A name in so many cells; what tells twins apart is kept."""
    model, twin, end = name.rpartition(f" {TWIN}")
    if not twin or len(name) <= cells:
        return fit(name, cells)
    return fit(model, cells - len(end) - 2) + f" {TWIN}{end}"


class StateBadge(NamedTuple):
    """A state for the eye: never by colour alone."""

    word: str
    mark: str
    style: str
    order: int  # trouble first, then work, then rest


BADGES = {
    "quarantined": StateBadge("QUARANT.", "!", "bold red", 0),
    "suspect": StateBadge("SUSPECT", "!", "yellow", 1),
    "away": StateBadge("AWAY", "✗", "red", 2),
    "run": StateBadge("run", "▶", "green", 3),
    "cool": StateBadge("cool", "~", "cyan", 3),
    "charge": StateBadge("charge", "+", "cyan", 3),
    "work": StateBadge("", "▶", "green", 3),
    "reserved": StateBadge("reserved", "=", "magenta", 4),
    "idle": StateBadge("idle", "·", "default", 5),
}


def state_badge(phone: KnownPhone, now: datetime) -> StateBadge:
    """How a phone is: what is wrong comes before what it does."""
    if phone.health in BADGES:
        return BADGES[phone.health]
    if phone.status.state not in ("idle", "busy"):
        return BADGES["away"]
    if phone.status.state == "busy":
        return _at_work(phone.status.stage)
    return BADGES["reserved" if is_reserved(phone, now) else "idle"]


@lru_cache(256)
def _at_work(stage: Stage | None) -> StateBadge:
    shown = stage or Stage.START
    word = _STAGES.get(shown, shown.value)
    return BADGES.get(word) or BADGES["work"]._replace(word=word)


def is_reserved(phone: KnownPhone, now: datetime) -> bool:
    """Whether somebody keeps the phone for themselves."""
    until = phone.reserved_until
    return bool(phone.reserved_by) and (until == 0 or until > now.timestamp())


def activity_text(phone: KnownPhone, now: datetime, short: bool = False) -> str:
    """What it is at, or why it is at nothing."""
    look = state_badge(phone, now)
    if look.order > BADGES["away"].order and phone.status.state == "busy":
        name = phone.lease.label if phone.lease else ""
        label = shorten_label(name) if short else safe_cell(name, 200)
        return f"next: {label}" if look.word in ("cool", "charge", "prepare", "pin") else label
    if look is BADGES["idle"]:
        return f"{_runs(phone.queued) if phone.queued else 'nothing'} queued for it"
    waiting = f"{_runs(phone.queued)} waiting; " if phone.queued else ""
    return waiting + _why_not(phone, look)


def _runs(number: int) -> str:
    return "1 run" if number == 1 else f"{count(number)} runs"


def _why_not(phone: KnownPhone, look: StateBadge) -> str:
    """What keeps it from work."""
    if phone.health != "good":
        return safe_cell(phone.health_reason, 200) or phone.health
    if look is BADGES["reserved"]:
        return _reservation(phone)
    last = (
        f", last seen {phone.last_seen_at.astimezone():%d %b %H:%M}" if phone.last_seen_at else ""
    )
    return (safe_cell(phone.status.reason, 200) or "no host sees it") + last


def _reservation(phone: KnownPhone) -> str:
    until = phone.reserved_until
    end = f" until {datetime.fromtimestamp(until).astimezone():%d %b %H:%M}" if until else ""
    why = f": {safe_cell(phone.reserved_reason, 100)}" if phone.reserved_reason else ""
    return f"for {safe_cell(phone.reserved_by, 40)}{end}{why}"


def shorten_label(label: str) -> str:
    """A trial's name with its parameters cut to a letter: batch_size=32 becomes b32."""
    return _PARAMETER.sub(r"\1\2", safe_cell(label, 200))


def remaining_s(phone: KnownPhone) -> float | None:
    """Seconds until what it does now is over, where that is known."""
    if phone.status.stage is Stage.COOL and phone.status.cool_in_s is not None:
        return phone.status.cool_in_s[0]
    return phone.status.remaining_s


def clock_time(seconds: float) -> str:
    """Seconds as a watch shows them: 0:38, 12:05, 3h20, 2d04h."""
    whole = max(0, round(seconds))
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d}"
    if whole < 36_000:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}"
    return f"{whole // 86_400}d{whole % 86_400 // 3600:02d}h" if whole >= 86_400 else hours(whole)


def hours(whole: int) -> str:
    """So many hours, roughly."""
    return f"{whole // 3600}h{whole % 3600 // 60:02d}"


def clock_text(phone: KnownPhone, unpinned: str = "auto") -> str:
    """The clocks of its clusters in GHz, the fastest first.

    L: locked, and there it stands; !: locked, and yet it stands elsewhere.
    """
    known = phone.status.clocks_khz or phone.status.locked_khz
    if not known:
        return unpinned if phone.status.state == "busy" else ""
    shown = sorted(known.items(), reverse=True)
    return " ".join(
        f"{khz / 1e6:.2f}{_held(khz, phone.status.locked_khz.get(at))}" for at, khz in shown
    )


def _held(khz: int, locked: int | None) -> str:
    if locked is None:
        return ""
    return "L" if abs(khz - locked) <= locked * CLOCK_SLACK else "!"


def count(number: int) -> str:
    """A number in few letters: 950, 12k, 3.4M."""
    if number < 10_000:
        return str(number)
    return f"{number / 1000:.0f}k" if number < 1_000_000 else f"{number / 1e6:.1f}M"
