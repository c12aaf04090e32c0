"""Basic statistics behind every comparison: medians, their intervals, and corrections.

The statistical unit is the run, never the sample: steps inside one run share its temperature and
its disturbances, so a thousand of them predict the next run no better than one does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

LEVEL = 0.95
INTERVAL_RUNS_MIN = 3


class IntervalKind(StrEnum):
    """How the two ends of an interval were obtained."""

    RANGE = "range"
    BOOTSTRAP = "bootstrap"


@dataclass(frozen=True)
class Interval:
    """The interval of a median; with fewer than three runs, the range of those runs."""

    low: float
    high: float
    n: int
    kind: IntervalKind

    def widen(self, error_rel: float) -> "Interval":
        """Add a model's relative error on both sides."""
        low = self.low - error_rel * abs(self.low)
        high = self.high + error_rel * abs(self.high)
        return Interval(low, high, self.n, self.kind)

    def overlaps(self, other: "Interval") -> bool:
        """Return whether some value lies in both."""
        return self.low <= other.high and other.low <= self.high


def median(values: Sequence[float]) -> float:
    """Return the median; for the few runs of a cell, sorting is the fastest algorithm."""
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def median_interval(values: Sequence[float], seed: int = 0) -> Interval:
    """Return the 95 % interval of the median over runs, by bootstrap over the runs."""
    from orchestrator.analysis.bootstrap import half_width_of_median

    n = len(values)
    if n < INTERVAL_RUNS_MIN:
        return Interval(min(values), max(values), n, IntervalKind.RANGE)
    middle, half = median(values), half_width_of_median(values, 1 - LEVEL, seed)
    return Interval(middle - half, middle + half, n, IntervalKind.BOOTSTRAP)


def holm_correction(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for multiple comparisons (Holm's step-down procedure)."""
    corrected = [1.0] * len(p_values)
    lower_bound = 0.0
    for rank, index in enumerate(np.argsort(p_values, kind="stable")):
        lower_bound = max(lower_bound, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = lower_bound
    return corrected


def geometric_mean(values: Sequence[float]) -> float:
    """Average ratios, or times of different cases, so that no case outweighs another by size."""
    if not values or min(values) <= 0:
        raise ValueError("a geometric mean needs values, all above zero")
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def kendall_tau(one: Sequence[float], other: Sequence[float]) -> float:
    """Measure how well two rankings agree: 1 is the same order, -1 the opposite order."""
    from scipy.stats import kendalltau

    return float(kendalltau(one, other).statistic)
