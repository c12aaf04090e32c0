"""The interval of a median over runs: one for stopping, tables, reports and comparisons. Pure.

It lies between order statistics, which assumes nothing about the shape of the noise; between two of
them it is interpolated after Hettmansperger and Sheather (1986), and where so few runs cannot reach
the confidence, it extends beyond them. Correlated runs contain less information than independent
ones, so their interval is wider. Where a median is not meaningful (the runs drift, or have two
modes), the interval spans all runs and names the reason. Runs are given in the order of time.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from statistics import NormalDist

from workloads.text import TextEnum

LEVEL = 0.95
INTERVAL_RUNS_MIN = 4
# The error of the order statistics alone, relative to the requested one: with few runs, widening
# for dependence brings it back; with many, it makes up for the repeated looks of `repeat: until`.
# Found by simulation, like the figures below (benchmarks/coverage.py, benchmarks/stopping.py).
ERROR_OF_FEW_RUNS, ERROR_OF_MANY_RUNS, FEW_RUNS = 2.55, 0.85, 7
# At this serial score. Below that of independent runs: few runs that resemble each other a little
# are often all on one side of the truth.
WIDENING_STARTS = -1.5
# How far an interval extends beyond its runs, relative to what uniform noise needs.
OUTWARD = 0.52
SERIAL_LIMIT = 1.1  # in standard deviations of the lag-1 correlation of independent runs
DRIFT_LIMIT = 2.0  # in standard deviations of Spearman's correlation with time
MODES_LIMIT = 50.0  # gap between modes times runs, in standard deviations within the modes
MODES_RUNS_MIN = 6
SYMMETRIC_MAX = 0.1  # relative half-width; wider intervals on a logarithmic scale show both ends
EXACT_RUNS_MAX = 200  # the binomial distribution of more runs is nearly normal


class Instability(TextEnum):
    """Why a median over runs is less reliable than its interval suggests."""

    SERIAL_CORRELATION = "serial_correlation", "runs depend on each other"
    DRIFT = "drift", "runs drift"
    TWO_MODES = "two_modes", "two modes"


class IntervalKind(StrEnum):
    """What the two ends of an interval are."""

    RANGE = "range"  # of fewer than four runs
    CONFIDENCE = "confidence"
    UNKNOWN = "error unknown"  # of simulated runs: how they scatter says nothing about a phone


@dataclass(frozen=True)
class Interval:
    """The interval of a median; with fewer than four runs, the range of those runs."""

    low: float
    middle: float
    high: float
    n: int
    kind: IntervalKind
    unclear: Instability | None = None

    @property
    def half_width_rel(self) -> float:
        """Half the interval's width, relative to the median."""
        half = (self.high - self.low) / 2
        return half / abs(self.middle) if self.middle else math.inf

    @property
    def known_ends(self) -> tuple[float, float] | None:
        """Both ends, for all who show them; None if they say nothing about the value's error."""
        return None if self.kind is IntervalKind.UNKNOWN else (self.low, self.high)

    @property
    def is_symmetric(self) -> bool:
        """Whether ± says enough about both ends."""
        return self.half_width_rel <= SYMMETRIC_MAX

    def widen(self, half: float, is_share: bool = False) -> "Interval":
        """Add an independent error, given as half of an interval on the value's scale."""
        low, high = (
            self._beyond(end, math.copysign(half, end - self.middle or side), is_share)
            for end, side in ((self.low, -1.0), (self.high, 1.0))
        )
        return replace(self, low=low, high=high)

    def _beyond(self, end: float, by: float, is_share: bool) -> float:
        if is_share and 0 <= self.middle <= 1:
            end = min(max(end, 0.0), 1.0)
        distance = scale_distance(self.middle, end, is_share)
        if not by or not math.isfinite(distance):
            return end
        outward = math.copysign(math.hypot(distance, by), by if self.middle > 0 else -by)
        return shift_on_scale(self.middle, outward, is_share)

    def differs_from(self, other: "Interval") -> bool:
        """Return whether two medians differ by more than both intervals allow together.

        The intervals are combined after Zou and Donner (2008): the distances from each median to
        the end that faces the other are added like independent errors.
        """
        lower, upper = sorted((self, other), key=lambda interval: interval.middle)
        allowed = math.hypot(lower.high - lower.middle, upper.middle - upper.low)
        return upper.middle - lower.middle > allowed


def shift_on_scale(value: float, by: float, is_share: bool = False) -> float:
    """Move a value on the scale of its errors: logarithmic, or logit if it is a share."""
    if not is_share or not 0 < value < 1:
        moved = value * math.exp(by)
        return min(moved, 1.0) if is_share and value == 1 else moved
    return 1 / (1 + math.exp(-by) * (1 - value) / value)


def scale_distance(value: float, end: float, is_share: bool = False) -> float:
    """Return how far an end is from a value on that scale; infinite if it is beyond the scale."""
    if value * end <= 0:
        return math.inf
    ratio = end / value
    if is_share and 0 < value < 1:
        ratio = ratio * (1 - value) / (1 - end) if end < 1 else math.inf
    return abs(math.log(ratio)) if math.isfinite(ratio) else math.inf


def median(values: Sequence[float]) -> float:
    """Return the median; for the few runs of a cell, sorting is the fastest algorithm."""
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def median_interval(values: Sequence[float], confidence: float = LEVEL) -> Interval:
    """Return the interval of the median over runs."""
    n, middle, first, last = len(values), median(values), min(values), max(values)
    if n < INTERVAL_RUNS_MIN:
        return Interval(first, middle, last, n, IntervalKind.RANGE)
    unclear = find_instability(values)
    if unclear in (Instability.DRIFT, Instability.TWO_MODES):
        low, high = _order_statistic_ends(values, confidence)
        low, high = min(low, first), max(high, last)
    else:
        factor = dependence_factor(values, starts=WIDENING_STARTS)
        low, high = (
            middle + factor * (end - middle) for end in _order_statistic_ends(values, confidence)
        )
    return Interval(low, middle, high, n, IntervalKind.CONFIDENCE, unclear)


def find_instability(values: Sequence[float]) -> Instability | None:
    """Return what is wrong with runs, given in the order of time; the most severe first."""
    if len(values) < INTERVAL_RUNS_MIN or min(values) == max(values):
        return None
    if abs(_trend_score(values)) > DRIFT_LIMIT:
        return Instability.DRIFT
    if _has_two_modes(values):
        return Instability.TWO_MODES
    if _serial_score(values) > SERIAL_LIMIT:
        return Instability.SERIAL_CORRELATION
    return None


def dependence_factor(*series: Sequence[float], starts: float = 0.0) -> float:
    """Return how much wider an interval must be, because each run resembles the one before it.

    The fewer the runs, the less their correlation disproves, so the more of it is taken for real.
    Several series are judged together.
    """
    known = [
        values
        for values in series
        if len(values) >= INTERVAL_RUNS_MIN and min(values) < max(values)
    ]
    if not known:
        return 1.0
    score = sum(map(_serial_score, known)) / len(known)
    runs = sum(map(len, known)) / len(known)
    strength = min(4.8 / runs, 42 / runs**2) if starts < 0 else min(0.6, 4.5 / runs)
    return 1 + strength * min(max(score - starts, 0.0), 2.0)


def _serial_score(values: Sequence[float]) -> float:
    """Return the lag-1 correlation in its standard deviations, if runs were independent (Moran)."""
    n = len(values)
    mean = math.fsum(values) / n
    off = [value - mean for value in values]
    correlation = sum(map(float.__mul__, off[:-1], off[1:])) / sum(item * item for item in off)
    return (correlation + 1 / n) * n * math.sqrt(n - 1) / (n - 2)


def _trend_score(values: Sequence[float]) -> float:
    """Return Spearman's correlation of the values with time, in its standard deviations."""
    n, middle = len(values), (len(values) - 1) / 2
    total = 0.0
    start = 0
    order = sorted(range(n), key=values.__getitem__)
    while start < n:  # equal values share their mean rank
        end = start + 1
        while end < n and values[order[end]] == values[order[start]]:
            end += 1
        rank = (start + end - 1) / 2 - middle
        total += rank * sum(index - middle for index in order[start:end])
        start = end
    return total * 12 / (n * (n * n - 1)) * math.sqrt(n - 1)


def _has_two_modes(values: Sequence[float]) -> bool:
    """Return whether a wide gap divides the runs, with several runs on both sides."""
    ordered, n = sorted(values), len(values)
    if n < MODES_RUNS_MIN:
        return False
    side = max(2, n // 5)
    cut = max(range(side, n - side + 1), key=lambda index: ordered[index] - ordered[index - 1])
    within = _squares(ordered[:cut]) + _squares(ordered[cut:])
    gap = ordered[cut] - ordered[cut - 1]
    return gap > MODES_LIMIT / n * math.sqrt(within / (n - 2))


def _squares(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values)


def error_before_widening(n: int) -> float:
    """Return the error of the order statistics alone, relative to the requested one."""
    if n < INTERVAL_RUNS_MIN:  # too few to be widened
        return 1.0
    few = min(1.0, FEW_RUNS / n)
    return ERROR_OF_FEW_RUNS * few + ERROR_OF_MANY_RUNS * (1 - few)


def _order_statistic_ends(values: Sequence[float], confidence: float) -> tuple[float, float]:
    ordered, n = sorted(values), len(values)
    depth, share = _depth(n, 1 - error_before_widening(n) * (1 - confidence))
    if depth == 0:  # `share` of the range is added on both sides
        extent = share * (ordered[-1] - ordered[0])
        return ordered[0] - extent, ordered[-1] + extent
    low = (1 - share) * ordered[depth - 1] + share * ordered[depth]
    high = (1 - share) * ordered[n - depth] + share * ordered[n - depth - 1]
    return low, high


@lru_cache(maxsize=1024)
def _depth(n: int, confidence: float) -> tuple[int, float]:
    """Return the rank at which the interval begins, and the fraction towards the next rank.

    Depth 0 means that the range of n runs covers too rarely: the fraction of it that is missing.
    """
    if n > EXACT_RUNS_MAX:
        rank = (n - NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(n)) / 2
        return int(rank), rank - int(rank)
    covered = 1.0  # confidence of the interval between the order statistics of this depth
    for depth in range(1, n // 2 + 1):
        outer, covered = covered, covered - 2 * math.comb(n, depth - 1) / 2**n
        if covered < confidence:
            break
    else:
        depth, outer, covered = n // 2 + 1, covered, 0.0
    if depth == 1:
        return 0, OUTWARD * (((1 - confidence) * 2 ** (n - 1)) ** (-1 / (n - 1)) - 1)
    depth -= 1  # the last that reaches the confidence
    share = (outer - confidence) / (outer - covered)
    return depth, (n - depth) * share / (depth + (n - 2 * depth) * share)
