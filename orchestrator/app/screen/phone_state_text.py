"""The state of a phone as text: one word, and one line with the reason."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from orchestrator.app.lab_status import KnownPhone
from orchestrator.app.screen.waiting_sweep import availability_of
from orchestrator.planning.states import Health, PhoneAvailability
from workloads.protocol.messages import PhoneState
from workloads.protocol.stage import Stage
from workloads.text import safe_text

# stages of a job that are shown under another name
_STAGES = {
    Stage.RESOLVE: "prepare",
    Stage.FENCE: "prepare",
    Stage.INSTALL: "prepare",
    Stage.WATCHDOG: "prepare",
    Stage.QUIESCE: "prepare",
    Stage.CANARY_BEFORE: "pin",
    Stage.CANARY_AFTER: "collect",
}
SERIAL_MARK = "#"
CLOCK_TOLERANCE = 0.01  # some drivers report a measured clock close to the requested step
_PARAMETER = re.compile(r"\b([a-z])[a-z]*(?:_[a-z]+)*=(\S+)")


def display_names(phones: Sequence[KnownPhone]) -> Mapping[str, str]:
    """Return a name for each phone: its model, and the end of its serial if two share a model."""
    return _display_names(tuple([(phone.serial, phone.facts.model) for phone in phones]))


@lru_cache(4)
def _display_names(known: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    models = {serial: safe_text(model, 60) or serial for serial, model in known}
    shared = Counter(models.values())
    return {
        serial: f"{model} {SERIAL_MARK}{serial[-4:]}" if shared[model] > 1 else model
        for serial, model in models.items()
    }


class StateBadge(NamedTuple):
    """How a state is shown: a word and a mark, not only a colour."""

    word: str
    mark: str
    style: str
    order: int  # problems first, then busy phones, then idle ones


BADGES = {
    "quarantined": StateBadge("QUARANT.", "!", "bold red", 0),
    "retired": StateBadge("retired", "-", "dim", 6),
    "held": StateBadge("HELD", "!", "yellow", 1),
    "away": StateBadge("AWAY", "✗", "red", 2),
    "drained": StateBadge("drained", "=", "magenta", 4),
    "run": StateBadge("run", "▶", "green", 3),
    "cool": StateBadge("cool", "~", "cyan", 3),
    "charge": StateBadge("charge", "+", "cyan", 3),
    "work": StateBadge("", "▶", "green", 3),
    "reserved": StateBadge("reserved", "=", "magenta", 4),
    "idle": StateBadge("idle", "·", "default", 5),
}


def state_badge(phone: KnownPhone, now: datetime) -> StateBadge:
    """Return the badge of a phone; problems come before activity."""
    state = phone.availability or availability_of(phone, now)
    return _stage_badge(phone.status.stage) if state is PhoneAvailability.BUSY else BADGES[state]


@lru_cache(256)
def _stage_badge(stage: Stage | None) -> StateBadge:
    shown = stage or Stage.START
    word = _STAGES.get(shown, shown.value)
    return BADGES.get(word) or BADGES["work"]._replace(word=word)


def activity_text(phone: KnownPhone, now: datetime, short: bool = False) -> str:
    """Describe what a phone does, or why it does nothing."""
    badge = state_badge(phone, now)
    if badge.order > BADGES["away"].order and phone.status.state is PhoneState.BUSY:
        name = phone.lease.label if phone.lease else ""
        label = shorten_label(name) if short else safe_text(name, 200)
        return f"next: {label}" if badge.word in ("cool", "charge", "prepare", "pin") else label
    if badge is BADGES["idle"]:
        return f"{_runs(phone.queued) if phone.queued else 'no runs'} queued"
    waiting = f"{_runs(phone.queued)} waiting; " if phone.queued else ""
    return waiting + _why_not(phone, badge)


def _runs(number: int) -> str:
    return "1 run" if number == 1 else f"{count(number)} runs"


def _why_not(phone: KnownPhone, badge: StateBadge) -> str:
    """Say why a phone gets no runs."""
    if phone.health is not Health.GOOD and badge is not BADGES["away"]:
        return safe_text(phone.health_reason, 200) or phone.health
    if badge is BADGES["reserved"]:
        return _reservation(phone)
    if badge is BADGES["drained"]:
        return "its host is drained"
    last = (
        f", last seen {phone.last_seen_at.astimezone():%d %b %H:%M}" if phone.last_seen_at else ""
    )
    return (safe_text(phone.status.reason, 200) or "no host reports it") + last


def _reservation(phone: KnownPhone) -> str:
    until = phone.reserved_until
    end = f" until {datetime.fromtimestamp(until).astimezone():%d %b %H:%M}" if until else ""
    why = f": {safe_text(phone.reserved_reason, 100)}" if phone.reserved_reason else ""
    return f"for {safe_text(phone.reserved_by, 40)}{end}{why}"


def shorten_label(label: str) -> str:
    """Shorten the parameters in a trial's label: batch_size=32 becomes b32."""
    return _PARAMETER.sub(r"\1\2", safe_text(label, 200))


def remaining_s(phone: KnownPhone) -> float | None:
    """Seconds until the current stage ends, if known."""
    if phone.status.stage is Stage.COOL and phone.status.cool_in_s is not None:
        return phone.status.cool_in_s[0]
    return phone.status.remaining_s


def clock_time(seconds: float) -> str:
    """Format seconds as 0:38, 12:05, 3h20 or 2d04h."""
    whole = max(0, round(seconds))
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d}"
    if whole < 86_400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}"
    return f"{whole // 86_400}d{whole % 86_400 // 3600:02d}h"


def clock_text(phone: KnownPhone) -> str:
    """Format the clocks of the clusters in GHz, the fastest first.

    L: locked to this value; !: locked to another value.
    """
    clocks = phone.status.clocks_khz or phone.status.locked_khz
    if not clocks:
        return "auto" if phone.status.state is PhoneState.BUSY else ""
    shown = sorted(clocks.items(), reverse=True)
    return " ".join(
        f"{khz / 1e6:.2f}{_lock_mark(khz, phone.status.locked_khz.get(policy))}"
        for policy, khz in shown
    )


def _lock_mark(khz: int, locked: int | None) -> str:
    if locked is None:
        return ""
    return "L" if abs(khz - locked) <= locked * CLOCK_TOLERANCE else "!"


def count(number: int) -> str:
    """Format a number in few characters: 950, 12k, 3.4M."""
    if number < 10_000:
        return str(number)
    return f"{number / 1000:.0f}k" if number < 1_000_000 else f"{number / 1e6:.1f}M"
