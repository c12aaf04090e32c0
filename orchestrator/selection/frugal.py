"""Ours: useful data, quick even when hot and even if mismeasured, sparing energy and turns."""

import numpy as np

from orchestrator.selection.fleet import Array, Picks
from orchestrator.selection.situation import BATTERY_FLOOR, Choice, Situation, Want, nobody


class Frugal:
    """A product of what speaks for a phone.

    Time is that of the phone as hot as it is now, at the upper end of its interval, so that a
    phone that was measured badly is not favoured; once it has been asked, what it took corrects
    that. Energy is held against the fleet's median; a battery near its floor and a phone that has
    served more than its share count less; whoever would probably miss the deadline hardly counts.
    """

    TIME, ENERGY, FAIR = 1.0, 0.25, 2.0

    def choose(self, now: Situation, want: Want, rng: np.random.Generator) -> Choice:
        """Score everybody who can and take the best."""
        able = now.eligible
        if want.deadline_s is not None:
            able = able[now.expected_s[able] + want.link_s <= want.deadline_s]
        if not len(able):
            return nobody()
        score, parts = self._score(now, want, able)
        # A tenth of chance breaks ties, and keeps a round from always being the same phones.
        order = np.argsort(-score * rng.uniform(0.9, 1.0, len(able)), kind="stable")[: want.k]
        return Choice(able[order], tuple(_because(parts, int(index)) for index in order))

    def _score(self, now: Situation, want: Want, able: Picks) -> tuple[Array, dict[str, Array]]:
        expected_s, doubt = now.expected_s[able], now.doubt[able]
        upper_s = expected_s * (1 + doubt)
        energy_j = (now.fleet.energy_j * now.samples)[able]
        typical_s = float(np.median(upper_s))
        typical_j = float(np.nanmedian(energy_j)) if not np.isnan(energy_j).all() else np.nan
        dear = np.nan_to_num(energy_j / typical_j, nan=1.0) if typical_j else np.ones(len(able))
        served = now.chosen[able]
        fair = 1 / (1 + served / max(1.0, float(served.mean())))
        guard = np.clip((now.charge[able] - BATTERY_FLOOR) / 0.3, 0.05, 1.0)
        score = (
            _useful(now.utility[able])
            * (typical_s / np.maximum(upper_s, 1e-9)) ** self.TIME
            * (1 / np.maximum(dear, 1e-9)) ** self.ENERGY
            * fair**self.FAIR
            * guard
            * _in_time(expected_s + want.link_s, doubt, want.deadline_s)
        )
        return np.asarray(score), {
            "seconds": upper_s,
            "heat": now.heat[able],
            "dear": dear,
            "served": served,
            "charge": now.charge[able],
        }


def _useful(utility: Array) -> Array:
    """Who was never heard from is taken for as useful as the better ones that were."""
    known = utility[~np.isnan(utility)]
    return np.where(np.isnan(utility), np.quantile(known, 0.75) if len(known) else 1.0, utility)


def _in_time(expected_s: Array, doubt: Array, deadline_s: float | None) -> Array:
    """The chance that an update comes before the deadline."""
    if deadline_s is None:
        return np.ones(len(expected_s))
    from scipy.special import ndtr

    ahead = np.log(deadline_s / np.maximum(expected_s, 1e-9))
    return np.asarray(ndtr(ahead / np.maximum(doubt / 2, 1e-3)))


def _because(parts: dict[str, Array], index: int) -> str:
    """What counted for one phone."""
    said = [f"at most {parts['seconds'][index]:.3g} s"]
    if parts["heat"][index] > 0.1:
        said.append(f"{parts['heat'][index]:.0%} hot")
    if abs(parts["dear"][index] - 1) > 0.1:
        said.append(f"{parts['dear'][index]:.2g}x the usual energy")
    if parts["charge"][index] < 0.5:
        said.append(f"battery at {parts['charge'][index]:.0%}")
    if parts["served"][index]:
        said.append(f"served {parts['served'][index]:.0f} times")
    return ", ".join(said)
