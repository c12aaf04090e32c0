"""One side against another: ratios of medians with intervals, and a verdict in one word.

A side is called faster or slower only if the whole interval lies on one side of 1, the difference
is larger than the margin, and the p-value survives that many things were compared. `same` needs the
whole interval within the margin. Everything else is unclear, and says why.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from orchestrator.analysis.bootstrap import Level, Pair, Spread, spread_of
from orchestrator.analysis.claim import RUNS_FOR_A_CLAIM
from orchestrator.analysis.pairs import Paired, TrialPair
from orchestrator.analysis.provenance import weakest
from orchestrator.analysis.stats import LEVEL, geometric_mean, holm, median
from workloads.measure import METRICS, Model, Provenance

MARGIN = 0.02
CHANCE = 1 - LEVEL
# A model's stated error is the mean of its misses; their standard deviation is that much larger.
DEVIATION_PER_MEAN_MISS = math.sqrt(math.pi / 2)


class Word(StrEnum):
    """What a comparison comes to; of figures that are no times, faster means better."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    UNCLEAR = "unclear"


class By(StrEnum):
    """What one row of a comparison stands for; only whole phones go over several protocols."""

    CELL = "cell"
    PHONE = "phone"
    TRIAL = "trial"
    WHOLE_PHONE = "whole phone"


@dataclass(frozen=True)
class Versus:
    """Some pairs of trials, held against each other."""

    label: str
    metric: str
    pairs: int
    runs: tuple[int, int]
    medians: tuple[float, float]
    ratio: float  # candidate / base
    low: float | None
    high: float | None
    p: float | None  # by itself; p_holm bears the company of the other rows
    p_holm: float | None
    level: Level | None
    verdict: Word
    why: str
    worst: tuple[str, float]
    provenance: Provenance


@dataclass(frozen=True)
class Contest:
    """A whole comparison."""

    rows: tuple[Versus, ...]
    overall: tuple[Versus, ...]
    margin: float
    left_out: tuple[tuple[str, int], ...]


def contest(paired: Paired, by: By = By.CELL, margin: float = MARGIN) -> Contest:
    """Compare two sides, row by row and protocol by protocol."""
    apart = by is not By.WHOLE_PHONE
    wholes = _grouped(
        paired.pairs, lambda pair: f"all {_protocol(pair)} trials" if apart else "all trials"
    )
    return Contest(
        _judged([_held(*group) for group in _grouped(paired.pairs, _row_name(by))], margin),
        _judged([_held(*group) for group in wholes if len(group[1]) > 1], margin),
        margin,
        paired.left_out,
    )


def _row_name(by: By) -> Callable[[TrialPair], str]:
    if by is By.PHONE:
        return lambda pair: f"{pair.phone}, {_protocol(pair)}"
    if by is By.WHOLE_PHONE:
        return lambda pair: pair.phone
    if by is By.TRIAL:
        return lambda pair: pair.label
    return lambda pair: f"{pair.case}, {pair.condition}"


def _protocol(pair: TrialPair) -> str:
    sides = (pair.base.condition.protocol, pair.candidate.condition.protocol)
    return " against ".join(dict.fromkeys(side.value for side in sides))


def _grouped(
    pairs: Sequence[TrialPair], name: Callable[[TrialPair], str]
) -> list[tuple[str, list[TrialPair]]]:
    groups: dict[str, list[TrialPair]] = {}
    for pair in pairs:
        groups.setdefault(name(pair), []).append(pair)
    return list(groups.items())


def _held(label: str, pairs: Sequence[TrialPair]) -> Versus:
    """Hold the sides against each other, before any of it is judged."""
    metric = pairs[0].candidate.metric
    sides = [(median(pair.base.values), median(pair.candidate.values)) for pair in pairs]
    ratios = [candidate / base for base, candidate in sides]
    spread = _spread(pairs)
    ratio = math.exp(spread.log_ratio) if spread else geometric_mean(ratios)
    half = spread.half_width(CHANCE) if spread else None
    worst = (min if higher_is_better(metric) else max)(range(len(pairs)), key=ratios.__getitem__)
    made = [side.provenance for pair in pairs for side in (pair.base, pair.candidate)]
    return Versus(
        label=label,
        metric=metric,
        pairs=len(pairs),
        runs=(
            sum(len(pair.base.values) for pair in pairs),
            sum(len(pair.candidate.values) for pair in pairs),
        ),
        medians=(geometric_mean([s[0] for s in sides]), geometric_mean([s[1] for s in sides])),
        ratio=ratio,
        low=None if half is None else ratio * math.exp(-half),
        high=None if half is None else ratio * math.exp(half),
        p=spread.p_value() if spread else None,
        p_holm=None,
        level=spread.level if spread else None,
        verdict=Word.UNCLEAR,
        why="",
        worst=(pairs[worst].label, ratios[worst]),
        provenance=weakest(each for each in made if each is not None),
    )


def _spread(pairs: Sequence[TrialPair]) -> Spread | None:
    """What chance may have done, and what a model may be off by: no number of runs shrinks that."""
    spread = spread_of([Pair(p.phone, p.base.values, p.candidate.values) for p in pairs])
    misses = [
        math.hypot(*(_model_error(side.provenance) for side in (pair.base, pair.candidate)))
        for pair in pairs
    ]
    if spread is None or not max(misses):
        return spread
    total = math.hypot(spread.error, max(misses))
    surer = spread.freedom * (total / spread.error) ** 4 if spread.error else math.inf
    return replace(spread, error=total, freedom=min(surer, 1e6))


def _model_error(provenance: Provenance | None) -> float:
    stated = provenance.error_rel if provenance else None
    return DEVIATION_PER_MEAN_MISS * (stated or 0.0)


def higher_is_better(metric: str) -> bool:
    """Whether more of it is what one wants."""
    return METRICS[metric.partition(".")[0]].higher_is_better


def _judged(rows: Sequence[Versus], margin: float) -> tuple[Versus, ...]:
    tested = iter(holm([row.p for row in rows if row.p is not None]))
    with_p = [replace(row, p_holm=None if row.p is None else next(tested)) for row in rows]
    verdicts = [_verdict(row, margin) for row in with_p]
    return tuple(
        replace(row, verdict=word, why=why)
        for row, (word, why) in zip(with_p, verdicts, strict=True)
    )


def _verdict(row: Versus, margin: float) -> tuple[Word, str]:
    if row.provenance.model is Model.EXTRAPOLATED:
        return Word.UNCLEAR, "simulated by a model of unknown error"
    if row.low is None or row.high is None or row.p_holm is None:
        return Word.UNCLEAR, "one run a side shows no spread"
    if row.level is Level.RUNS and min(row.runs) < RUNS_FOR_A_CLAIM:
        return Word.UNCLEAR, f"only {min(row.runs)} runs on a side"
    if row.low >= 1 - margin and row.high <= 1 + margin:
        return Word.SAME, f"within ±{margin:.0%}"
    if row.low <= 1 <= row.high:
        return Word.UNCLEAR, "the interval holds both faster and slower"
    if abs(row.ratio - 1) <= margin:
        return Word.UNCLEAR, f"there is a difference, perhaps below the margin of {margin:.0%}"
    if row.p_holm > CHANCE:
        return Word.UNCLEAR, "among so many rows chance could have made this"
    better = (row.ratio > 1) == higher_is_better(row.metric)
    return (Word.FASTER if better else Word.SLOWER), ""
