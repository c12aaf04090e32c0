"""Decides when a trial has enough runs: its median is known precisely enough. Pure.

The same values always give the same decision: each look of the grid uses only the first runs, so a
report that arrives late or twice changes nothing.

The interval is the one that tables and reports show. A trial whose runs drift does not stop because
it is narrow: its median depends on when the runs were made.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from orchestrator.decisions.median_interval import Instability, median_interval
from orchestrator.sweepfile.policy import StopRule


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
    unclear: Instability | None = None

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
        reason = f", unclear: {self.unclear.text}" if self.unclear else ""
        return f"{self.median:.4g} ± {self.half_width_rel:.1%} after {self.n} runs{reason}"


def decide_stop(values: Sequence[float], rule: StopRule) -> StopDecision:
    """Judge a trial by its values, one per accepted run, in the order of its repeats."""
    latest = StopDecision(None, 0)
    for look in rule.grid:
        if look > len(values):
            return latest
        found = median_interval(values[:look], rule.confidence)
        latest = StopDecision(None, look, found.low, found.middle, found.high, found.unclear)
        is_narrow = latest.half_width_rel <= rule.half_width_rel
        if is_narrow and found.unclear is not Instability.DRIFT:
            return replace(latest, cause=StopCause.WIDTH)
    return replace(latest, cause=StopCause.N_MAX)
