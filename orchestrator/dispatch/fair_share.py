"""Which run a phone gets next: a pure decision from heat, shares and deadlines.

Between sweeps: owners share the lab by what they have used, a sweep of ten priorities more counts
half for its owner, and a deadline that would be missed goes first among its equals. Within a sweep
nothing is ever sorted. A phone that would have to cool gets what may start as it is, if that fits
into the pause.

Heat is one warm body: what a run adds decays with the phone's own time constant towards where it
comes to rest. That is enough to tell orders and pauses apart; when a run may start is decided by
the phone's thermometer alone.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

DOUBLING = 10  # so many priorities more are twice the share
HASTE = 1.25  # a deadline presses when what is left takes so much of the time until then
NEVER_S = 3600.0
PAUSE_MIN_S = 1.0
DELAY_SHARE_MAX = 0.5  # of a backfilled run's time, by which the waiting run may start later


@dataclass(frozen=True)
class ThermalState:
    """How warm a phone is, where it comes to rest, and how fast, in seconds of the host's clock."""

    temp_c: float
    rest_c: float
    tau_s: float

    def wait_s(self, start_max_c: float | None) -> float:
        """How long until it is as cool as asked."""
        if start_max_c is None or self.temp_c <= start_max_c:
            return 0.0
        if start_max_c <= self.rest_c:
            return NEVER_S
        fall = (self.temp_c - self.rest_c) / (start_max_c - self.rest_c)
        return min(NEVER_S, self.tau_s * math.log(fall))

    def later(self, seconds: float, rise_c: float = 0.0) -> "ThermalState":
        """The phone after so many seconds in which work has added so many degrees."""
        left = (self.temp_c - self.rest_c) * math.exp(-seconds / self.tau_s)
        return ThermalState(self.rest_c + left + rise_c, self.rest_c, self.tau_s)


@dataclass(frozen=True)
class ExpectedDuration:
    """What a run is expected to take and to leave behind."""

    run_s: float
    rise_c: float
    start_max_c: float | None


@dataclass(frozen=True)
class Candidate:
    """The first run of a sweep's line for a phone."""

    phone: str
    sweep: str
    run: int
    expected: ExpectedDuration


@dataclass(frozen=True)
class SweepShare:
    """Whose a sweep is, and what it may ask for."""

    owner: str
    priority: int = 50
    deadline: float | None = None
    since: float = 0.0
    remaining_s: float = 0.0  # what its busiest phone has still to do

    @property
    def weight(self) -> float:
        """How much of the lab a second of this sweep may have, beside one of priority 50."""
        return float(2.0 ** ((self.priority - 50) / DOUBLING))

    def presses(self, now: float) -> bool:
        """Whether its deadline would be missed; one that has passed presses no more."""
        if self.deadline is None or now > self.deadline:
            return False
        return HASTE * self.remaining_s >= self.deadline - now


def assign_runs(
    offers: Mapping[str, Sequence[Candidate]],
    stakes: Mapping[str, SweepShare],
    used_s: Mapping[str, float],
    heats: Mapping[str, ThermalState],
    now: float,
) -> dict[str, Candidate]:
    """Give each phone one of its offers: fairly, and without idling where it could work."""
    used = dict(used_s)
    chosen: dict[str, Candidate] = {}
    for phone, lines in sorted(offers.items()):
        ranked = sorted(lines, key=lambda each: _priority_key(each, stakes[each.sweep], used, now))
        offer = _backfill(ranked, heats.get(phone))
        stake = stakes[offer.sweep]
        used[stake.owner] = used.get(stake.owner, 0.0) + offer.expected.run_s / stake.weight
        chosen[phone] = offer
    return chosen


def _priority_key(
    offer: Candidate, stake: SweepShare, used: Mapping[str, float], now: float
) -> tuple[float | str, ...]:
    """Whose turn it is: who presses, then who had least, then the owner's own wishes."""
    pressed = -stake.priority if stake.presses(now) else 1
    deadline = math.inf if stake.deadline is None or now > stake.deadline else stake.deadline
    wishes = (-stake.priority, deadline, stake.since, offer.sweep)
    return (pressed, used.get(stake.owner, 0.0), *wishes)


def _backfill(ranked: Sequence[Candidate], heat: ThermalState | None) -> Candidate:
    """Take the first run; while the phone cools for it, another that hardly delays it."""
    first = ranked[0]
    pause_s = heat.wait_s(first.expected.start_max_c) if heat is not None else 0.0
    if heat is None or pause_s < PAUSE_MIN_S:
        return first
    for other in ranked[1:]:
        run = other.expected
        if heat.wait_s(run.start_max_c) > 0.0:
            continue
        cooling_s = heat.later(run.run_s, run.rise_c).wait_s(first.expected.start_max_c)
        if run.run_s + cooling_s - pause_s <= DELAY_SHARE_MAX * run.run_s:
            return other
    return first
