"""Estimates a ratio of two sides, with the error that runs, blocks, occasions and phones cause.

Runs of one block share its disturbances, so they are compared within their block. The highest
level that has enough members is the unit: phones where there are four or more, else trials, else
blocks or runs. A lower level is not counted again: the variation between the runs of a phone is
already part of that phone's result. With fewer than four phones the result holds for these phones
only.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean as mean

from orchestrator.analysis.median_interval import Instability, dependence_factor, find_instability
from orchestrator.analysis.stats import OCCASION_DEVIATION

UNITS_MIN = 4  # fewer phones or trials do not show how phones or trials differ
PAIRED_BLOCKS_MIN = 3
POWER = 0.8
CLEAR_DEPENDENCE = 1.0  # serial score; two sides are rarely both dependent by chance


class UnitLevel(StrEnum):
    """Which units show the variation of a ratio."""

    PHONES = "phones"
    TRIALS = "trials"
    BLOCKS = "blocks"
    RUNS = "runs"


@dataclass(frozen=True)
class RunPair:
    """The runs of one trial on both sides, in the order of time; all values are above zero.

    Blocks are given where the sides ran in the same blocks of one phone.
    """

    phone: str
    base: Sequence[float]
    candidate: Sequence[float]
    blocks: tuple[Sequence[int], Sequence[int]] | None = None
    same_occasion: bool = True


@dataclass(frozen=True)
class _Part:
    """A log ratio with the variance of its error."""

    log_ratio: float
    variance: float = 0.0
    freedom: float = math.inf
    level: UnitLevel = UnitLevel.RUNS
    unclear: Instability | None = None
    extent: float = 0.0  # of a drift, or between two modes


@dataclass(frozen=True)
class LogRatioEstimate:
    """A mean log ratio, its standard error, and the degrees of freedom of that error."""

    log_ratio: float
    standard_error: float
    degrees_of_freedom: float
    level: UnitLevel
    unclear: Instability | None = None
    extent: float = 0.0

    def half_width(self, alpha: float) -> float:
        """Return half the interval's width; the interval misses the true value with `alpha`."""
        quantile = self._quantile(1 - alpha / 2)
        return quantile * self.standard_error + self.extent

    def smallest_shown(self, alpha: float, margin: float) -> float:
        """Return the true ratio, less 1, that four of five estimates call different.

        An estimate must exclude equality, and be larger than the margin.
        """
        quantile, power = self._quantile(1 - alpha / 2), self._quantile(POWER)
        least = max(quantile * self.standard_error, math.log1p(margin))
        return math.expm1(least + power * self.standard_error + self.extent)

    def p_value(self) -> float:
        """Return the probability that equal sides differ at least this much."""
        beyond = max(0.0, abs(self.log_ratio) - self.extent)
        if self.standard_error == 0:
            return float(beyond == 0)
        from scipy.special import stdtr

        t = -beyond / self.standard_error
        return 2 * float(stdtr(min(self.degrees_of_freedom, 1e6), t))

    def _quantile(self, p: float) -> float:
        from scipy.special import stdtrit

        return float(stdtrit(min(self.degrees_of_freedom, 1e6), p))

    def with_error(self, deviation: float, freedom: float) -> "LogRatioEstimate":
        """Add an independent error; degrees of freedom after Welch and Satterthwaite."""
        own = _Part(self.log_ratio, self.standard_error**2, self.degrees_of_freedom)
        total = _mean([own, _Part(0.0, deviation**2, freedom)], 1.0)
        return LogRatioEstimate(
            *(self.log_ratio, math.sqrt(total.variance), total.freedom, self.level),
            *(self.unclear, self.extent),
        )


def estimate_log_ratio(pairs: Sequence[RunPair]) -> LogRatioEstimate | None:
    """Estimate the ratio of pairs; None where a side with a single run shows no variation."""
    phones: dict[str, list[RunPair]] = {}
    for pair in pairs:
        phones.setdefault(pair.phone, []).append(pair)
    parts = {phone: [_part(pair) for pair in members] for phone, members in phones.items()}
    centres = {phone: [part.log_ratio for part in members] for phone, members in parts.items()}
    if len(phones) >= UNITS_MIN:
        means = [mean(members) for members in centres.values()]
        return _estimate(_of_units(means, UnitLevel.PHONES), UnitLevel.PHONES)
    if all(len(members) >= UNITS_MIN for members in parts.values()):
        total = _mean([_of_units(members, UnitLevel.TRIALS) for members in centres.values()])
        return _between_occasions(_estimate(total, UnitLevel.TRIALS), phones)
    if any(math.isnan(part.variance) for members in parts.values() for part in members):
        return None
    total = _mean([_mean(members) for members in parts.values()])
    return _between_occasions(_estimate(total, total.level), phones)


def _between_occasions(
    estimate: LogRatioEstimate, phones: Mapping[str, Sequence[RunPair]]
) -> LogRatioEstimate:
    """Add what another day changes, once per phone whose sides ran on different occasions."""
    moved = sum(any(not pair.same_occasion for pair in members) for members in phones.values())
    if not moved:
        return estimate
    deviation = OCCASION_DEVIATION * math.sqrt(2 * moved) / len(phones)
    return estimate.with_error(deviation, math.inf)


def _estimate(part: _Part, level: UnitLevel) -> LogRatioEstimate:
    return LogRatioEstimate(
        *(part.log_ratio, math.sqrt(part.variance), part.freedom, level, part.unclear, part.extent)
    )


def _part(pair: RunPair) -> _Part:
    """Compare one trial: within blocks where both sides have them, else side with side."""
    differences = _differences_within_blocks(pair)
    if differences is not None:
        return _of_units(differences, UnitLevel.BLOCKS)
    sides = [[math.log(value) for value in side] for side in (pair.base, pair.candidate)]
    base, candidate = (_of_units(side, widened=False) for side in sides)
    joined = _mean([base, candidate], 1.0)
    return _Part(
        candidate.log_ratio - base.log_ratio,
        joined.variance * dependence_factor(*sides, starts=CLEAR_DEPENDENCE) ** 2,
        *(joined.freedom, UnitLevel.RUNS, joined.unclear, base.extent + candidate.extent),
    )


def _differences_within_blocks(pair: RunPair) -> list[float] | None:
    """Return one log ratio per block that both sides have; None if that leaves out most runs."""
    if pair.blocks is None:
        return None
    sides: list[dict[int, list[float]]] = [{}, {}]
    for logs, values, blocks in zip(sides, (pair.base, pair.candidate), pair.blocks, strict=True):
        for value, block in zip(values, blocks, strict=True):
            logs.setdefault(block, []).append(math.log(value))
    base, candidate = sides
    shared = sorted(base.keys() & candidate.keys())
    if len(shared) < PAIRED_BLOCKS_MIN or 2 * len(shared) < max(len(base), len(candidate)):
        return None
    return [mean(candidate[block]) - mean(base[block]) for block in shared]


def _of_units(
    values: Sequence[float], level: UnitLevel = UnitLevel.RUNS, widened: bool = True
) -> _Part:
    """Return the mean of units, and the variance of that mean; blocks and runs are in order."""
    n = len(values)
    middle = mean(values)
    if n < 2:
        return _Part(middle, math.nan, 0.0, level)
    variance = math.fsum((value - middle) ** 2 for value in values) / (n - 1) / n
    if level in (UnitLevel.PHONES, UnitLevel.TRIALS):
        return _Part(middle, variance, n - 1, level)
    unclear = find_instability(values)
    is_spread = unclear in (Instability.DRIFT, Instability.TWO_MODES)
    extent = (max(values) - min(values)) / 2 if is_spread else 0.0
    factor = dependence_factor(values) if widened and not is_spread else 1.0
    return _Part(middle, variance * factor**2, n - 1, level, unclear, extent)


def _mean(parts: Sequence[_Part], weight: float | None = None) -> _Part:
    """Average independent parts, or add them; degrees of freedom after Welch and Satterthwaite."""
    share = 1 / len(parts) if weight is None else weight
    variance = share**2 * math.fsum(part.variance for part in parts)
    squares = [(share**2 * part.variance) ** 2 / max(part.freedom, 1e-9) for part in parts]
    weighted = math.fsum(squares)
    levels = {part.level for part in parts}
    return _Part(
        share * math.fsum(part.log_ratio for part in parts),
        variance,
        variance**2 / weighted if weighted > 0 else math.inf,
        levels.pop() if len(levels) == 1 else UnitLevel.RUNS,
        next((part.unclear for part in parts if part.unclear), None),
        share * math.fsum(part.extent for part in parts),
    )
