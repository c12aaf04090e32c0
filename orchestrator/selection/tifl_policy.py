"""TiFL (Chai et al., HPDC 2020): tiers of similar speed, one tier per round, with credits."""

import numpy as np

from orchestrator.selection.round_clock import Array
from orchestrator.selection.round_fleet import Picks
from orchestrator.selection.round_state import (
    RoundRequest,
    RoundState,
    Selection,
    draw_clients,
    empty_selection,
)


class TiFLPolicy:
    """Chooses the phones of a round from one tier, so that none waits for much slower phones.

    Phones are profiled once and sorted into tiers of equal size. At first every tier is equally
    likely. Every INTERVAL rounds, if the model has not improved on the last tier, the tiers are
    ranked by their loss and the worst becomes the most likely. Each tier has a number of credits,
    fewer for slower tiers, which limits how often it may slow down the training.

    The paper tests the model on the data of every tier. A server here knows only the reported
    losses, so the mean reported loss of a tier is used; a tier without reports counts as the worst.
    The paper leaves the number of credits open; see CREDIT.
    """

    over_selection = 1.0
    TIERS, INTERVAL = 5, 10
    CREDIT = 1.5  # times the number of rounds, distributed over the tiers

    def __init__(self) -> None:
        self._tier: Picks | None = None  # by phone
        self._credits = np.zeros(0)
        self._weight = np.zeros(0)
        self._losses: list[Array] = []
        self._last = 0

    def choose(
        self, state: RoundState, request: RoundRequest, rng: np.random.Generator
    ) -> Selection:
        """Draw a tier, then phones from it."""
        if self._tier is None:
            self._profile(state, request)
        assert self._tier is not None
        eligible = state.eligible
        self._adapt(state)
        count = len(self._credits)
        is_present = np.bincount(self._tier[eligible], minlength=count) > 0
        weight = np.where(is_present & (self._credits > 0), self._weight, 0.0)
        if weight.sum() == 0:
            weight = is_present.astype(float)  # all credits are spent: any tier with phones
        if weight.sum() == 0:
            return empty_selection()
        self._last = int(rng.choice(count, p=weight / weight.sum()))
        self._credits[self._last] -= 1
        picks = draw_clients(eligible[self._tier[eligible] == self._last], request.k, rng)
        return Selection(picks, (f"tier {self._last + 1} of {count} was drawn",) * len(picks))

    def _profile(self, state: RoundState, request: RoundRequest) -> None:
        """Sort phones into tiers by sustained time; no tier is smaller than a cohort."""
        round_s = state.fleet.cold_s * state.fleet.slowdown * state.samples + state.link_s
        count = min(self.TIERS, max(1, len(round_s) // request.k))
        rank = np.argsort(np.argsort(round_s, kind="stable"), kind="stable")
        self._tier = rank * count // max(1, len(round_s))
        shares = np.arange(count, 0, -1)
        self._credits = np.ceil(self.CREDIT * request.rounds * shares / shares.sum())
        self._weight = np.full(count, 1 / count)

    def _adapt(self, state: RoundState) -> None:
        """Rank the tiers again when the last one has not improved for an interval."""
        assert self._tier is not None
        count = len(self._credits)
        self._losses.append(
            np.array(
                [_mean_loss(state, np.flatnonzero(self._tier == tier)) for tier in range(count)]
            )
        )
        if len(self._losses) <= self.INTERVAL or state.round % self.INTERVAL:
            return
        losses = self._losses[-1]
        if losses[self._last] >= self._losses[-1 - self.INTERVAL][self._last]:
            has_credit = self._credits > 0
            ranked = np.argsort(np.argsort(-np.where(has_credit, losses, -1.0), kind="stable"))
            weight = np.where(has_credit, np.maximum(has_credit.sum() - ranked, 0), 0)
            self._weight = weight.astype(float)


def _mean_loss(state: RoundState, members: Picks) -> float:
    """Return the mean reported loss of a tier; infinite without reports."""
    losses = state.utility[members] / np.maximum(state.samples[members], 1)
    reported = losses[~np.isnan(losses)]
    return float(reported.mean()) if len(reported) else np.inf
