"""What a phone is doing, in words that need no manual: one word for its state, one line for why."""

import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from orchestrator.nouns import KnownPhone
from orchestrator.tui.cells import fit, said

# the lane's stages, as somebody sees them who does not know the lane
_STAGES = {
    "resolve": "prepare",
    "fence": "prepare",
    "install": "prepare",
    "guard": "prepare",
    "quiet": "prepare",
    "prepare": "prepare",
    "charge": "charge",
    "cool": "cool",
    "pin": "pin",
    "canary": "pin",
    "run": "run",
    "canary_after": "collect",
    "harvest": "collect",
    "restore": "restore",
    "": "start",
}
TWIN = "#"
CLOCK_SLACK = 0.01  # some drivers tell the measured clock, a little beside the step
_PARAMETER = re.compile(r"\b([a-z])[a-z]*(?:_[a-z]+)*=(\S+)")


def names_of(phones: Sequence[KnownPhone]) -> dict[str, str]:
    """What each phone is called here: its model, and where two share it the end of its serial."""
    models = {phone.serial: said(phone.facts.model, 60) or phone.serial for phone in phones}
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


class Look(NamedTuple):
    """A state for the eye: never by colour alone."""

    word: str
    mark: str
    style: str
    order: int  # trouble first, then work, then rest


LOOKS = {
    "quarantined": Look("QUARANT.", "!", "bold red", 0),
    "suspect": Look("SUSPECT", "!", "yellow", 1),
    "away": Look("AWAY", "✗", "red", 2),
    "run": Look("run", "▶", "green", 3),
    "cool": Look("cool", "~", "cyan", 3),
    "charge": Look("charge", "+", "cyan", 3),
    "work": Look("", "▶", "green", 3),
    "reserved": Look("reserved", "=", "magenta", 4),
    "idle": Look("idle", "·", "default", 5),
}


def look_of(phone: KnownPhone, now: datetime) -> Look:
    """How a phone is: what is wrong comes before what it does."""
    if phone.health in LOOKS:
        return LOOKS[phone.health]
    if phone.state not in ("idle", "busy"):
        return LOOKS["away"]
    if phone.state == "busy":
        return _at_work(phone.stage)
    return LOOKS["reserved" if is_reserved(phone, now) else "idle"]


@lru_cache(256)
def _at_work(stage: str) -> Look:
    word = _STAGES.get(stage) or said(stage, 8)
    return LOOKS.get(word) or LOOKS["work"]._replace(word=word)


def is_reserved(phone: KnownPhone, now: datetime) -> bool:
    """Whether somebody keeps the phone for themselves."""
    until = phone.reserved_until
    return bool(phone.reserved_by) and (until == 0 or until > now.timestamp())


def doing(phone: KnownPhone, now: datetime, short: bool = False) -> str:
    """What it is at, or why it is at nothing."""
    look = look_of(phone, now)
    if look.order > LOOKS["away"].order and phone.state == "busy":
        label = briefly(phone.run) if short else said(phone.run, 200)
        return f"next: {label}" if look.word in ("cool", "charge", "prepare", "pin") else label
    if look is LOOKS["idle"]:
        return f"{_runs(phone.waiting) if phone.waiting else 'nothing'} queued for it"
    waiting = f"{_runs(phone.waiting)} waiting; " if phone.waiting else ""
    return waiting + _why_not(phone, look)


def _runs(number: int) -> str:
    return "1 run" if number == 1 else f"{count(number)} runs"


def _why_not(phone: KnownPhone, look: Look) -> str:
    """What keeps it from work."""
    if phone.health != "good":
        return said(phone.health_why, 200) or phone.health
    if look is LOOKS["reserved"]:
        return _reservation(phone)
    last = f", last seen {phone.seen_at.astimezone():%d %b %H:%M}" if phone.seen_at else ""
    return (said(phone.why, 200) or "no host sees it") + last


def _reservation(phone: KnownPhone) -> str:
    until = phone.reserved_until
    end = f" until {datetime.fromtimestamp(until).astimezone():%d %b %H:%M}" if until else ""
    why = f": {said(phone.reserved_why, 100)}" if phone.reserved_why else ""
    return f"for {said(phone.reserved_by, 40)}{end}{why}"


def briefly(label: str) -> str:
    """A trial's name with its parameters cut to a letter: batch_size=32 becomes b32."""
    return _PARAMETER.sub(r"\1\2", said(label, 200))


def left_s(phone: KnownPhone) -> float | None:
    """Seconds until what it does now is over, where that is known."""
    if phone.stage == "cool" and phone.ready_s is not None:
        return phone.ready_s[0]
    return phone.left_s


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


def clocks(phone: KnownPhone, unpinned: str = "auto") -> str:
    """The clocks of its clusters in GHz, the fastest first.

    L: locked, and there it stands; !: locked, and yet it stands elsewhere.
    """
    known = phone.clocks_khz or phone.locked_khz
    if not known:
        return unpinned if phone.state == "busy" else ""
    shown = sorted(known.items(), reverse=True)
    return " ".join(f"{khz / 1e6:.2f}{_held(khz, phone.locked_khz.get(at))}" for at, khz in shown)


def _held(khz: int, locked: int | None) -> str:
    if locked is None:
        return ""
    return "L" if abs(khz - locked) <= locked * CLOCK_SLACK else "!"


def count(number: int) -> str:
    """A number in few letters: 950, 12k, 3.4M."""
    if number < 10_000:
        return str(number)
    return f"{number / 1000:.0f}k" if number < 1_000_000 else f"{number / 1e6:.1f}M"
