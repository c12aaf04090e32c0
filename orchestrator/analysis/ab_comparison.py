"""Compares two sides (A/B): ratios with intervals, and a verdict for each row.

A side is called faster or slower only if the whole interval lies on one side of 1, the difference
is larger than the margin, and the p-value stays significant after correction for the number of
rows. `same` needs the whole interval within the margin. Everything else is unclear, with a reason.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from orchestrator.analysis.failure_rates import FailureComparison
from orchestrator.analysis.log_ratio import LogRatioEstimate, RunPair, UnitLevel, estimate_log_ratio
from orchestrator.analysis.measurements import Exclusion, weakest_provenance
from orchestrator.analysis.rank_statement import CLAIM_RUNS_MIN
from orchestrator.analysis.stats import (
    LEVEL,
    MODEL_FREEDOM,
    OCCASION_GAP,
    Instability,
    geometric_mean,
    holm_correction,
    median,
    model_deviation,
)
from orchestrator.analysis.trial_pairs import PairedTrials, TrialPair
from workloads.protocol.metrics import METRICS, Provenance, Source
from workloads.protocol.same_clocks import SameClock
from workloads.text import TextEnum

MARGIN = 0.02
ALPHA = 1 - LEVEL


class ComparisonVerdict(StrEnum):
    """The result of a comparison; for metrics other than times, faster means better."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    UNCLEAR = "unclear"


class UnclearReason(TextEnum):
    """Why a comparison is unclear."""

    MODEL_ERROR_UNKNOWN = (
        "model_error_unknown",
        "the error of the simulation is unknown here: no "
        "measurements of these phones were compared with it; measure on phones, or on fitted ones",
    )
    SINGLE_RUN = "single_run", "needs at least two runs per side"
    TOO_FEW_RUNS = "too_few_runs", f"fewer than {CLAIM_RUNS_MIN} runs on one side"
    INTERVAL_CONTAINS_ONE = (
        "interval_contains_one",
        "the interval contains 1, so either side may be faster",
    )
    WITHIN_MARGIN = "within_margin", "significant, but the difference is not larger than the margin"
    NOT_SIGNIFICANT = "not_significant", "not significant after Holm correction"
    SERIAL_CORRELATION = "serial_correlation", "each run resembles the one before it"
    DRIFT = "drift", "the runs drift, and the difference is not larger than the drift"
    TWO_MODES = "two_modes", "the runs have two modes, and the difference is not larger"


class ComparisonScope(StrEnum):
    """The phones for which a row holds."""

    THESE_PHONES = "these phones only"
    SUCH_PHONES = "phones like these"


class GroupBy(StrEnum):
    """What one row of a comparison summarises; only whole phones span several protocols."""

    CELL = "cell"
    PHONE = "phone"
    TRIAL = "trial"
    WHOLE_PHONE = "whole phone"


@dataclass(frozen=True)
class Comparison:
    """The comparison of some pairs of trials."""

    label: str
    metric: str
    pairs: int
    runs: tuple[int, int]
    medians: tuple[float, float]
    ratio: float  # candidate / base
    low: float | None
    high: float | None
    shows: float | None  # the smallest difference that these runs show four times out of five
    p: float | None  # of this row alone; p_holm is corrected for the number of rows
    p_holm: float | None
    level: UnitLevel | None
    scope: ComparisonScope
    unstable: Instability | None
    verdict: ComparisonVerdict
    reason: UnclearReason | None  # set when the verdict is unclear
    model_verdict: ComparisonVerdict | None  # of the simulation itself, whatever its error is
    worst: tuple[str, float]
    provenance: Provenance


@dataclass(frozen=True)
class ComparisonTable:
    """A whole comparison."""

    rows: tuple[Comparison, ...]
    overall: tuple[Comparison, ...]
    margin: float
    left_out: tuple[tuple[Exclusion, int], ...]
    same_clocks: tuple[SameClock, ...] = ()  # levels of the two sides that are one clock
    failures: FailureComparison | None = None  # how often attempts fail
    starts_c: tuple[tuple[str, float, float], ...] = ()  # of each phone: coolest and warmest


def compare_sides(
    paired: PairedTrials, by: GroupBy = GroupBy.CELL, margin: float = MARGIN
) -> ComparisonTable:
    """Compare two sides, row by row, and over all trials of each protocol."""
    by_protocol = by is not GroupBy.WHOLE_PHONE
    wholes = _group_pairs(
        paired.pairs, lambda pair: f"all {_protocol(pair)} trials" if by_protocol else "all trials"
    )
    groups = _group_pairs(paired.pairs, _row_label(by))
    rows = [_compare_group(*group, margin, ALPHA / len(groups)) for group in groups]
    wholes = [group for group in wholes if len(group[1]) > 1]
    overall = [_compare_group(*group, margin, ALPHA / len(wholes)) for group in wholes]
    return ComparisonTable(
        _judge_rows(rows, margin), _judge_rows(overall, margin), margin, paired.left_out
    )


def _row_label(by: GroupBy) -> Callable[[TrialPair], str]:
    if by is GroupBy.PHONE:
        return lambda pair: f"{pair.phone}, {_protocol(pair)}"
    if by is GroupBy.WHOLE_PHONE:
        return lambda pair: pair.phone
    if by is GroupBy.TRIAL:
        return lambda pair: pair.label
    return lambda pair: f"{pair.case}, {pair.condition}"


def _protocol(pair: TrialPair) -> str:
    sides = (pair.base.condition.protocol, pair.candidate.condition.protocol)
    return " vs ".join(dict.fromkeys(side.value for side in sides))


def _group_pairs(
    pairs: Sequence[TrialPair], label: Callable[[TrialPair], str]
) -> list[tuple[str, list[TrialPair]]]:
    groups: dict[str, list[TrialPair]] = {}
    for pair in pairs:
        groups.setdefault(label(pair), []).append(pair)
    return list(groups.items())


def _compare_group(
    label: str, pairs: Sequence[TrialPair], margin: float, alpha: float
) -> Comparison:
    """Compute ratio, interval and p-value of a group; the verdict is still unclear.

    `alpha` is what Holm's correction leaves to the row if it alone differs.
    """
    metric = pairs[0].candidate.metric
    sides = [(median(pair.base.values), median(pair.candidate.values)) for pair in pairs]
    ratios = [candidate / base for base, candidate in sides]
    estimate = _estimate(pairs)
    ratio = math.exp(estimate.log_ratio) if estimate else geometric_mean(ratios)
    half = estimate.half_width(ALPHA) if estimate else None
    worst = (min if higher_is_better(metric) else max)(range(len(pairs)), key=ratios.__getitem__)
    provenances = [side.provenance for pair in pairs for side in (pair.base, pair.candidate)]
    runs = (
        sum(len(pair.base.values) for pair in pairs),
        sum(len(pair.candidate.values) for pair in pairs),
    )
    return Comparison(
        label=label,
        metric=metric,
        pairs=len(pairs),
        runs=runs,
        medians=(geometric_mean([s[0] for s in sides]), geometric_mean([s[1] for s in sides])),
        ratio=ratio,
        low=None if half is None else ratio * math.exp(-half),
        high=None if half is None else ratio * math.exp(half),
        shows=_smallest_shown(estimate, runs, margin, alpha),
        p=estimate.p_value() if estimate else None,
        p_holm=None,
        level=estimate.level if estimate else None,
        scope=ComparisonScope.SUCH_PHONES
        if estimate and estimate.level is UnitLevel.PHONES
        else ComparisonScope.THESE_PHONES,
        unstable=estimate.unclear if estimate else None,
        verdict=ComparisonVerdict.UNCLEAR,
        reason=None,
        model_verdict=None,
        worst=(pairs[worst].label, ratios[worst]),
        provenance=weakest_provenance(item for item in provenances if item is not None),
    )


def _smallest_shown(
    estimate: LogRatioEstimate | None, runs: Sequence[int], margin: float, alpha: float
) -> float | None:
    """Return the smallest difference that these runs show; too few runs of a phone show none."""
    if estimate is None or _has_too_few_runs(estimate.level, runs):
        return None
    return estimate.smallest_shown(alpha, margin)


def _has_too_few_runs(level: UnitLevel | None, runs: Sequence[int]) -> bool:
    return level in (UnitLevel.BLOCKS, UnitLevel.RUNS) and min(runs) < CLAIM_RUNS_MIN


def _estimate(pairs: Sequence[TrialPair]) -> LogRatioEstimate | None:
    """Estimate the log ratio; its error includes the model's, which more runs do not reduce."""
    estimate = estimate_log_ratio([_run_pair(pair) for pair in pairs])
    model_error = max(
        math.hypot(*(model_deviation(side.provenance) for side in (pair.base, pair.candidate)))
        for pair in pairs
    )
    if estimate is None or not model_error:
        return estimate
    return estimate.with_error(model_error, MODEL_FREEDOM)


def _run_pair(pair: TrialPair) -> RunPair:
    """Return the runs of both sides; runs of one phone and sweep share their blocks."""
    base, candidate = pair.base, pair.candidate
    same = (base.sweep, base.phone) == (candidate.sweep, candidate.phone)
    ordered = sorted((min(side.times), max(side.times)) for side in (base, candidate))
    return RunPair(
        *(pair.phone, base.values, candidate.values),
        blocks=(base.blocks, candidate.blocks) if same else None,
        same_occasion=same or ordered[1][0] - ordered[0][1] <= OCCASION_GAP,
    )


def higher_is_better(metric: str) -> bool:
    """Return whether a larger value of the metric is the better one."""
    return METRICS[metric.partition(".")[0]].higher_is_better


def _judge_rows(rows: Sequence[Comparison], margin: float) -> tuple[Comparison, ...]:
    corrected = iter(holm_correction([row.p for row in rows if row.p is not None]))
    with_p = [replace(row, p_holm=None if row.p is None else next(corrected)) for row in rows]
    return tuple(_judged(row, margin) for row in with_p)


def _judged(row: Comparison, margin: float) -> Comparison:
    """Return a row with its verdict; a model of unknown error allows no claim about phones."""
    verdict, reason = _judge(row, margin)
    model_verdict = verdict if row.provenance.source is Source.SIMULATED else None
    if row.provenance.error_unknown:
        verdict, reason = ComparisonVerdict.UNCLEAR, UnclearReason.MODEL_ERROR_UNKNOWN
    return replace(row, verdict=verdict, reason=reason, model_verdict=model_verdict)


def _judge(row: Comparison, margin: float) -> tuple[ComparisonVerdict, UnclearReason | None]:
    if row.low is None or row.high is None or row.p_holm is None:
        return ComparisonVerdict.UNCLEAR, UnclearReason.SINGLE_RUN
    if _has_too_few_runs(row.level, row.runs):
        return ComparisonVerdict.UNCLEAR, UnclearReason.TOO_FEW_RUNS
    if row.low >= 1 - margin and row.high <= 1 + margin:
        return ComparisonVerdict.SAME, None
    if row.low <= 1 <= row.high and row.unstable:
        return ComparisonVerdict.UNCLEAR, UnclearReason(row.unstable.value)
    if row.low <= 1 <= row.high:
        return ComparisonVerdict.UNCLEAR, UnclearReason.INTERVAL_CONTAINS_ONE
    if abs(row.ratio - 1) <= margin:
        return ComparisonVerdict.UNCLEAR, UnclearReason.WITHIN_MARGIN
    if row.p_holm > ALPHA:
        return ComparisonVerdict.UNCLEAR, UnclearReason.NOT_SIGNIFICANT
    better = (row.ratio > 1) == higher_is_better(row.metric)
    return (ComparisonVerdict.FASTER if better else ComparisonVerdict.SLOWER), None
