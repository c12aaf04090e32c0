"""Oort (Lai et al., OSDI 2021): useful data first, slow phones marked down, some unknown."""

import numpy as np

from orchestrator.selection.fleet import Array, Picks
from orchestrator.selection.situation import Choice, Situation, Want, draw


class Oort:
    """Its training selector, with the settings that its authors ship.

    Exploited are those whose last update was the most useful; a phone slower than the preferred
    time is marked down by the square of how much. Explored are those never heard from, the larger
    and quicker ones first. A pacer allows more time when the rounds no longer earn more.
    """

    PENALTY, CLIP, CUT_OFF = 2.0, 0.9, 0.95
    EXPLORE, EXPLORE_MIN, EXPLORE_DECAY, WINDOW = 0.9, 0.3, 0.98, 5
    PERCENTILE, PACER_STEP, PACER_DELTA = 30.0, 20, 5.0
    FLAT, SHARP = 0.1, 5.0

    def __init__(self) -> None:
        self._explore = self.EXPLORE
        self._percentile = self.PERCENTILE
        self._exploited: Picks = np.zeros(0, dtype=np.int64)
        self._earned: list[float] = []

    def choose(self, now: Situation, want: Want, rng: np.random.Generator) -> Choice:
        """Exploit those heard from by utility, explore the others by size and speed."""
        self._pace(now)
        able = now.eligible
        took = now.profiled_s
        preferred = self._preferred(took)
        heard = ~np.isnan(now.utility[able])
        known, unheard = able[heard], able[~heard]
        self._explore = max(self.EXPLORE_MIN, self._explore * self.EXPLORE_DECAY)
        share = 1 - self._explore if len(unheard) else 1.0
        score = self._score(now, known, preferred)
        self._exploited = _best(known, score, int(want.k * share), rng, self.CUT_OFF)
        prior = now.samples[unheard] * self._slow(took[unheard], preferred)
        wanted = want.k - len(self._exploited)
        window = np.argsort(-prior, kind="stable")[: self.WINDOW * wanted]
        new = draw(unheard[window], wanted, rng, prior[window])
        why = [
            f"useful: {now.utility[i]:.3g}, {took[i]:.3g} s where {preferred:.3g} s are preferred"
            for i in self._exploited
        ]
        why += [f"not heard from yet, {took[i]:.3g} s" for i in new]
        more = np.setdiff1d(known, self._exploited)
        filled = draw(more, wanted - len(new), rng)
        picks = np.concatenate([self._exploited, new, filled]).astype(np.int64)
        return Choice(picks, (*why, *("to fill the round",) * len(filled)))

    def _preferred(self, took: Array) -> float:
        if self._percentile >= 100 or not len(took):
            return float("inf")
        return float(np.sort(took)[min(int(len(took) * self._percentile / 100), len(took) - 1)])

    def _slow(self, took: Array, preferred: float) -> Array:
        """What a phone is marked down by."""
        late = took > preferred
        return np.where(late, preferred / np.maximum(took, 1e-4), 1.0) ** self.PENALTY

    def _score(self, now: Situation, members: Picks, preferred: float) -> Array:
        if not len(members):
            return np.zeros(0)
        ordered = np.sort(now.utility[members])
        clip = ordered[min(int(len(ordered) * self.CLIP), len(ordered) - 1)]
        least = ordered[0] * 0.999
        reward = (np.minimum(now.utility[members], clip) - least) / max(ordered[-1] - least, 1e-4)
        stale = np.sqrt(0.1 * np.log(max(now.round, 2)) / np.maximum(now.last_round[members], 1))
        return np.asarray((reward + stale) * self._slow(now.profiled_s[members], preferred))

    def _pace(self, now: Situation) -> None:
        """Allow slower phones when rounds earn what they always earned; fewer when it jumps."""
        earned = now.utility[self._exploited]
        self._earned.append(float(np.nanmean(earned)) if len(earned) else 0.0)
        step = self.PACER_STEP
        if len(self._earned) < 2 * step or len(self._earned) % step:
            return
        before, lately = sum(self._earned[-2 * step : -step]), sum(self._earned[-step:])
        if abs(lately - before) <= before * self.FLAT:
            self._percentile = min(100.0, self._percentile + self.PACER_DELTA)
        elif abs(lately - before) >= before * self.SHARP:
            self._percentile = max(self.PACER_DELTA, self._percentile - self.PACER_DELTA)


def _best(
    members: Picks, score: Array, count: int, rng: np.random.Generator, cut_off: float
) -> Picks:
    """Draw by score from those that come near the best: not always the same ones."""
    if count <= 0 or len(members) <= count:
        return members[: max(0, count)]
    order = np.argsort(-score, kind="stable")
    near = order[score[order] >= cut_off * score[order[count]]]
    return draw(members[near], count, rng, score[near])
