"""A median over a few runs, with an interval that includes the error of the model behind it."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.analysis.measurements import weakest_provenance
from orchestrator.analysis.stats import (
    INTERVAL_RUNS_MIN,
    LEVEL,
    Interval,
    IntervalKind,
    median,
    median_interval,
    widen_by_model,
)
from workloads.protocol.metrics import Metric, Provenance

# The error of a model without calibration data is unknown, and so is the spread of runs in a sweep
# with one run per cell; one half is assumed for both.
UNKNOWN_ERROR = 0.5


@dataclass(frozen=True)
class Estimate:
    """A median over runs, with its interval."""

    value: float
    low: float
    high: float
    n: int
    provenance: Provenance

    @property
    def uncertainty(self) -> float:
        """The upper end of the interval above the value, relative to the value."""
        return max(0.0, self.high / self.value - 1) if self.value else 0.0


@dataclass(frozen=True)
class PooledSpread:
    """The spread of the runs of a cell, pooled over a sweep, for phones with too few runs.

    Without it, a phone that was measured once would seem to be known exactly.
    """

    deviation: float = 0.0  # of a single run, relative
    degrees_of_freedom: int = 0

    def half_width(self, n: int) -> float:
        """Return the relative half-width of the interval of a median of n runs."""
        if not self.degrees_of_freedom:
            return UNKNOWN_ERROR
        from scipy.special import stdtrit

        t = float(stdtrit(self.degrees_of_freedom, (1 + LEVEL) / 2))
        return t * self.deviation / math.sqrt(n)


def pool_spread(cells: Iterable[Sequence[float]]) -> PooledSpread:
    """Pool the variance of the log values within every cell."""
    squares, freedom = 0.0, 0
    for values in cells:
        logs = [math.log(value) for value in values if value > 0]
        if len(logs) > 1:
            mean = math.fsum(logs) / len(logs)
            squares += math.fsum((log - mean) ** 2 for log in logs)
            freedom += len(logs) - 1
    return PooledSpread(math.sqrt(squares / freedom), freedom) if freedom else PooledSpread()


def estimate_from(
    values: Sequence[float], metrics: Iterable[Metric], spread: PooledSpread
) -> Estimate | None:
    """Return the median with its interval; None without values."""
    if not values:
        return None
    provenance = weakest_provenance(metric.provenance for metric in metrics)
    middle, n = median(values), len(values)
    if n < INTERVAL_RUNS_MIN:
        half = middle * spread.half_width(n)
        interval = Interval(middle - half, middle, middle + half, n, IntervalKind.RANGE)
    else:
        interval = median_interval(values)
    if provenance.error_unknown:
        interval = interval.widen(UNKNOWN_ERROR)
    else:
        interval = widen_by_model(interval, provenance)
    return Estimate(middle, max(0.0, interval.low), interval.high, n, provenance)
