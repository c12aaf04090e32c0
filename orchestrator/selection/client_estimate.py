"""A figure over few runs, and how far it may be off."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.analysis.provenance import weakest
from orchestrator.analysis.stats import LEVEL, RUNS_FOR_AN_INTERVAL, median, median_interval
from workloads.measure import Metric, Model, Provenance

# What a model that was fitted to nothing may be wrong by is not known, nor how far the runs of a
# sweep lie apart that made each of them once; half is taken for both.
UNKNOWN_ERROR = 0.5


@dataclass(frozen=True)
class Figure:
    """A median over runs, with the interval that it may lie in."""

    value: float
    low: float
    high: float
    n: int
    provenance: Provenance

    @property
    def doubt(self) -> float:
        """How far above its value it may lie, as a share."""
        return max(0.0, self.high / self.value - 1) if self.value else 0.0


@dataclass(frozen=True)
class Scatter:
    """How far runs of one cell lie apart in this sweep: for phones with too few of their own.

    Without it a phone that was measured once would seem to be known exactly.
    """

    error: float = 0.0  # of a single run, as a share
    freedom: int = 0

    def half_width(self, n: int) -> float:
        """How far the middle of so many runs may be off, as a share."""
        if not self.freedom:
            return UNKNOWN_ERROR
        from scipy.special import stdtrit

        return float(stdtrit(self.freedom, (1 + LEVEL) / 2)) * self.error / math.sqrt(n)


def scatter_of(cells: Iterable[Sequence[float]]) -> Scatter:
    """Pool what the runs of every cell say."""
    squares, freedom = 0.0, 0
    for values in cells:
        logs = [math.log(value) for value in values if value > 0]
        if len(logs) > 1:
            mean = math.fsum(logs) / len(logs)
            squares += math.fsum((each - mean) ** 2 for each in logs)
            freedom += len(logs) - 1
    return Scatter(math.sqrt(squares / freedom), freedom) if freedom else Scatter()


def figure_of(
    values: Sequence[float], metrics: Iterable[Metric], scatter: Scatter
) -> Figure | None:
    """The median, with what chance and the model behind it may have done to it."""
    if not values:
        return None
    provenance = weakest(metric.provenance for metric in metrics)
    error = UNKNOWN_ERROR if provenance.model is Model.EXTRAPOLATED else provenance.error_rel or 0.0
    middle, n = median(values), len(values)
    if n < RUNS_FOR_AN_INTERVAL:
        half = middle * scatter.half_width(n)
        low, high = middle - half, middle + half
    else:
        interval = median_interval(values)
        low, high = interval.low, interval.high
    return Figure(middle, max(0.0, low * (1 - error)), high * (1 + error), n, provenance)
