"""What a round requests, what the server knows before it, and what a policy returns."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from orchestrator.selection.round_clock import Array, work_cost
from orchestrator.selection.round_fleet import Mask, Picks, RoundFleet

BATTERY_FLOOR = 0.2


@dataclass(frozen=True)
class RoundRequest:
    """What a round requests."""

    k: int
    deadline_s: float | None = None  # that the cohort should meet


@dataclass
class RoundState:
    """What the server knows before a round; arrays are by phone."""

    fleet: RoundFleet
    samples: Array  # of local work in a round
    link_s: Array  # to fetch the model and send the update
    heat: Array  # as the server estimates it
    charge: Array  # share of the battery
    online: Mask
    utility: Array  # samples · root of the mean squared loss; NaN before the first update
    last_round: Array  # 0 is never
    times_chosen: Array
    last_duration_s: Array  # of the last round, with its link; NaN before the first
    round: int = 1

    @property
    def eligible(self) -> Picks:
        """Phones that can take part: online, charged, with enough memory."""
        able = self.online & self.fleet.fits & (self.charge > BATTERY_FLOOR)
        return np.flatnonzero(able)

    @property
    def expected_s(self) -> Array:
        """How long each phone would work at its present heat."""
        return work_cost(self.fleet, self.samples, self.heat).seconds

    @property
    def uncertainty(self) -> Array:
        """The relative upper margin of the expected time; 0 for phones that took part before."""
        return np.where(np.isnan(self.last_duration_s), self.fleet.uncertainty, 0.0)

    @property
    def profiled_duration_s(self) -> Array:
        """The last duration, else the cold estimate: what the policies of the literature use."""
        cold_s = self.samples * self.fleet.cold_s + self.link_s
        return np.where(np.isnan(self.last_duration_s), cold_s, self.last_duration_s)


def initial_round_state(
    fleet: RoundFleet, samples: float | Array, link_s: float | Array = 0.0
) -> RoundState:
    """Return the state before the first round: all phones cool, charged and online."""
    n = len(fleet)
    return RoundState(
        fleet,
        samples=np.broadcast_to(np.asarray(samples, dtype=float), n).copy(),
        link_s=np.broadcast_to(np.asarray(link_s, dtype=float), n).copy(),
        heat=np.zeros(n),
        charge=np.ones(n),
        online=np.ones(n, dtype=bool),
        utility=np.full(n, np.nan),
        last_round=np.zeros(n),
        times_chosen=np.zeros(n),
        last_duration_s=np.full(n, np.nan),
    )


@dataclass(frozen=True)
class Selection:
    """Phones for a round, with the reason for each."""

    picks: Picks
    reasons: tuple[str, ...]
    deadline_s: float | None = None  # when the server need not wait any longer


class SelectionPolicy(Protocol):
    """Chooses phones for every round of a training; may keep state."""

    over_selection: float  # how many times the wanted number of phones is asked

    def choose(
        self, state: RoundState, request: RoundRequest, rng: np.random.Generator
    ) -> Selection:
        """Choose request.k phones for the next round."""


def draw_clients(
    members: Picks, k: int, rng: np.random.Generator, weight: Array | None = None
) -> Picks:
    """Draw k members without replacement, one after the other; all when there are fewer."""
    if len(members) <= k:
        return members
    if k <= 0:
        return members[:0]
    if weight is None:
        return np.asarray(rng.choice(members, size=k, replace=False))
    # The k smallest of exponential variables over their weights are a draw without replacement.
    with np.errstate(divide="ignore"):
        order = rng.exponential(size=len(members)) / np.maximum(weight, 0.0)
    return np.asarray(members[np.argpartition(order, k - 1)[:k]])


def empty_selection() -> Selection:
    """Return a selection without phones."""
    return Selection(np.zeros(0, dtype=np.int64), ())
