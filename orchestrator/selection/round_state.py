"""What a round asks for, what the server knows before it, and what a policy answers."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from orchestrator.selection.fleet import Array, Fleet, Mask, Picks, work_s

BATTERY_FLOOR = 0.2


@dataclass(frozen=True)
class Want:
    """What a round asks for."""

    k: int
    deadline_s: float | None = None
    link_s: float = 0.0  # to fetch the model and send the update, for each phone
    rounds: int = 100  # that the whole training will have, as far as one knows


@dataclass
class Situation:
    """What the server knows before a round."""

    fleet: Fleet
    samples: Array  # of local work in a round, by phone
    heat: Array
    charge: Array  # share of the battery
    online: Mask
    utility: Array  # samples · root of the mean squared loss; NaN while never heard from
    last_round: Array  # 0 is never
    chosen: Array  # how often so far
    took_s: Array  # how long it worked when it was asked last; NaN while never
    off: Array  # that time by what was expected of it, as hot as it was; 1 while never
    round: int = 1

    @property
    def eligible(self) -> Picks:
        """Phones that could do it at all: there, not flat, with the memory for it."""
        able = self.online & self.fleet.fits & (self.charge > BATTERY_FLOOR)
        return np.flatnonzero(able)

    @property
    def expected_s(self) -> Array:
        """How long each would take, as hot as it is, by all that is known."""
        return work_s(self.fleet, self.samples, self.heat) * self.off

    @property
    def doubt(self) -> Array:
        """How far above that it may lie, as a share; whoever has been asked has shown it."""
        return np.where(np.isnan(self.took_s), self.fleet.doubt, 0.0)

    @property
    def profiled_s(self) -> Array:
        """How long each took last, else by its cold figure: what others' policies go by."""
        return np.where(np.isnan(self.took_s), self.samples * self.fleet.cold_s, self.took_s)


def first_look(fleet: Fleet, samples: float | Array) -> Situation:
    """A fleet that nobody has asked yet: cool, charged, all there."""
    n = len(fleet)
    return Situation(
        fleet,
        samples=np.broadcast_to(np.asarray(samples, dtype=float), n).copy(),
        heat=np.zeros(n),
        charge=np.ones(n),
        online=np.ones(n, dtype=bool),
        utility=np.full(n, np.nan),
        last_round=np.zeros(n),
        chosen=np.zeros(n),
        took_s=np.full(n, np.nan),
        off=np.ones(n),
    )


@dataclass(frozen=True)
class Choice:
    """Phones for a round, and why each."""

    picks: Picks
    why: tuple[str, ...]


class Policy(Protocol):
    """Chooses round after round, and may remember."""

    def choose(self, now: Situation, want: Want, rng: np.random.Generator) -> Choice:
        """Phones for the next round."""


def draw(members: Picks, k: int, rng: np.random.Generator, weight: Array | None = None) -> Picks:
    """Draw k of them without putting back; all when there are fewer."""
    if len(members) <= k:
        return members
    chance = None if weight is None else weight / weight.sum()
    return np.asarray(rng.choice(members, size=max(0, k), replace=False, p=chance))


def nobody() -> Choice:
    """An empty round."""
    return Choice(np.zeros(0, dtype=np.int64), ())
