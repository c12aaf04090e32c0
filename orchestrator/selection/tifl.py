"""TiFL (Chai et al., HPDC 2020): tiers of like speed, one tier a round, with credits."""

import numpy as np

from orchestrator.selection.fleet import Array, Picks
from orchestrator.selection.situation import Choice, Situation, Want, draw, nobody


class TiFL:
    """One tier a round, so that nobody waits for a slower kind of phone.

    Phones are profiled once and sorted into tiers of equal size. At first every tier is equally
    likely; every so many rounds, when the model has not become better on the last tier, the tiers
    are ranked by how badly it does on them and the worst becomes the likeliest. Each tier has a
    number of credits, fewer the slower it is, which bounds how often it may hold up the training.

    The paper tests the model on every tier's own data. A server here hears only what its clients
    tell, so a tier's mean told loss stands for that; who was never heard counts as the worst.
    """

    TIERS, INTERVAL = 5, 10
    CREDIT = 1.5  # times the rounds, shared out over the tiers

    def __init__(self) -> None:
        self._tier: Picks | None = None  # by phone
        self._credits = np.zeros(0)
        self._chance = np.zeros(0)
        self._losses: list[Array] = []
        self._last = 0

    def choose(self, now: Situation, want: Want, rng: np.random.Generator) -> Choice:
        """Draw a tier, then phones inside."""
        if self._tier is None:
            self._profile(now, want)
        assert self._tier is not None
        able = now.eligible
        self._adapt(now)
        count = len(self._credits)
        there = np.bincount(self._tier[able], minlength=count) > 0
        weight = np.where(there & (self._credits > 0), self._chance, 0.0)
        if weight.sum() == 0:
            weight = there.astype(float)  # all credits are spent: anybody who is there
        if weight.sum() == 0:
            return nobody()
        self._last = int(rng.choice(count, p=weight / weight.sum()))
        self._credits[self._last] -= 1
        picks = draw(able[self._tier[able] == self._last], want.k, rng)
        return Choice(picks, (f"tier {self._last + 1} of {count} was drawn",) * len(picks))

    def _profile(self, now: Situation, want: Want) -> None:
        """Sort all phones into tiers by their sustained time; no tier is smaller than a cohort."""
        pace = now.fleet.cold_s * now.fleet.slowdown * now.samples
        count = min(self.TIERS, max(1, len(pace) // want.k))
        rank = np.argsort(np.argsort(pace, kind="stable"), kind="stable")
        self._tier = rank * count // max(1, len(pace))
        slower = np.arange(count, 0, -1)
        self._credits = np.ceil(self.CREDIT * want.rounds * slower / slower.sum())
        self._chance = np.full(count, 1 / count)

    def _adapt(self, now: Situation) -> None:
        """Rank the tiers anew when the last one has learned nothing for an interval."""
        assert self._tier is not None
        count = len(self._credits)
        self._losses.append(
            np.array([_loss(now, np.flatnonzero(self._tier == tier)) for tier in range(count)])
        )
        if now.round <= self.INTERVAL or now.round % self.INTERVAL:
            return
        losses = self._losses[-1]
        if losses[self._last] >= self._losses[-1 - self.INTERVAL][self._last]:
            left = self._credits > 0
            worst_first = np.argsort(np.argsort(-np.where(left, losses, -1.0), kind="stable"))
            self._chance = np.where(left, np.maximum(left.sum() - worst_first, 0), 0).astype(float)


def _loss(now: Situation, members: Picks) -> float:
    """The mean loss that a tier's members told; infinite while unheard."""
    told = now.utility[members] / np.maximum(now.samples[members], 1)
    heard = told[~np.isnan(told)]
    return float(heard.mean()) if len(heard) else np.inf
