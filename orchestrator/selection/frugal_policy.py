"""The policy frugal: it maximises the utility of the updates per second of a round."""

from enum import StrEnum

import numpy as np

from orchestrator.selection.round_choice import best_round, fair_weight, known_utility
from orchestrator.selection.round_clock import Array, work_cost
from orchestrator.selection.round_fleet import Picks
from orchestrator.selection.round_state import RoundRequest, RoundState, Selection, empty_selection


class FrugalTerm(StrEnum):
    """What the policy takes into account; the contest runs it without each of them."""

    UTILITY = "utility"
    FAIRNESS = "fairness"
    TIME = "time"
    MARGIN = "margin"
    DEADLINE = "deadline"


class FrugalPolicy:
    """Chooses the length of a round together with its phones.

    A phone is worth the utility of its last update, and more the less often it was chosen. A round
    lasts as long as its slowest phone. So for every length the k most valuable phones that end in
    time are added up, and the length with the highest value per second is taken. Slow phones gain
    value until a long round is worthwhile; then many of them take part in it together.

    The time is that of a cool phone, at the upper end of its interval until the phone has taken
    part. The round ends a little after the expected end of its slowest phone, so
    that a lost update does not delay it; therefore no more phones are asked than are needed.

    Left out, because each was worth less than 3 % in the contest or cost time: the estimated heat
    of a phone, its last duration as a correction of its time, energy, and a battery guard.
    """

    over_selection = 1.0
    SLACK = 1.15  # times the expected length of a round, until the server stops waiting

    def __init__(self, without: FrugalTerm | None = None) -> None:
        self._without = without

    def choose(
        self, state: RoundState, request: RoundRequest, rng: np.random.Generator
    ) -> Selection:
        """Take the phones of the length with the highest value per second."""
        eligible = state.eligible
        ends = self._ends_s(state)[eligible]
        in_time = ends <= (request.deadline_s or np.inf)
        eligible, ends = eligible[in_time], ends[in_time]
        if not len(eligible):
            return empty_selection()
        # A random factor of up to a tenth breaks ties, and varies the phones of a round.
        value = self._value(state, eligible) * rng.uniform(0.9, 1.0, len(eligible))
        shortest = len(ends) if self._without is FrugalTerm.TIME else None
        order = best_round(value, ends, request.k, shortest)
        return Selection(
            eligible[order],
            tuple(_reason(state, int(eligible[i]), float(ends[i])) for i in order),
            deadline_s=None
            if self._without is FrugalTerm.DEADLINE
            else float(ends[order].max()) * self.SLACK,
        )

    def _ends_s(self, state: RoundState) -> Array:
        """Return when the update of each phone is expected at the latest."""
        seconds = work_cost(state.fleet, state.samples).seconds
        if self._without is not FrugalTerm.MARGIN:
            seconds = seconds * (1 + state.uncertainty)
        return seconds + state.link_s

    def _value(self, state: RoundState, eligible: Picks) -> Array:
        value = np.ones(len(eligible))
        if self._without is not FrugalTerm.UTILITY:
            value = known_utility(state.utility[eligible])
        if self._without is not FrugalTerm.FAIRNESS:
            value = value * fair_weight(state.times_chosen[eligible])
        return value


def _reason(state: RoundState, index: int, end_s: float) -> str:
    """Return the factors of the choice of one phone, as text."""
    factors = [f"takes at most {end_s:.3g} s"]
    if state.heat[index] > 0.1:
        factors.append(f"{state.heat[index]:.0%} hot")
    if state.times_chosen[index]:
        factors.append(f"chosen {state.times_chosen[index]:.0f} times")
    return ", ".join(factors)
