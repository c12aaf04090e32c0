"""When a trial is known well enough: a pure decision from its figures.

The same figures always give the same decision, whoever asks and how often: each look of the grid
is taken on the first runs alone, so a report that comes late or twice changes nothing.

The interval is the one between order statistics, which asks nothing of the shape of the noise but
that one run tells nothing of the next; between two order statistics it is interpolated after
Hettmansperger and Sheather (1986). Who looks several times and stops when he likes what he sees is
wrong more often than he says: every look is therefore taken at a higher confidence than is asked.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from orchestrator.plan.policy import StopRule

# The share of the allowed error that a look may spend, found by simulation: tests/plan shows that
# the interval at which a trial stops then holds the median as often as was asked. Who stops at the
# first or the last look has hardly chosen the moment; who stops in between has.
SPENT_AT_ENDS, SPENT_BETWEEN = 0.85, 0.6


class Stop(StrEnum):
    """Which rule ended the repeats of a trial."""

    WIDTH = "width"  # the interval is narrow enough
    N_MAX = "n_max"  # it had as many runs as it may have
    BUDGET = "budget"  # the sweep has used up what it may use


@dataclass(frozen=True)
class Decision:
    """Whether a trial goes on, and what is known of its median so far."""

    stop: Stop | None  # None: go on
    n: int  # runs that the interval was made of
    low: float = -math.inf
    median: float = math.nan
    high: float = math.inf
    next_look: int | None = None  # at how many runs it is looked again

    @property
    def half_width_rel(self) -> float:
        """Half the interval's width, as a share of the median."""
        half = (self.high - self.low) / 2
        return half / abs(self.median) if self.median else math.inf

    @property
    def why(self) -> str:
        """What is known, in words."""
        if not math.isfinite(self.half_width_rel):
            return f"{self.n} runs tell no interval yet"
        return f"{self.median:.4g} ± {self.half_width_rel:.1%} after {self.n} runs"


def decide(values: Sequence[float], rule: StopRule) -> Decision:
    """Look at a trial's figures, one of each accepted run, in the order of its repeats."""
    seen = Decision(None, 0, next_look=rule.grid[0])
    for index, look in enumerate(rule.grid):
        if look > len(values):
            return seen
        at_end = index in {0, len(rule.grid) - 1}
        low, median, high = interval(values[:look], look_confidence(rule.confidence, at_end))
        following = rule.grid[index + 1] if index + 1 < len(rule.grid) else None
        seen = Decision(None, look, low, median, high, following)
        if seen.half_width_rel <= rule.half_width_rel:
            return Decision(Stop.WIDTH, look, low, median, high)
    return Decision(Stop.N_MAX, seen.n, seen.low, seen.median, seen.high)


def look_confidence(confidence: float, at_end: bool) -> float:
    """At which confidence a single look is taken so that all together keep what was asked."""
    return 1 - (SPENT_AT_ENDS if at_end else SPENT_BETWEEN) * (1 - confidence)


def runs_needed(confidence: float) -> int:
    """Fewer runs than this give no interval at all: even their whole range is not sure enough."""
    return 1 + math.ceil(-math.log2(1 - look_confidence(confidence, at_end=True)))


def interval(values: Sequence[float], confidence: float) -> tuple[float, float, float]:
    """The median and its interval: low, median, high; without bounds if the runs are too few."""
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
    """How deep in the sorted runs the interval begins, and how far to go towards the next one.

    Depth 0 stands for a confidence that so few runs cannot give.
    """
    held = 1.0  # confidence of the interval between the order statistics of this depth
    for depth in range(1, n // 2 + 1):
        outer, held = held, held - 2 * math.comb(n, depth - 1) / 2**n
        if held < confidence:
            break
    else:
        depth, outer, held = n // 2 + 1, held, 0.0
    if depth == 1:
        return 0, 0.0
    depth -= 1  # the last that was sure enough
    share = (outer - confidence) / (outer - held)
    return depth, (n - depth) * share / (depth + (n - 2 * depth) * share)
