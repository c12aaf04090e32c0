"""Frugal, our policy: useful data, fast even when hot, little energy, and fair turns."""

import numpy as np

from orchestrator.selection.round_fleet import Array, Picks
from orchestrator.selection.round_state import (
    BATTERY_FLOOR,
    RoundRequest,
    RoundState,
    Selection,
    empty_selection,
)


class FrugalPolicy:
    """Scores each phone with a product of factors.

    Time is that of the phone at its present heat, at the upper end of its interval, so that a
    phone with an uncertain time is not favoured; once the phone has taken part, its actual duration
    corrects the estimate. Energy is relative to the fleet's median. A battery near its floor, and a
    phone that has been chosen more often than its share, lower the score; so does a low chance of
    meeting the deadline.
    """

    TIME, ENERGY, FAIR = 1.0, 0.25, 2.0  # exponents

    def choose(
        self, state: RoundState, request: RoundRequest, rng: np.random.Generator
    ) -> Selection:
        """Take the k eligible phones with the highest scores."""
        eligible = state.eligible
        if request.deadline_s is not None:
            ends = state.expected_s[eligible] + request.link_s
            eligible = eligible[ends <= request.deadline_s]
        if not len(eligible):
            return empty_selection()
        score, parts = self._score(state, request, eligible)
        # A random factor of up to a tenth breaks ties, and varies the phones of a round.
        noisy = score * rng.uniform(0.9, 1.0, len(eligible))
        order = np.argsort(-noisy, kind="stable")[: request.k]
        return Selection(eligible[order], tuple(_reason(parts, int(index)) for index in order))

    def _score(
        self, state: RoundState, request: RoundRequest, eligible: Picks
    ) -> tuple[Array, dict[str, Array]]:
        expected_s, uncertainty = state.expected_s[eligible], state.uncertainty[eligible]
        upper_s = expected_s * (1 + uncertainty)
        energy_j = (state.fleet.energy_j * state.samples)[eligible]
        typical_s = float(np.median(upper_s))
        typical_j = float(np.nanmedian(energy_j)) if not np.isnan(energy_j).all() else np.nan
        relative_energy = (
            np.nan_to_num(energy_j / typical_j, nan=1.0) if typical_j else np.ones(len(eligible))
        )
        times_chosen = state.times_chosen[eligible]
        fairness = 1 / (1 + times_chosen / max(1.0, float(times_chosen.mean())))
        battery = np.clip((state.charge[eligible] - BATTERY_FLOOR) / 0.3, 0.05, 1.0)
        score = (
            _utility(state.utility[eligible])
            * (typical_s / np.maximum(upper_s, 1e-9)) ** self.TIME
            * (1 / np.maximum(relative_energy, 1e-9)) ** self.ENERGY
            * fairness**self.FAIR
            * battery
            * _chance_in_time(expected_s + request.link_s, uncertainty, request.deadline_s)
        )
        return np.asarray(score), {
            "seconds": upper_s,
            "heat": state.heat[eligible],
            "relative_energy": relative_energy,
            "times_chosen": times_chosen,
            "charge": state.charge[eligible],
        }


def _utility(utility: Array) -> Array:
    """Fill in unknown utilities with the upper quartile of the known ones."""
    known = utility[~np.isnan(utility)]
    return np.where(np.isnan(utility), np.quantile(known, 0.75) if len(known) else 1.0, utility)


def _chance_in_time(expected_s: Array, uncertainty: Array, deadline_s: float | None) -> Array:
    """Return the probability that an update arrives before the deadline."""
    if deadline_s is None:
        return np.ones(len(expected_s))
    from scipy.special import ndtr

    ahead = np.log(deadline_s / np.maximum(expected_s, 1e-9))
    return np.asarray(ndtr(ahead / np.maximum(uncertainty / 2, 1e-3)))


def _reason(parts: dict[str, Array], index: int) -> str:
    """List the factors that mattered for one phone."""
    factors = [f"at most {parts['seconds'][index]:.3g} s"]
    if parts["heat"][index] > 0.1:
        factors.append(f"{parts['heat'][index]:.0%} hot")
    if abs(parts["relative_energy"][index] - 1) > 0.1:
        factors.append(f"{parts['relative_energy'][index]:.2g}x the median energy")
    if parts["charge"][index] < 0.5:
        factors.append(f"battery at {parts['charge'][index]:.0%}")
    if parts["times_chosen"][index]:
        factors.append(f"chosen {parts['times_chosen'][index]:.0f} times")
    return ", ".join(factors)
