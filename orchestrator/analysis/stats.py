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
    """The middle value. Of the few runs of a cell, sorting them is the quickest way."""
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def median_interval(values: Sequence[float], seed: int = 0) -> Interval:
    """Where the median over runs lies in 95 of 100 cases, by resampling the runs."""
    from orchestrator.analysis.bootstrap import half_width_of_median

    n = len(values)
    if n < RUNS_FOR_AN_INTERVAL:
        return Interval(min(values), max(values), n, IntervalKind.RANGE)
    middle, half = median(values), half_width_of_median(values, 1 - LEVEL, seed)
    return Interval(middle - half, middle + half, n, IntervalKind.BOOTSTRAP)


def holm(p_values: Sequence[float]) -> list[float]:
    """Make p-values bear that there are many of them (Holm's step-down correction)."""
    corrected = [1.0] * len(p_values)
    least = 0.0
    for rank, index in enumerate(np.argsort(p_values, kind="stable")):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = least
    return corrected


def geometric_mean(values: Sequence[float]) -> float:
    """The mean for ratios and for times of unlike cases: no case outweighs another by its size."""
    if not values or min(values) <= 0:
        raise ValueError("a geometric mean needs values, all above zero")
    return math.exp(math.fsum(map(math.log, values)) / len(values))
