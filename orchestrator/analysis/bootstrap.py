"""How far a median, or a ratio of medians, may be off: what chance could have made of the runs.

The highest level that has enough members is resampled whole: phones where there are four or more,
else trials, else runs. Resampling below it once more would count the same chance twice, because
what a phone's runs owe to luck is already in that phone's result.
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
UNITS_MIN = 4  # fewer phones or trials say nothing about how phones or trials differ
FREEDOM_MAX = 10  # the error of a median is itself known poorly, however many runs there are
_POOL = 1 << 16
_SIGMA = (0.158655, 0.841345)  # where a normal distribution is one standard deviation off

Floats = NDArray[np.float64]


class Level(StrEnum):
    """What was resampled."""

    PHONES = "phones"
    TRIALS = "trials"
    RUNS = "runs"


@dataclass(frozen=True)
class Pair:
    """The runs of one trial on both sides, all above zero."""

    phone: str
    base: Sequence[float]
    candidate: Sequence[float]


@dataclass(frozen=True)
class Spread:
    """A mean log ratio, its standard error, and how many degrees of freedom that error has."""

    log_ratio: float
    error: float
    freedom: float
    level: Level

    def half_width(self, chance: float) -> float:
        """How far the truth is off at most, in all but this share of cases."""
        return float(stdtrit(self.freedom, 1 - chance / 2)) * self.error

    def p_value(self) -> float:
        """How often equal sides would look at least this different."""
        if self.error == 0:
            return float(self.log_ratio == 0)
        return 2 * float(stdtr(self.freedom, -abs(self.log_ratio) / self.error))


def spread_of(pairs: Sequence[Pair], seed: int = 0) -> Spread | None:
    """Resample the pairs; None where a single run on either side leaves nothing to resample."""
    phones: dict[str, list[Pair]] = {}
    for pair in pairs:
        phones.setdefault(pair.phone, []).append(pair)
    source = np.random.default_rng(seed)
    ratios = {phone: np.array([_log_ratio(pair) for pair in own]) for phone, own in phones.items()}
    middle = float(np.mean([np.mean(own) for own in ratios.values()]))
    if len(phones) >= UNITS_MIN:
        strata = [np.array([own.mean() for own in ratios.values()])]
        return _of_units(middle, strata, Level.PHONES, source)
    if all(len(own) >= UNITS_MIN for own in ratios.values()):
        return _of_units(middle, list(ratios.values()), Level.TRIALS, source)
    return _of_runs(middle, list(phones.values()), source)


def _log_ratio(pair: Pair) -> float:
    return math.log(median(pair.candidate) / median(pair.base))


def _of_units(
    middle: float, strata: Sequence[Floats], level: Level, source: np.random.Generator
) -> Spread:
    """Resample whole units within each stratum; a mean of means is what counts."""
    means = np.zeros(RESAMPLES)
    for units in strata:
        picks = source.integers(0, len(units), (RESAMPLES, len(units)))
        # A sample of n is narrower than what it came from, by (n - 1) / n of its variance.
        stretch = np.sqrt(len(units) / (len(units) - 1))
        means += stretch * (units[picks].mean(axis=1) - units.mean()) / len(strata)
    freedom = float(sum(len(units) - 1 for units in strata))
    return Spread(middle, _deviation(means), freedom, level)


def _of_runs(
    middle: float, phones: Sequence[Sequence[Pair]], source: np.random.Generator
) -> Spread | None:
    """Resample the runs of every side of every pair; the phones and trials stay as they are."""
    deviations = np.zeros(RESAMPLES)
    variance, weighed = 0.0, 0.0
    for own in phones:
        for pair in own:
            for sign, side in ((-1, pair.base), (1, pair.candidate)):
                if len(side) < 2:
                    return None
                share = sign * _strayed(np.log(side), source) / (len(own) * len(phones))
                deviations += share
                part = _deviation(share) ** 2
                variance += part
                weighed += part**2 / min(len(side) - 1, FREEDOM_MAX)
    freedom = variance**2 / weighed if weighed > 0 else float("inf")
    return Spread(middle, _deviation(deviations), freedom, Level.RUNS)


def half_width_of_median(values: Sequence[float], chance: float, seed: int = 0) -> float:
    """How far the median over two or more runs is off at most, in all but this share of cases."""
    source, runs = np.random.default_rng(seed), np.asarray(values)
    # One median of few runs takes a handful of values; the difference of two is smooth.
    error = _deviation(_strayed(runs, source) - _strayed(runs, source)) / float(np.sqrt(2))
    error *= float(np.sqrt(len(runs) / (len(runs) - 1)))
    return float(stdtrit(min(len(values) - 1, FREEDOM_MAX), 1 - chance / 2)) * error


def _strayed(values: Floats, source: np.random.Generator) -> Floats:
    """How far medians of resampled runs lie from the median of the runs."""
    return np.asarray(_bootstrap_medians(values, source) - np.median(values))


def _deviation(values: Floats) -> float:
    """A standard deviation that one wild run in a small cell does not blow up."""
    low, high = np.quantile(values, _SIGMA)
    return min(float(high - low) / 2, float(np.std(values)))


def _bootstrap_medians(values: Floats, source: np.random.Generator) -> Floats:
    """Medians of resampled values, drawn without resampling: their places are known beforehand."""
    ordered = np.sort(values)
    lower, upper = _places(len(values))
    picks = source.integers(0, _POOL, RESAMPLES)
    return np.asarray((ordered[lower[picks]] + ordered[upper[picks]]) / 2)


@functools.cache
def _places(n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the two middle values of n draws from n sorted values lie, for many samples of n.

    The k-th of n uniform numbers follows a beta distribution, and so does what lies above it.
    """
    source = np.random.default_rng(n)
    k = (n + 1) // 2
    first = source.beta(k, n - k + 1, _POOL)
    second = first if n % 2 else 1 - (1 - first) * source.beta(n - k, 1, _POOL)
    return tuple(  # type: ignore[return-value]
        np.minimum((each * n).astype(np.int64), n - 1) for each in (first, second)
    )
