"""Which run a phone gets next: a pure decision from heat, shares and deadlines.

Between sweeps: owners share the lab by what they have used, a sweep of ten priorities more counts
half for its owner, and a deadline that would be missed goes first among its equals. Within a sweep
nothing is ever sorted: of the orders that were drawn for a block, the one that is over soonest is
taken as it is. A phone that would have to cool gets what may start as it is, if that fits into the
pause.

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
PAUSE_MIN_S, WARMER_MAX_C = 1.0, 0.5


@dataclass(frozen=True)
class Heat:
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

    def later(self, seconds: float, rise_c: float = 0.0) -> "Heat":
        """The phone after so many seconds in which work has added so many degrees."""
        left = (self.temp_c - self.rest_c) * math.exp(-seconds / self.tau_s)
        return Heat(self.rest_c + left + rise_c, self.rest_c, self.tau_s)


@dataclass(frozen=True)
class Expected:
    """What a run is expected to take and to leave behind."""

    run_s: float
    rise_c: float
    start_max_c: float | None


@dataclass(frozen=True)
class Offer:
    """The first run of a sweep's line for a phone."""

    phone: str
    sweep: str
    run: int
    expected: Expected


@dataclass(frozen=True)
class Stake:
    """Whose a sweep is, and what it may ask for."""

    owner: str
    priority: int = 50
    deadline: float | None = None
    since: float = 0.0
    left_s: float = 0.0  # what its busiest phone has still to do

    @property
    def weight(self) -> float:
        """How much of the lab a second of this sweep may have, beside one of priority 50."""
        return float(2.0 ** ((self.priority - 50) / DOUBLING))

    def presses(self, now: float) -> bool:
        """Whether its deadline would be missed; one that has passed presses no more."""
        if self.deadline is None or now > self.deadline:
            return False
        return HASTE * self.left_s >= self.deadline - now


def choose_order(orders: Sequence[Sequence[Expected]], heat: Heat | None, is_last: bool) -> int:
    """The drawn order of a block that is over soonest; the first one if that cannot be told.

    After the last block nobody waits for the phone; after another one, the next block does.
    """
    if heat is None or len(orders) < 2:
        return 0
    return min(range(len(orders)), key=lambda at: (_length_s(orders[at], heat, is_last), at))


def _length_s(order: Sequence[Expected], heat: Heat, is_last: bool) -> float:
    total_s = 0.0
    for run in order:
        wait_s = heat.wait_s(run.start_max_c)
        heat = heat.later(wait_s + run.run_s, run.rise_c)
        total_s += wait_s + run.run_s
    bounds = [run.start_max_c for run in order if run.start_max_c is not None]
    if not is_last and bounds:
        total_s += heat.wait_s(sum(bounds) / len(bounds))
    return round(total_s, 3)


def share_out(
    offers: Mapping[str, Sequence[Offer]],
    stakes: Mapping[str, Stake],
    used_s: Mapping[str, float],
    heats: Mapping[str, Heat],
    now: float,
) -> dict[str, Offer]:
    """Give each phone one of its offers: fairly, and without idling where it could work."""
    used = dict(used_s)
    chosen: dict[str, Offer] = {}
    for phone, lines in sorted(offers.items()):
        offer = min(lines, key=lambda each: _turn(each, stakes[each.sweep], used, now))
        offer = _fill_the_pause(offer, lines, heats.get(phone))
        stake = stakes[offer.sweep]
        used[stake.owner] = used.get(stake.owner, 0.0) + offer.expected.run_s / stake.weight
        chosen[phone] = offer
    return chosen


def _turn(
    offer: Offer, stake: Stake, used: Mapping[str, float], now: float
) -> tuple[float | str, ...]:
    """Whose turn it is: who presses, then who had least, then the owner's own wishes."""
    pressed = -stake.priority if stake.presses(now) else 1
    deadline = math.inf if stake.deadline is None or now > stake.deadline else stake.deadline
    wishes = (-stake.priority, deadline, stake.since, offer.sweep)
    return (pressed, used.get(stake.owner, 0.0), *wishes)


def _fill_the_pause(offer: Offer, lines: Sequence[Offer], heat: Heat | None) -> Offer:
    """What else may start while the phone cools, ends within the pause and hardly warms it."""
    pause_s = heat.wait_s(offer.expected.start_max_c) if heat is not None else 0.0
    if heat is None or pause_s < PAUSE_MIN_S:
        return offer
    fitting = [
        each
        for each in lines
        if heat.wait_s(each.expected.start_max_c) == 0.0
        and each.expected.run_s <= pause_s
        and each.expected.rise_c <= WARMER_MAX_C
    ]
    return min(fitting, key=lambda each: (each.expected.run_s, each.run), default=offer)
