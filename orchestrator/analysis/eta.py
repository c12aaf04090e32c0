"""When a sweep will be finished: from what is left to do and how long the like has taken. Pure.

Phones work side by side, so the last one to finish decides. Nothing is guessed from nothing: until
a run has ended there is no answer.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pvariance

TENTH = 1.2816  # nine of ten normal values lie below this many deviations
DOUBT_MIN = 0.05  # of a mean, however often it was seen


@dataclass(frozen=True)
class Remaining:
    """Seconds until the end: likely, and the interval that eight of ten ends fall into."""

    likely_s: float
    early_s: float
    late_s: float
    phone: str  # who is last
    seen: int  # from how many ended attempts this is known
    unseen: int = 0  # runs left of a kind of which none has ended yet


def remaining(
    left: Mapping[str, Mapping[str, int]],
    taken: Mapping[str, Sequence[float]],
    tries_per_run: float = 1.0,
) -> Remaining | None:
    """When all is done: runs left by phone and kind, seconds taken by kind.

    A kind of which none has ended yet takes as long as the others on average, and is counted as
    unseen. `tries_per_run` is how many attempts a run has needed so far.
    """
    everything = [seconds for each in taken.values() for seconds in each]
    if not everything:
        return None
    ends = [
        (*_end(kinds, taken, everything, tries_per_run), phone)
        for phone, kinds in left.items()
        if any(kinds.values())
    ]
    if not ends:
        return Remaining(0.0, 0.0, 0.0, "", len(everything))
    likely, _, phone = max(ends)
    late = max(mean + TENTH * spread for mean, spread, _ in ends)
    early = max(max(0.0, mean - TENTH * spread) for mean, spread, _ in ends)
    unseen = sum(
        runs for kinds in left.values() for kind, runs in kinds.items() if not taken.get(kind)
    )
    early, late = min(early, likely), max(late, likely)
    return Remaining(likely, early, late, phone, len(everything), unseen)


def _end(
    kinds: Mapping[str, int],
    taken: Mapping[str, Sequence[float]],
    everything: Sequence[float],
    tries: float,
) -> tuple[float, float]:
    """Mean and deviation of the time that one phone needs for all that it has left."""
    total, variance = 0.0, 0.0
    for kind, runs in kinds.items():
        seen = taken.get(kind) or everything
        mean, count = fmean(seen), runs * tries
        total += count * mean
        # Chance evens out over many runs; that the mean itself is off does not.
        of_mean = max(pvariance(seen) / len(seen), (DOUBT_MIN * mean) ** 2)
        variance += count * pvariance(seen) + count**2 * of_mean
    return total, math.sqrt(variance)
