"""Estimates when a sweep will be finished, from the remaining runs and past run times. Pure.

Phones work in parallel, so the last one to finish decides. Until a run has ended there is no
estimate.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pvariance

DEVIATIONS_TO_P90 = 1.2816  # of a normal distribution
MEAN_ERROR_MIN = 0.05  # relative error of a mean, however many runs it is based on


@dataclass(frozen=True)
class RemainingTime:
    """Seconds until the end: the expected time, and its 80 % interval."""

    likely_s: float
    early_s: float
    late_s: float
    phone: str  # expected to finish last
    finished: int  # ended attempts that the estimate is based on
    untimed: int = 0  # remaining runs of a kind of which none has ended yet


def estimate_remaining(
    left: Mapping[str, Mapping[str, int]],
    durations: Mapping[str, Sequence[float]],
    attempts_per_run: float = 1.0,
) -> RemainingTime | None:
    """Estimate the remaining time from the runs left by phone and kind, and past seconds by kind.

    A kind of which no run has ended yet is assumed to take the mean of all others, and is counted
    as untimed. `attempts_per_run` is the mean number of attempts that a run has needed so far.
    """
    all_durations = [seconds for group in durations.values() for seconds in group]
    if not all_durations:
        return None
    ends = [
        (*_phone_end(kinds, durations, all_durations, attempts_per_run), phone)
        for phone, kinds in left.items()
        if any(kinds.values())
    ]
    if not ends:
        return RemainingTime(0.0, 0.0, 0.0, "", len(all_durations))
    likely, _, phone = max(ends)
    late = max(mean + DEVIATIONS_TO_P90 * deviation for mean, deviation, _ in ends)
    early = max(max(0.0, mean - DEVIATIONS_TO_P90 * deviation) for mean, deviation, _ in ends)
    untimed = sum(
        runs for kinds in left.values() for kind, runs in kinds.items() if not durations.get(kind)
    )
    early, late = min(early, likely), max(late, likely)
    return RemainingTime(likely, early, late, phone, len(all_durations), untimed)


def _phone_end(
    kinds: Mapping[str, int],
    durations: Mapping[str, Sequence[float]],
    all_durations: Sequence[float],
    attempts_per_run: float,
) -> tuple[float, float]:
    """Return mean and standard deviation of the time that a phone needs for its remaining runs."""
    total, variance = 0.0, 0.0
    for kind, runs in kinds.items():
        past = durations.get(kind) or all_durations
        mean, count = fmean(past), runs * attempts_per_run
        total += count * mean
        # Random variation averages out over many runs; an error of the mean does not.
        mean_variance = max(pvariance(past) / len(past), (MEAN_ERROR_MIN * mean) ** 2)
        variance += count * pvariance(past) + count**2 * mean_variance
    return total, math.sqrt(variance)
