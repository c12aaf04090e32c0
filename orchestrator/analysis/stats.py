"""Basic statistics behind every comparison: the error of models, corrections, means.

The statistical unit is the run, never the sample: steps inside one run share its temperature and
its disturbances, so a thousand of them predict the next run no better than one does.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from statistics import stdev

from orchestrator.analysis.median_interval import (
    INTERVAL_RUNS_MIN,
    LEVEL,
    SYMMETRIC_MAX,
    Instability,
    Interval,
    IntervalKind,
    median,
    median_interval,
    scale_distance,
    shift_on_scale,
)
from workloads.protocol.metrics import Provenance

__all__ = ["INTERVAL_RUNS_MIN", "LEVEL", "SYMMETRIC_MAX", "Instability", "IntervalKind"]
__all__ += ["scale_distance", "shift_on_scale"]

# A model states its mean absolute error; the standard deviation of its errors is this much larger.
DEVIATION_PER_MEAN_ERROR = math.sqrt(math.pi / 2)
# That mean comes from few conditions: Student's t with ten degrees of freedom, 95 %.
MODEL_FREEDOM, MODEL_QUANTILE = 10, 2.228
# Another day, a restart or another place changes a phone's speed by about this standard deviation.
# It is an assumption, used only while fewer than four occasions show what it really is.
OCCASION_DEVIATION = 0.01
OCCASIONS_MIN = 4
OCCASION_GAP, OCCASION_LENGTH = timedelta(hours=4), timedelta(hours=24)


def model_deviation(provenance: Provenance | None) -> float:
    """Return the standard deviation of a model's relative error; 0 for measured values."""
    stated = provenance.error_rel if provenance else None
    return DEVIATION_PER_MEAN_ERROR * (stated or 0.0)


def widen_by_model(interval: Interval, provenance: Provenance, is_share: bool = False) -> Interval:
    """Add the error of the model behind the values; if it is unknown, so is the interval."""
    if provenance.error_unknown:
        return replace(interval, kind=IntervalKind.UNKNOWN)
    return interval.widen(MODEL_QUANTILE * model_deviation(provenance), is_share)


def split_occasions(times: Sequence[datetime], places: Sequence[object] = ()) -> list[int]:
    """Return the occasion of each run, in the order of time.

    A pause, a day, or another place (such as a host, or a restart of the phone) begins a new one.
    """
    occasions: list[int] = []
    for index, time in enumerate(times):
        if index == 0:
            occasion, started = 0, time
        elif (
            time - times[index - 1] > OCCASION_GAP
            or time - started > OCCASION_LENGTH
            or (places and places[index] != places[index - 1])
        ):
            occasion, started = occasion + 1, time
        occasions.append(occasion)
    return occasions


def interval_over_occasions(
    values: Sequence[float], times: Sequence[datetime], places: Sequence[object] = ()
) -> Interval:
    """Return the interval of the median; runs of several occasions show how occasions differ."""
    occasions = split_occasions(times, places)
    count = occasions[-1] + 1
    interval = median_interval(values)
    if count == 1:
        return interval
    members: list[list[float]] = [[] for _ in range(count)]
    for occasion, value in zip(occasions, values, strict=True):
        members[occasion].append(value)
    medians = [median(member) for member in members]
    if count >= OCCASIONS_MIN:
        found = median_interval(medians)
        return replace(found, n=len(values))
    deviation = max(OCCASION_DEVIATION, stdev(medians) / abs(interval.middle or 1))
    return interval.widen(2 * deviation / math.sqrt(count))


def holm_correction(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for multiple comparisons (Holm's step-down procedure)."""
    corrected = [1.0] * len(p_values)
    lower_bound = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
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
