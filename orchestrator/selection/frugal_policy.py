"""The policy frugal: it maximises the utility of the updates per second of a round."""

import numpy as np

from orchestrator.selection.round_choice import best_round, fair_weight, known_utility
from orchestrator.selection.round_clock import Array, work_cost
from orchestrator.selection.round_state import RoundRequest, RoundState, Selection, empty_selection


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

    def choose(
        self, state: RoundState, request: RoundRequest, rng: np.random.Generator
    ) -> Selection:
        """Take the phones of the length with the highest value per second."""
        eligible = state.eligible
        ends = latest_ends_s(state)[eligible]
        in_time = ends <= (request.deadline_s or np.inf)
        eligible, ends = eligible[in_time], ends[in_time]
        if not len(eligible):
            return empty_selection()
        value = known_utility(state.utility[eligible]) * fair_weight(state.times_chosen[eligible])
        # A random factor of up to a tenth breaks ties, and varies the phones of a round.
        order = best_round(value * rng.uniform(0.9, 1.0, len(eligible)), ends, request.k)
        return Selection(
            eligible[order],
            tuple(_reason(state, int(eligible[i]), float(ends[i])) for i in order),
            deadline_s=float(ends[order].max()) * self.SLACK,
        )


def latest_ends_s(state: RoundState) -> Array:
    """Return when the update of each phone is expected at the latest."""
    seconds = work_cost(state.fleet, state.samples).seconds
    return seconds * (1 + state.uncertainty) + state.link_s


def _reason(state: RoundState, index: int, end_s: float) -> str:
    """Return the factors of the choice of one phone, as text."""
    factors = [f"takes at most {end_s:.3g} s"]
    if state.heat[index] > 0.1:
        factors.append(f"{state.heat[index]:.0%} hot")
    if state.times_chosen[index]:
        factors.append(f"chosen {state.times_chosen[index]:.0f} times")
    return ", ".join(factors)
