"""Decides when a trial has enough runs: its median is known precisely enough. Pure.

The same values always give the same decision: each look of the grid uses only the first runs, so a
report that arrives late or twice changes nothing.

The interval lies between order statistics, which assumes nothing about the shape of the noise
except that runs are independent; between two order statistics it is interpolated after
Hettmansperger and Sheather (1986). Repeated looks inflate the error rate, so each look uses a
stricter level than the requested one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from orchestrator.sweepfile.policy import StopRule, look_confidence


class StopCause(StrEnum):
    """Which rule ended the repeats of a trial."""

    WIDTH = "width"  # the interval is narrow enough
    N_MAX = "n_max"  # the maximum number of runs is reached
    BUDGET = "budget"  # the sweep has exceeded its budget


@dataclass(frozen=True)
class StopDecision:
    """Whether a trial stops, and the interval of its median so far."""

    cause: StopCause | None  # None: continue
    n: int  # runs that the interval is based on
    low: float = -math.inf
    median: float = math.nan
    high: float = math.inf
    next_look: int | None = None  # number of runs at the next look

    @property
    def half_width_rel(self) -> float:
        """Half the interval's width, relative to the median."""
        half = (self.high - self.low) / 2
        return half / abs(self.median) if self.median else math.inf

    @property
    def text(self) -> str:
        """The median with its interval, as text."""
        if not math.isfinite(self.half_width_rel):
            return f"no interval yet after {self.n} runs"
        return f"{self.median:.4g} ± {self.half_width_rel:.1%} after {self.n} runs"


def decide_stop(values: Sequence[float], rule: StopRule) -> StopDecision:
    """Judge a trial by its values, one per accepted run, in the order of its repeats."""
    latest = StopDecision(None, 0, next_look=rule.grid[0])
    for index, look in enumerate(rule.grid):
        if look > len(values):
            return latest
        at_end = index in {0, len(rule.grid) - 1}
        confidence = look_confidence(rule.confidence, at_end)
        low, median, high = order_statistic_interval(values[:look], confidence)
        next_look = rule.grid[index + 1] if index + 1 < len(rule.grid) else None
        latest = StopDecision(None, look, low, median, high, next_look)
        if latest.half_width_rel <= rule.half_width_rel:
            return StopDecision(StopCause.WIDTH, look, low, median, high)
    return StopDecision(StopCause.N_MAX, latest.n, latest.low, latest.median, latest.high)


def order_statistic_interval(
    values: Sequence[float], confidence: float
) -> tuple[float, float, float]:
    """Return low, median and high; the ends are infinite if the runs are too few."""
    ordered = sorted(values)
    n = len(ordered)
    middle = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    depth, inward = _depth(n, confidence)
    if depth == 0:
        return -math.inf, middle, math.inf
    low = (1 - inward) * ordered[depth - 1] + inward * ordered[depth]
    high = (1 - inward) * ordered[n - depth] + inward * ordered[n - depth - 1]
    return low, middle, high


@lru_cache(maxsize=1024)
def _depth(n: int, confidence: float) -> tuple[int, float]:
    """Return the rank at which the interval begins, and the fraction towards the next rank.

    Depth 0 means that n runs cannot reach the confidence.
    """
    covered = 1.0  # confidence of the interval between the order statistics of this depth
    for depth in range(1, n // 2 + 1):
        outer, covered = covered, covered - 2 * math.comb(n, depth - 1) / 2**n
        if covered < confidence:
            break
    else:
        depth, outer, covered = n // 2 + 1, covered, 0.0
    if depth == 1:
        return 0, 0.0
    depth -= 1  # the last that reaches the confidence
    share = (outer - confidence) / (outer - covered)
    return depth, (n - depth) * share / (depth + (n - 2 * depth) * share)
