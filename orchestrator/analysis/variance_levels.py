"""How much results vary, by level: between runs, blocks, occasions, and phones of one model.

Each value is compared with the mean of its trial. What two trials of one block have in common is
the block's part; what two blocks of one occasion have in common is the occasion's; the rest is the
run's. Parts are standard deviations, relative; None where the runs cannot show them.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, variance
from typing import NamedTuple

from orchestrator.analysis.measurements import TrialSeries
from orchestrator.analysis.stats import split_occasions

PAIRS_MIN = 8  # fewer products of deviations show no common part
PHONE_RUNS_MAX = 150  # pairs grow with the square of it


@dataclass(frozen=True)
class VarianceLevels:
    """Relative standard deviations by level, over some trials."""

    runs: int
    run: float | None
    block: float | None
    occasion: float | None
    phone: float | None  # between phones of one model


class _Deviation(NamedTuple):
    phone: str
    trial: str
    block: tuple[str, int]
    occasion: int
    log: float


def variance_levels(trials: Iterable[TrialSeries]) -> VarianceLevels:
    """Divide the variance of trials into its levels."""
    known = [trial for trial in trials if len(trial.values) > 1]
    deviations = [deviation for trial in known for deviation in _deviations(trial)]
    freedom = sum(len(trial.values) - 1 for trial in known)
    if not freedom:
        return VarianceLevels(len(deviations), None, None, None, None)
    total = math.fsum(item.log**2 for item in deviations) / freedom
    several = len({item.occasion for item in deviations}) > 1
    occasion = (
        _common(deviations, lambda a, b: a.occasion == b.occasion and a.block != b.block)
        if several
        else None
    )
    in_block = _common(deviations, lambda a, b: a.block == b.block and a.trial != b.trial)
    block = None if in_block is None else max(0.0, in_block - (occasion or 0.0))
    run = max(0.0, total - (block or 0.0) - (occasion or 0.0))
    parts = (run, block, occasion, _between_phones(known))
    return VarianceLevels(
        len(deviations), *(None if part is None else math.sqrt(part) for part in parts)
    )


def _deviations(trial: TrialSeries) -> list[_Deviation]:
    logs = [math.log(value) for value in trial.values]
    mean = fmean(logs)
    marks = zip(trial.blocks, split_occasions(trial.times), logs, strict=True)
    return [
        _Deviation(trial.phone, trial.trial, (trial.sweep, block), occasion, log - mean)
        for block, occasion, log in marks
    ]


def _common(
    deviations: Sequence[_Deviation], related: Callable[[_Deviation, _Deviation], bool]
) -> float | None:
    """Return the covariance of related deviations of one phone; None with too few of them."""
    by_phone: dict[str, list[_Deviation]] = {}
    for item in deviations:
        by_phone.setdefault(item.phone, []).append(item)
    products = [
        one.log * other.log
        for members in by_phone.values()
        for one, other in combinations(members[:PHONE_RUNS_MAX], 2)
        if related(one, other)
    ]
    return max(0.0, fmean(products)) if len(products) >= PAIRS_MIN else None


def _between_phones(trials: Sequence[TrialSeries]) -> float | None:
    """Return the variance between phones of one model in one cell, pooled."""
    cells: dict[tuple[str, str, str], list[float]] = {}
    for trial in trials:
        key = (trial.model, trial.case.digest, trial.condition.digest)
        cells.setdefault(key, []).append(fmean(map(math.log, trial.values)))
    groups = [means for means in cells.values() if len(means) > 1]
    freedom = sum(len(means) - 1 for means in groups)
    if not freedom:
        return None
    return math.fsum(variance(means) * (len(means) - 1) for means in groups) / freedom
