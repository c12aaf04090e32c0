"""Decides what is reported to people: the conditions of a lab that hold now. Pure.

A condition is reported when it begins, not again while it holds, and not more often than every ten
minutes if it comes and goes.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from orchestrator.decisions.health import Health
from orchestrator.decisions.states import PausedBy, SweepState
from workloads.service_settings import NoticeKind
from workloads.units import count_text

REPEAT_INTERVAL_S = 600.0

NoticeKey = tuple[NoticeKind, str]  # and its subject: a sweep, a phone, a host or a folder


@dataclass(frozen=True)
class PhoneView:
    """A phone that belongs to the lab."""

    host: str
    health: str
    reason: str


@dataclass(frozen=True)
class SweepView:
    """A sweep that has not ended."""

    name: str
    state: str
    paused_by: str | None
    reason: str
    blocked: int = 0  # runs that an operator has to decide on
    phones: frozenset[str] = frozenset()  # with queued runs


@dataclass(frozen=True)
class NoticeInputs:
    """What the lab looks like: what should be there, and for how long it has been missing."""

    phones: Mapping[str, PhoneView] = field(default_factory=dict)
    phones_away_s: Mapping[str, float] = field(default_factory=dict)
    hosts_away_s: Mapping[str, float] = field(default_factory=dict)
    sweeps: Mapping[str, SweepView] = field(default_factory=dict)
    disk_free_bytes: Mapping[str, float] = field(default_factory=dict)


def conditions(
    view: NoticeInputs, away_after_s: float, disk_free_min_bytes: float
) -> dict[NoticeKey, str]:
    """Return the conditions that are true now, each with a sentence for people."""
    found: dict[NoticeKey, str] = {}
    hosts = {name for name, seconds in view.hosts_away_s.items() if seconds >= away_after_s}
    away = {name for name, seconds in view.phones_away_s.items() if seconds >= away_after_s}
    for host in hosts:
        phones = count_text(sum(p.host == host for p in view.phones.values()), "phone")
        minutes = view.hosts_away_s[host] / 60
        found[NoticeKind.HOST_AWAY, host] = (
            f"host {host} with {phones} has sent nothing for {minutes:.0f} min; "
            "check its agent and its network"
        )
    for serial, phone in view.phones.items():
        if phone.health == Health.QUARANTINED:
            found[NoticeKind.PHONE_QUARANTINED, serial] = (
                f"phone {serial} of {phone.host} is quarantined: {phone.reason}"
            )
        elif serial in away and phone.host not in hosts:
            minutes = view.phones_away_s[serial] / 60
            found[NoticeKind.PHONE_AWAY, serial] = (
                f"phone {serial} of {phone.host} has been disconnected for {minutes:.0f} min; "
                "check its cable"
            )
    for place, free in view.disk_free_bytes.items():
        if free < disk_free_min_bytes:
            found[NoticeKind.DISK_LOW, place] = (
                f"{place} has {free / 1e9:.1f} GB left; remove old results with 'farm prune'"
            )
    return found | dict(_sweep_conditions(view, away))


def _sweep_conditions(view: NoticeInputs, away: Collection[str]) -> Iterator[tuple[NoticeKey, str]]:
    for sweep_id, sweep in view.sweeps.items():
        title = f"sweep {sweep.name} ({sweep_id})"
        if sweep.state == SweepState.PAUSED and sweep.paused_by == PausedBy.BUDGET:
            yield (NoticeKind.BUDGET_SPENT, sweep_id), f"{title} is paused: {sweep.reason}"
        if sweep.state != SweepState.ACTIVE:
            continue
        out = {
            serial
            for serial in sweep.phones
            if serial in away
            or serial not in view.phones
            or view.phones[serial].health != Health.GOOD
        }
        if sweep.blocked:
            runs = count_text(sweep.blocked, "run")
            text = f"{title}: {runs} blocked; see 'farm sweep show {sweep_id}'"
            yield (NoticeKind.SWEEP_BLOCKED, sweep_id), text
        elif sweep.phones and out == sweep.phones:
            phones = count_text(len(out), "phone")
            text = f"{title}: none of its {phones} with queued runs is available"
            yield (NoticeKind.SWEEP_BLOCKED, sweep_id), text


def new_conditions(
    found: Mapping[NoticeKey, str],
    open_now: Collection[NoticeKey],
    raised_at_s: Mapping[NoticeKey, float],
    now: float,
) -> dict[NoticeKey, str]:
    """Return the conditions that are reported now."""
    return {
        key: text
        for key, text in found.items()
        if key not in open_now
        and not 0 <= now - raised_at_s.get(key, -REPEAT_INTERVAL_S) < REPEAT_INTERVAL_S
    }
