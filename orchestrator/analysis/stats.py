"""The few statistics behind every comparison.

The unit is the run, never the sample: steps inside one run share its heat and its luck, so a
thousand of them say no more about the next run than one does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

LEVEL = 0.95
RESAMPLES = 2000
RUNS_FOR_AN_INTERVAL = 3


class IntervalKind(StrEnum):
    """What the two ends of an interval are."""

    RANGE = "range"
    BOOTSTRAP = "bootstrap"


@dataclass(frozen=True)
class Interval:
    """Where the median may lie; with fewer than three runs only where the runs lay."""

    low: float
    high: float
    n: int
    kind: IntervalKind

    def widened(self, error_rel: float) -> "Interval":
        """Add a model's relative error on both sides."""
        low = self.low - error_rel * abs(self.low)
        high = self.high + error_rel * abs(self.high)
        return Interval(low, high, self.n, self.kind)

    def overlaps(self, other: "Interval") -> bool:
        """Whether some value lies in both."""
        return self.low <= other.high and other.low <= self.high


def median(values: Sequence[float]) -> float:
    """The middle value."""
    return float(np.median(values))


def median_interval(values: Sequence[float], seed: int = 0) -> Interval:
    """Bootstrap the median over runs: resample them, and keep the middle 95 % of the medians."""
    n = len(values)
    if n < RUNS_FOR_AN_INTERVAL:
        return Interval(min(values), max(values), n, IntervalKind.RANGE)
    picks = np.random.default_rng(seed).integers(0, n, size=(RESAMPLES, n))
    medians = np.median(np.asarray(values, dtype=float)[picks], axis=1)
    low, high = np.quantile(medians, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high), n, IntervalKind.BOOTSTRAP)


def geometric_mean(values: Sequence[float]) -> float:
    """The mean for ratios and for times of unlike cases: no case outweighs another by its size."""
    if not values or min(values) <= 0:
        raise ValueError("a geometric mean needs values, all above zero")
    return math.exp(math.fsum(map(math.log, values)) / len(values))
