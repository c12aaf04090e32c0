"""Why a sweep with runs left does not continue: what its phones wait for, and what to do. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from orchestrator.planning.states import Health, PhoneAvailability, SweepState
from orchestrator.store.phone_queries import KnownPhone
from orchestrator.store.sweep_queries import SweepSummary
from workloads.protocol.messages import PhoneState

# Counts of runs are a few seconds old, and a cable that flaps returns by itself.
WAIT_MIN_S = 8.0


class Wait(StrEnum):
    """Why a phone, or a whole sweep, gets no runs."""

    QUARANTINED = PhoneAvailability.QUARANTINED.value
    AWAY = PhoneAvailability.AWAY.value
    HELD = PhoneAvailability.HELD.value
    RESERVED = PhoneAvailability.RESERVED.value
    DRAINED = PhoneAvailability.DRAINED.value
    PAUSED = "paused"


_ADVICE = {
    Wait.QUARANTINED: "quarantined with runs left; release them with 'farm phone release'",
    Wait.AWAY: "not connected; connect them, or start the agent of their host",
    Wait.HELD: "held; their host checks them, see 'farm phone list'",
    Wait.RESERVED: "reserved with runs left; 'farm phone reserve --off' ends a reservation",
    Wait.DRAINED: "on a drained host; 'farm host drain --off' ends that",
    Wait.PAUSED: "the sweep is paused; continue it with 'farm sweep resume'",
}


class FollowedLab(Protocol):
    """The part of the state of a lab that tells what a sweep waits for."""

    @property
    def at(self) -> datetime: ...
    @property
    def phones(self) -> Sequence[KnownPhone]: ...
    @property
    def sweeps(self) -> Sequence[SweepSummary]: ...
    @property
    def drained(self) -> Collection[str]: ...


@dataclass(frozen=True)
class Obstacle:
    """What a phone waits for; of the sweep itself, `phone` is empty."""

    phone: str
    wait: Wait
    needs_person: bool  # nothing else ends it


def is_reserved(phone: KnownPhone, now: datetime) -> bool:
    """Whether a phone is reserved at the moment."""
    until = phone.reserved_until
    return bool(phone.reserved_by) and (until == 0 or until > now.timestamp())


def availability_of(
    phone: KnownPhone, now: datetime, drained: Collection[str] = ()
) -> PhoneAvailability:
    """Return what a phone does, or why it gets no runs."""
    wait = _wait(phone, now, drained)
    if phone.health is Health.RETIRED:
        return PhoneAvailability.RETIRED
    if wait in (Wait.QUARANTINED, Wait.AWAY, Wait.HELD):
        return PhoneAvailability(wait)
    if phone.status.state is PhoneState.BUSY:
        return PhoneAvailability.BUSY
    return PhoneAvailability.IDLE if wait is None else PhoneAvailability(wait)


def absent_phones(
    phones: Sequence[KnownPhone], now: datetime, drained: Collection[str]
) -> Mapping[str, Wait]:
    """Return the phones that get no runs until a person or a check returns them, and why."""
    found = {phone.serial: _wait(phone, now, drained) for phone in phones}
    return {serial: wait for serial, wait in found.items() if wait is not None}


def _wait(phone: KnownPhone, now: datetime, drained: Collection[str]) -> Wait | None:
    if phone.health is Health.QUARANTINED:
        return Wait.QUARANTINED
    if phone.status.state is PhoneState.AWAY:
        return Wait.AWAY
    if phone.health is Health.HELD:
        return Wait.HELD
    if is_reserved(phone, now):
        return Wait.RESERVED
    return Wait.DRAINED if phone.host in drained else None


def find_obstacles(lab: FollowedLab) -> list[Obstacle]:
    """Return what each phone with runs left of the followed sweep waits for.

    Empty: the sweep has no runs left, or one of these phones works or is about to.
    """
    left = [phone for phone in lab.phones if phone.queued]
    if not left or any(phone.lease for phone in left):
        return []
    if lab.sweeps and lab.sweeps[0].state is SweepState.PAUSED:
        return [Obstacle("", Wait.PAUSED, True)]
    waits = absent_phones(left, lab.at, lab.drained)
    if len(waits) < len(left):
        return []
    endless = {phone.serial for phone in left if phone.reserved_until == 0}
    return [
        Obstacle(
            serial,
            wait,
            wait is Wait.QUARANTINED or (wait is Wait.RESERVED and serial in endless),
        )
        for serial, wait in waits.items()
    ]


def needs_person(obstacles: Sequence[Obstacle]) -> bool:
    """Whether a sweep never continues unless a person acts."""
    return bool(obstacles) and all(obstacle.needs_person for obstacle in obstacles)


def obstacle_text(obstacles: Sequence[Obstacle]) -> str:
    """Return what a sweep waits for, and what to do; empty without obstacles."""
    by_wait: dict[Wait, list[str]] = {}
    for obstacle in obstacles:
        by_wait.setdefault(obstacle.wait, []).append(obstacle.phone)
    return "; ".join(
        f"{', '.join(phones)}: {_ADVICE[wait]}" if phones[0] else _ADVICE[wait]
        for wait, phones in by_wait.items()
    )


class SweepWait:
    """What the followed sweep waits for, over time: short waits end by themselves."""

    def __init__(self) -> None:
        self._obstacles: list[Obstacle] = []
        self._since: datetime | None = None
        self._is_reported = False

    def is_stuck(self, lab: FollowedLab) -> bool:
        """Note the state; return whether the sweep never continues unless a person acts."""
        return self._has_waited(lab) and needs_person(self._obstacles)

    def news(self, lab: FollowedLab) -> str:
        """Note the state; return what is to be reported, once."""
        if not self._has_waited(lab) or self._is_reported:
            return ""
        self._is_reported = True
        return obstacle_text(self._obstacles)

    def _has_waited(self, lab: FollowedLab) -> bool:
        obstacles = find_obstacles(lab)
        if obstacles != self._obstacles or self._since is None:
            self._obstacles, self._since, self._is_reported = obstacles, lab.at, False
        return bool(obstacles) and (lab.at - self._since).total_seconds() >= WAIT_MIN_S
