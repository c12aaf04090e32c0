"""Oort (Lai et al., OSDI 2021): useful data first, a penalty for slow phones, some exploration."""

import numpy as np

from orchestrator.selection.round_fleet import Array, Picks
from orchestrator.selection.round_state import RoundRequest, RoundState, Selection, draw_clients


class OortPolicy:
    """Oort's training selector, with the default settings of its authors.

    Phones with the most useful last update are exploited; a phone slower than the preferred time is
    penalised by the square of the ratio. Phones without an update are explored, larger and faster
    ones first. A pacer allows more time when rounds no longer gain utility.
    """

    PENALTY, CLIP, CUT_OFF = 2.0, 0.9, 0.95
    EXPLORE, EXPLORE_MIN, EXPLORE_DECAY, WINDOW = 0.9, 0.3, 0.98, 5
    PERCENTILE, PACER_STEP, PACER_DELTA = 30.0, 20, 5.0
    FLAT, SHARP = 0.1, 5.0

    def __init__(self) -> None:
        self._explore = self.EXPLORE
        self.percentile = self.PERCENTILE  # of the durations that is preferred, set by the pacer
        self._exploited: Picks = np.zeros(0, dtype=np.int64)
        self._round_utility: list[float] = []

    def choose(
        self, state: RoundState, request: RoundRequest, rng: np.random.Generator
    ) -> Selection:
        """Exploit phones with an update by utility, explore the others by size and speed."""
        self._pace(state)
        eligible = state.eligible
        durations = state.profiled_duration_s
        preferred = self._preferred_s(durations)
        has_update = ~np.isnan(state.utility[eligible])
        known, unknown = eligible[has_update], eligible[~has_update]
        self._explore = max(self.EXPLORE_MIN, self._explore * self.EXPLORE_DECAY)
        share = 1 - self._explore if len(unknown) else 1.0
        score = self._score(state, known, preferred)
        self._exploited = _draw_best(known, score, int(request.k * share), rng, self.CUT_OFF)
        prior = state.samples[unknown] * self._penalty(durations[unknown], preferred)
        wanted = request.k - len(self._exploited)
        window = np.argsort(-prior, kind="stable")[: self.WINDOW * wanted]
        explored = draw_clients(unknown[window], wanted, rng, prior[window])
        reasons = [
            f"utility {state.utility[i]:.3g}, {durations[i]:.3g} s, preferred {preferred:.3g} s"
            for i in self._exploited
        ]
        reasons += [f"no update yet, {durations[i]:.3g} s" for i in explored]
        rest = np.setdiff1d(known, self._exploited)
        filled = draw_clients(rest, wanted - len(explored), rng)
        picks = np.concatenate([self._exploited, explored, filled]).astype(np.int64)
        return Selection(picks, (*reasons, *("to fill the round",) * len(filled)))

    def _preferred_s(self, durations: Array) -> float:
        if self.percentile >= 100 or not len(durations):
            return float("inf")
        rank = min(int(len(durations) * self.percentile / 100), len(durations) - 1)
        return float(np.sort(durations)[rank])

    def _penalty(self, durations: Array, preferred: float) -> Array:
        """Return the factor by which the score of a slow phone is reduced."""
        late = durations > preferred
        return np.where(late, preferred / np.maximum(durations, 1e-4), 1.0) ** self.PENALTY

    def _score(self, state: RoundState, members: Picks, preferred: float) -> Array:
        if not len(members):
            return np.zeros(0)
        ordered = np.sort(state.utility[members])
        clip = ordered[min(int(len(ordered) * self.CLIP), len(ordered) - 1)]
        lowest = ordered[0] * 0.999
        clipped = np.minimum(state.utility[members], clip)
        reward = (clipped - lowest) / max(ordered[-1] - lowest, 1e-4)
        last_round = np.maximum(state.last_round[members], 1)
        stale = np.sqrt(0.1 * np.log(max(state.round, 2)) / last_round)
        penalty = self._penalty(state.profiled_duration_s[members], preferred)
        return np.asarray((reward + stale) * penalty)

    def _pace(self, state: RoundState) -> None:
        """Allow slower phones when utility is flat; fewer when it jumps."""
        utility = state.utility[self._exploited]
        self._round_utility.append(float(np.nanmean(utility)) if len(utility) else 0.0)
        step = self.PACER_STEP
        if len(self._round_utility) < 2 * step or len(self._round_utility) % step:
            return
        before = sum(self._round_utility[-2 * step : -step])
        recent = sum(self._round_utility[-step:])
        if abs(recent - before) <= before * self.FLAT:
            self.percentile = min(100.0, self.percentile + self.PACER_DELTA)
        elif abs(recent - before) >= before * self.SHARP:
            self.percentile = max(self.PACER_DELTA, self.percentile - self.PACER_DELTA)


def _draw_best(
    members: Picks, score: Array, count: int, rng: np.random.Generator, cut_off: float
) -> Picks:
    """Draw by score from those near the best, so that the choice varies between rounds."""
    if count <= 0 or len(members) <= count:
        return members[: max(0, count)]
    order = np.argsort(-score, kind="stable")
    near = order[score[order] >= cut_off * score[order[count]]]
    return draw_clients(members[near], count, rng, score[near])
