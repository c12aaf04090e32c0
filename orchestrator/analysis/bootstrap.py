"""Bootstrap estimates of how far a median, or a ratio of medians, may be off by chance.

The highest level that has enough members is resampled as a whole: phones where there are four or
more, else trials, else runs. Resampling a lower level as well would count the same variation twice,
because the run-to-run variation of a phone is already part of that phone's result.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from orchestrator.analysis.stats import median

RESAMPLES = 2000
UNITS_MIN = 4  # fewer phones or trials do not show how phones or trials differ
FREEDOM_MAX = 10  # the error of a median is itself known poorly, however many runs there are
_POOL = 1 << 16
_SIGMA = (0.158655, 0.841345)  # quantiles of a normal distribution at -1 and +1 standard deviation

Floats = NDArray[np.float64]


class ResampledLevel(StrEnum):
    """Which level was resampled."""

    PHONES = "phones"
    TRIALS = "trials"
    RUNS = "runs"


@dataclass(frozen=True)
class RunPair:
    """The runs of one trial on both sides; all values are above zero."""

    phone: str
    base: Sequence[float]
    candidate: Sequence[float]


@dataclass(frozen=True)
class LogRatioEstimate:
    """A mean log ratio, its standard error, and the degrees of freedom of that error."""

    log_ratio: float
    standard_error: float
    degrees_of_freedom: float
    level: ResampledLevel

    def half_width(self, alpha: float) -> float:
        """Return half the interval's width; the interval misses the true value with `alpha`."""
        return float(stdtrit(self.degrees_of_freedom, 1 - alpha / 2)) * self.standard_error

    def p_value(self) -> float:
        """Return the probability that equal sides differ at least this much."""
        if self.standard_error == 0:
            return float(self.log_ratio == 0)
        t = -abs(self.log_ratio) / self.standard_error
        return 2 * float(stdtr(self.degrees_of_freedom, t))


def estimate_log_ratio(pairs: Sequence[RunPair], seed: int = 0) -> LogRatioEstimate | None:
    """Resample the pairs; None where a side with a single run leaves nothing to resample."""
    phones: dict[str, list[RunPair]] = {}
    for pair in pairs:
        phones.setdefault(pair.phone, []).append(pair)
    rng = np.random.default_rng(seed)
    ratios = {
        phone: np.array([_log_ratio(pair) for pair in members]) for phone, members in phones.items()
    }
    middle = float(np.mean([np.mean(members) for members in ratios.values()]))
    if len(phones) >= UNITS_MIN:
        strata = [np.array([members.mean() for members in ratios.values()])]
        return _resample_units(middle, strata, ResampledLevel.PHONES, rng)
    if all(len(members) >= UNITS_MIN for members in ratios.values()):
        return _resample_units(middle, list(ratios.values()), ResampledLevel.TRIALS, rng)
    return _resample_runs(middle, list(phones.values()), rng)


def _log_ratio(pair: RunPair) -> float:
    return math.log(median(pair.candidate) / median(pair.base))


def _resample_units(
    middle: float, strata: Sequence[Floats], level: ResampledLevel, rng: np.random.Generator
) -> LogRatioEstimate:
    """Resample whole units within each stratum; the statistic is the mean of the strata's means."""
    means = np.zeros(RESAMPLES)
    for units in strata:
        picks = rng.integers(0, len(units), (RESAMPLES, len(units)))
        # The variance of a resampled mean is too small by the factor (n - 1) / n.
        correction = np.sqrt(len(units) / (len(units) - 1))
        means += correction * (units[picks].mean(axis=1) - units.mean()) / len(strata)
    freedom = float(sum(len(units) - 1 for units in strata))
    return LogRatioEstimate(middle, _robust_deviation(means), freedom, level)


def _resample_runs(
    middle: float, phones: Sequence[Sequence[RunPair]], rng: np.random.Generator
) -> LogRatioEstimate | None:
    """Resample the runs of both sides of every pair; phones and trials stay fixed."""
    deviations = np.zeros(RESAMPLES)
    variance, weighted = 0.0, 0.0
    for pairs in phones:
        for pair in pairs:
            for sign, side in ((-1, pair.base), (1, pair.candidate)):
                if len(side) < 2:
                    return None
                part = sign * _median_deviations(np.log(side), rng) / (len(pairs) * len(phones))
                deviations += part
                part_variance = _robust_deviation(part) ** 2
                variance += part_variance
                weighted += part_variance**2 / min(len(side) - 1, FREEDOM_MAX)
    freedom = variance**2 / weighted if weighted > 0 else float("inf")
    return LogRatioEstimate(middle, _robust_deviation(deviations), freedom, ResampledLevel.RUNS)


def half_width_of_median(values: Sequence[float], alpha: float, seed: int = 0) -> float:
    """Return half the width of the median's interval over two or more runs."""
    rng, runs = np.random.default_rng(seed), np.asarray(values)
    # The bootstrap median of few runs takes only a few values; the difference of two is smooth.
    difference = _median_deviations(runs, rng) - _median_deviations(runs, rng)
    error = _robust_deviation(difference) / float(np.sqrt(2))
    error *= float(np.sqrt(len(runs) / (len(runs) - 1)))
    return float(stdtrit(min(len(values) - 1, FREEDOM_MAX), 1 - alpha / 2)) * error


def _median_deviations(values: Floats, rng: np.random.Generator) -> Floats:
    """Return the differences between medians of resampled runs and the median of the runs."""
    return np.asarray(_bootstrap_medians(values, rng) - np.median(values))


def _robust_deviation(values: Floats) -> float:
    """Return a standard deviation that a single outlier in a small cell does not inflate."""
    low, high = np.quantile(values, _SIGMA)
    return min(float(high - low) / 2, float(np.std(values)))


def _bootstrap_medians(values: Floats, rng: np.random.Generator) -> Floats:
    """Draw bootstrap medians from precomputed ranks instead of resampling."""
    ordered = np.sort(values)
    lower, upper = _middle_ranks(len(values))
    picks = rng.integers(0, _POOL, RESAMPLES)
    return np.asarray((ordered[lower[picks]] + ordered[upper[picks]]) / 2)


@functools.cache
def _middle_ranks(n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return ranks of the two middle values of n draws from n sorted values, for many samples.

    The k-th of n uniform numbers follows a beta distribution, and so does the one above it, given
    the k-th.
    """
    rng = np.random.default_rng(n)
    k = (n + 1) // 2
    first = rng.beta(k, n - k + 1, _POOL)
    second = first if n % 2 else 1 - (1 - first) * rng.beta(n - k, 1, _POOL)
    return tuple(  # type: ignore[return-value]
        np.minimum((quantile * n).astype(np.int64), n - 1) for quantile in (first, second)
    )
