"""Oort (Lai et al., OSDI 2021): useful data first, a penalty for slow phones, some exploration."""

import numpy as np

from orchestrator.selection.round_clock import Array
from orchestrator.selection.round_fleet import Picks
from orchestrator.selection.round_state import RoundRequest, RoundState, Selection, draw_clients


class OortPolicy:
    """Oort's training selector, by the rule and the constants of its authors' repository.

    https://github.com/SymbioticLab/Oort: oort/oort.py at f5fccf3 and training/argParser.py at
    25c8853. The first round is random. Then phones with an update are scored by their utility,
    which is normalised over all eligible phones, and by the age of the update; a phone slower than
    the preferred time is penalised by the square of the ratio. Some are drawn by score from those
    near the best, the rest from phones without an update, larger and faster ones first. A pacer
    allows more time when rounds no longer gain utility.

    Deviations: where the authors' code would stop with an error (fewer scored phones than it wants,
    weights that are all zero) the phones that exist are taken. Their list of phones that were
    chosen too often is off by default and left out.
    """

    over_selection = 1.1
    PENALTY, CLIP, CUT_OFF, WINDOW = 2.0, 0.98, 0.7, 5.0
    EXPLORE, EXPLORE_MIN, EXPLORE_DECAY = 0.9, 0.2, 0.95
    PERCENTILE, PACER_STEP, PACER_DELTA = 10.0, 20, 5.0
    FLAT, SHARP = 0.1, 5.0

    def __init__(self) -> None:
        self._explore, self._explore_min = self.EXPLORE, self.EXPLORE_MIN
        self.percentile = self.PERCENTILE  # of the durations that is preferred, set by the pacer
        self._exploited: Picks = np.zeros(0, dtype=np.int64)
        self._round_utility: list[float] = []
        self._calls = -1  # of the selector, which the first round does without

    def choose(
        self, state: RoundState, request: RoundRequest, rng: np.random.Generator
    ) -> Selection:
        """Exploit phones with an update by utility, explore the others by size and speed."""
        self._calls += 1
        eligible = state.eligible
        if self._calls == 0 or len(eligible) <= request.k:
            picks = draw_clients(eligible, request.k, rng)
            return Selection(picks, (f"drawn from {len(eligible)}",) * len(picks))
        self._pace(state)
        durations = state.profiled_duration_s
        preferred = self._preferred_s(durations)
        reward = np.where(np.isnan(state.utility), state.samples, state.utility)
        is_known = ~np.isnan(state.utility[eligible])
        known, unknown = eligible[is_known], eligible[~is_known]
        score = self._score(state, reward[eligible], known, preferred)
        self._explore = max(self._explore * self.EXPLORE_DECAY, self._explore_min)
        count = min(int(request.k * (1 - self._explore)), len(known))
        self._exploited = _draw_best(known, score, count, rng, self.CUT_OFF)
        prior = reward[unknown] * self._penalty(durations[unknown], preferred)
        wanted = min(len(unknown), request.k - len(self._exploited))
        window = np.argsort(-prior, kind="stable")[: int(self.WINDOW * wanted)]
        explored = draw_clients(unknown[window], wanted, rng, prior[window])
        if not np.isnan(state.utility).any():
            self._explore = self._explore_min = 0.0  # no phone is left to explore
        rest = np.setdiff1d(eligible, np.concatenate([self._exploited, explored]))
        filled = draw_clients(rest, request.k - len(self._exploited) - len(explored), rng)
        reasons = [
            f"utility {state.utility[i]:.3g}, {durations[i]:.3g} s, preferred {preferred:.3g} s"
            for i in self._exploited
        ]
        reasons += [f"no update yet, {durations[i]:.3g} s" for i in explored]
        picks = np.concatenate([self._exploited, explored, filled]).astype(np.int64)
        return Selection(picks, (*reasons, *("to fill the round",) * len(filled)))

    def _preferred_s(self, durations: Array) -> float:
        if self.percentile >= 100 or not len(durations):
            return float("inf")
        rank = min(int(len(durations) * self.percentile / 100), len(durations) - 1)
        return float(np.partition(durations, rank)[rank])

    def _penalty(self, durations: Array, preferred: float) -> Array:
        """Return the factor by which the score of a slow phone is reduced."""
        late = durations > preferred
        return np.where(late, preferred / np.maximum(durations, 1e-4), 1.0) ** self.PENALTY

    def _score(self, state: RoundState, rewards: Array, members: Picks, preferred: float) -> Array:
        """Score the phones with an update; rewards are those of all eligible phones."""
        ordered = np.sort(rewards[rewards > 0])
        if not len(members) or not len(ordered):
            return np.zeros(len(members))
        clip = ordered[min(int(len(ordered) * self.CLIP), len(ordered) - 1)]
        lowest = ordered[0] * 0.999
        clipped = np.minimum(state.utility[members], clip)
        reward = (clipped - lowest) / max(ordered[-1] - lowest, 1e-4)
        stale = np.sqrt(0.1 * np.log(self._calls) / np.maximum(state.last_round[members], 1))
        penalty = self._penalty(state.profiled_duration_s[members], preferred)
        return np.asarray((reward + stale) * penalty)

    def _pace(self, state: RoundState) -> None:
        """Allow slower phones when utility is flat; fewer when it jumps."""
        arrived = self._exploited[state.last_round[self._exploited] == state.round - 1]
        utility = state.utility[arrived]
        self._round_utility.append(float(np.nansum(utility)) / (len(arrived) + 1e-4))
        step = self.PACER_STEP
        if self._calls < 2 * step or self._calls % step:
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
    limit = -np.partition(-score, count)[count] * cut_off
    near = np.flatnonzero(score >= limit)
    return draw_clients(members[near], count, rng, score[near])
