"""Evaluates claims: one function per kind of query, for one phone or for the whole fleet. Pure.

A value is the median over runs. Its error is the factor, less one, to the farther end of the 95 %
interval, including the model's error; of fewer than four runs, of their range. The error of a share
is a factor of its odds, so that it stays between 0 and 1.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations

from orchestrator.analysis.measurements import weakest_provenance
from orchestrator.analysis.rank_statement import CLAIM_RUNS_MIN
from orchestrator.analysis.stats import (
    geometric_mean,
    kendall_tau,
    median,
    median_interval,
    scale_distance,
    shift_on_scale,
    widen_by_model,
)
from orchestrator.study.evidence import (
    Gap,
    NoEvidence,
    Observation,
    RunSettings,
    StudyEvidence,
    matches_settings,
)
from orchestrator.study.study_catalogue import Query, QueryKind, format_number
from orchestrator.study.telemetry_metrics import SHARES
from workloads.protocol.metrics import Provenance
from workloads.units import count_text

SHOWN_MAX = 6


@dataclass(frozen=True)
class ClaimResult:
    """The result of a claim: a number, a range or a label, and its provenance."""

    n: int
    provenance: Provenance
    value: float | None = None
    half_rel: float = 0.0
    range: tuple[float, float] | None = None
    label: str = ""  # the result, if it is not a number
    detail: str = ""  # shown in parentheses after the result
    is_significant: bool | None = None  # of a label: whether it is more than chance
    half_abs: float = 0.0  # of a difference, instead of half_rel
    is_share: bool = False
    stands_for: str = ""  # why it is not the result that was asked for

    def widen(self, low: float, high: float) -> tuple[float, float]:
        """Add the error to both ends of what was seen."""
        if self.half_abs:
            return low - self.half_abs, high + self.half_abs
        by = math.log1p(self.half_rel)
        return (
            shift_on_scale(low, -by if low > 0 else by, self.is_share),
            shift_on_scale(high, by if high > 0 else -by, self.is_share),
        )


@dataclass(frozen=True)
class _Estimate:
    value: float
    half_rel: float
    n: int
    provenance: Provenance
    is_share: bool = False


def evaluate_value(query: Query, evidence: StudyEvidence, phone: str) -> ClaimResult:
    """Return a metric's value; along an axis, the range of the values."""
    if query.axis:
        along = _along_axis(query, query.metric, evidence, phone)
        return _range_of({name: _as_result(estimate) for name, estimate in along.items()})
    return _as_result(_estimate(query.metric, query.where, evidence, phone))


def _as_result(estimate: _Estimate) -> ClaimResult:
    known = (estimate.n, estimate.provenance, estimate.value, estimate.half_rel)
    return ClaimResult(*known, is_share=estimate.is_share)


def evaluate_ratio(query: Query, evidence: StudyEvidence, phone: str) -> ClaimResult:
    """Return the ratio of two values; along an axis, the range of the ratios."""
    second_metric = query.second_metric or query.metric
    if not query.axis:
        return _ratio(
            _estimate(query.metric, query.where | query.first, evidence, phone),
            _estimate(second_metric, query.where | query.second, evidence, phone),
        )
    ratios: dict[str, ClaimResult] = {}
    for name, where in _axis_settings(query, evidence, phone):
        try:
            first = _estimate(query.metric, {**where, **query.first}, evidence, phone)
            second = _estimate(second_metric, {**where, **query.second}, evidence, phone)
            ratios[name] = _ratio(first, second)
        except NoEvidence:
            continue
    if not ratios:
        raise evidence.why_not(phone, query.metric, query.where | query.first)
    return _range_of(ratios)


def _range_of(results: Mapping[str, ClaimResult]) -> ClaimResult:
    """Return the range of several results, and at which settings its ends are."""
    ordered = sorted(results, key=lambda name: results[name].value or 0.0)
    low, high = results[ordered[0]].value or 0.0, results[ordered[-1]].value or 0.0
    ends = ordered[0] if len(ordered) == 1 else f"{ordered[0]} to {ordered[-1]}"
    half_rel = max(result.half_rel for result in results.values())
    detail = f"{ends}, n = {len(results)}"
    is_share = all(result.is_share for result in results.values())
    basis = (*_basis(results.values()), None, half_rel, (low, high))
    return ClaimResult(*basis, detail=detail, is_share=is_share)


def evaluate_ratio_change(query: Query, evidence: StudyEvidence, phone: str) -> ClaimResult:
    """Return a ratio under some settings over the same ratio under others."""
    larger, smaller = (
        _ratio(
            _estimate(query.metric, {**query.where, **at, **query.first}, evidence, phone),
            _estimate(query.metric, {**query.where, **at, **query.second}, evidence, phone),
        )
        for at in (query.larger, query.smaller)
    )
    change = _ratio(larger, smaller)
    detail = " over ".join(format_number(ratio.value or 0.0) for ratio in (larger, smaller))
    return replace(change, detail=detail)


def evaluate_difference(query: Query, evidence: StudyEvidence, phone: str) -> ClaimResult:
    """Return the first value minus the second."""
    first = _estimate(query.metric, query.where | query.first, evidence, phone)
    second_metric = query.second_metric or query.metric
    second = _estimate(second_metric, query.where | query.second, evidence, phone)
    half_abs = math.hypot(first.value * first.half_rel, second.value * second.half_rel)
    basis = _basis((first, second))
    return ClaimResult(*basis, first.value - second.value, half_abs=half_abs)


def evaluate_best_setting(query: Query, evidence: StudyEvidence, phone: str) -> ClaimResult:
    """Return the setting on an axis with the lowest value, or the highest."""
    estimates = _along_axis(query, query.metric, evidence, phone)
    _require_two(estimates, Gap.TOO_FEW_SETTINGS, "settings")
    return _best(estimates, query.highest)


def evaluate_pareto_front(query: Query, evidence: StudyEvidence, phone: str) -> ClaimResult:
    """Return the settings on an axis that no other beats in both of two metrics."""
    first = _along_axis(query, query.metric, evidence, phone)
    second = _along_axis(query, query.second_metric, evidence, phone)
    both = sorted(set(first) & set(second), key=lambda name: (first[name].value, name))
    if not both:
        raise evidence.why_not(phone, query.second_metric, query.where)
    front: list[str] = []
    for name in both:
        if not front or second[name].value < second[front[-1]].value:
            front.append(name)
    estimates = [values[name] for values in (first, second) for name in front]
    return ClaimResult(*_basis(estimates), label=", ".join(front))


def evaluate_largest_below(query: Query, evidence: StudyEvidence, phone: str) -> ClaimResult:
    """Return the largest number on an axis at which a metric stays below a limit."""
    estimates = {
        int(name): estimate
        for name, estimate in _along_axis(query, query.metric, evidence, phone).items()
    }
    below = [size for size in estimates if estimates[size].value <= (query.limit or math.inf)]
    tried = f"of {', '.join(map(str, sorted(estimates)))}"
    if not below:
        return ClaimResult(*_basis(estimates.values()), label=f"none {tried}")
    return ClaimResult(*_basis(estimates.values()), float(max(below)), detail=tried)


def evaluate_breakdown(query: Query, evidence: StudyEvidence, phone: str) -> ClaimResult:
    """Return the shares along an axis, the largest first."""
    shares = _along_axis(query, query.metric, evidence, phone)
    ordered = sorted(shares, key=lambda name: -shares[name].value)
    shown = [f"{name} {100 * shares[name].value:.0f} %" for name in ordered[:SHOWN_MAX]]
    return ClaimResult(*_basis(shares.values()), label=", ".join(shown))


def evaluate_outcome(query: Query, evidence: StudyEvidence, phone: str) -> ClaimResult:
    """Return the outcome of runs that show one: of valid runs, and of those without memory."""
    outcomes = [
        outcome
        for outcome in evidence.outcomes
        if outcome.is_conclusive
        and outcome.phone == phone
        and matches_settings(outcome.settings, query.where)
    ]
    provenances = [item.provenance for item in outcomes if item.provenance is not None]
    if not outcomes or not provenances:
        raise evidence.why_not(phone, "", query.where)
    counts: dict[str, int] = {}
    for outcome in outcomes:
        label = query.called.get(outcome.label, outcome.label)
        counts[label] = counts.get(label, 0) + 1
    labels = sorted(counts, key=lambda label: -counts[label])
    several = ", ".join(f"{label} ({counts[label]})" for label in labels)
    label, is_one = (labels[0], True) if len(labels) == 1 else (several, False)
    source = weakest_provenance(provenances)
    return ClaimResult(len(outcomes), source, label=label, is_significant=is_one)


def evaluate_phone_ratio(query: Query, evidence: StudyEvidence) -> ClaimResult:
    """Return the slowest phone's value over the fastest one's, or that of two named phones."""
    estimates = _by_phone(query.metric, query.where, evidence)
    _require_two(estimates, Gap.TOO_FEW_PHONES, "phones")
    named = [
        [phone for phone in estimates if is_same_model(model, evidence.phones[phone])]
        for model in query.models
    ]
    pair = [phones[0] for phones in named if phones]
    is_named = bool(pair) and len(pair) == len(named)
    if not is_named:
        ordered = sorted(estimates, key=lambda phone: -estimates[phone].value)
        pair = [ordered[0], ordered[-1]]
    ratio = _ratio(estimates[pair[0]], estimates[pair[1]])
    names = " / ".join(evidence.phones[phone] for phone in pair)
    stands_for = "" if is_named or not named else "the two named phones are not both here"
    return replace(ratio, detail=names, stands_for=stands_for)


def evaluate_best_phone(query: Query, evidence: StudyEvidence) -> ClaimResult:
    """Return the phone with the lowest value, or the highest."""
    estimates = _by_phone(query.metric, query.where, evidence)
    by_model = {evidence.phones[phone]: estimate for phone, estimate in estimates.items()}
    _require_two(by_model, Gap.TOO_FEW_PHONES, "models of phones")
    return _best(by_model, query.highest)


def evaluate_rank_agreement(query: Query, evidence: StudyEvidence) -> ClaimResult:
    """Return how well rankings of the phones agree (mean of Kendall's tau)."""
    if query.axis:
        settings = {
            name: where
            for phone in evidence.phones
            for name, where in _axis_settings(query, evidence, phone)
        }
        rankings = [_by_phone(query.metric, where, evidence) for where in settings.values()]
    else:
        second_metric = query.second_metric or query.metric
        rankings = [
            _by_phone(query.metric, query.where | query.first, evidence),
            _by_phone(second_metric, query.where | query.second, evidence),
        ]
    taus: list[float] = []
    for one, other in combinations(rankings, 2):
        shared = sorted(set(one) & set(other))
        if len(shared) > 1:
            values = [[ranking[phone].value for phone in shared] for ranking in (one, other)]
            taus.append(kendall_tau(*values))
    if not taus:
        raise NoEvidence(Gap.TOO_FEW_PHONES, "needs at least two phones with the same values")
    estimates = [estimate for ranking in rankings for estimate in ranking.values()]
    detail = f"{count_text(len(taus), 'pair')} of rankings"
    return ClaimResult(*_basis(estimates), sum(taus) / len(taus), detail=detail)


PHONE_EVALUATORS: dict[QueryKind, Callable[[Query, StudyEvidence, str], ClaimResult]] = {
    QueryKind.VALUE: evaluate_value,
    QueryKind.RATIO: evaluate_ratio,
    QueryKind.RATIO_CHANGE: evaluate_ratio_change,
    QueryKind.DIFFERENCE: evaluate_difference,
    QueryKind.BEST_SETTING: evaluate_best_setting,
    QueryKind.PARETO_FRONT: evaluate_pareto_front,
    QueryKind.LARGEST_BELOW: evaluate_largest_below,
    QueryKind.BREAKDOWN: evaluate_breakdown,
    QueryKind.OUTCOME: evaluate_outcome,
}
FLEET_EVALUATORS: dict[QueryKind, Callable[[Query, StudyEvidence], ClaimResult]] = {
    QueryKind.PHONE_RATIO: evaluate_phone_ratio,
    QueryKind.BEST_PHONE: evaluate_best_phone,
    QueryKind.RANK_AGREEMENT: evaluate_rank_agreement,
}


def is_same_model(one: str, other: str) -> bool:
    """Return whether two names may be those of one model: 'Meizu 16T' and 'MEIZU 16T 8GB'."""
    shorter, longer = sorted(({*one.casefold().split()}, {*other.casefold().split()}), key=len)
    return bool(shorter) and shorter <= longer


def _best(estimates: Mapping[str, _Estimate], highest: bool) -> ClaimResult:
    """Return the best of several names, with its lead; a lead within the error is marked."""
    ordered = sorted(estimates, key=lambda name: estimates[name].value, reverse=highest)
    best = estimates[ordered[0]]
    provenance = weakest_provenance(estimate.provenance for estimate in estimates.values())
    second = estimates[ordered[1]]
    lead = _ratio(best, second) if highest else _ratio(second, best)
    is_significant = (
        (lead.value or 0.0) - 1 > lead.half_rel
        and not provenance.error_unknown
        and lead.n >= CLAIM_RUNS_MIN
    )
    note = "" if is_significant else ", not significant"
    detail = f"{lead.value or 0.0:.2f} times ahead of {ordered[1]}{note}"
    return ClaimResult(
        best.n, provenance, label=ordered[0], detail=detail, is_significant=is_significant
    )


def _require_two(estimates: Mapping[str, _Estimate], gap: Gap, what: str) -> None:
    if len(estimates) < 2:
        raise NoEvidence(gap, f"needs at least two {what} with this value")


def _by_phone(metric: str, where: RunSettings, evidence: StudyEvidence) -> dict[str, _Estimate]:
    estimates = {}
    for phone in evidence.phones:
        try:
            estimates[phone] = _estimate(metric, where, evidence, phone)
        except NoEvidence:
            continue
    return estimates


def _estimate(metric: str, where: RunSettings, evidence: StudyEvidence, phone: str) -> _Estimate:
    """Return a phone's value; if several cells match, their geometric mean."""
    observations = evidence.find(phone, metric, where)
    if not observations:
        raise evidence.why_not(phone, metric, where)
    medians = [median(observation.values) for observation in observations]
    is_share = metric.partition(".")[0] in SHARES
    mean = geometric_mean(medians) if min(medians) > 0 else sum(medians) / len(medians)
    return _Estimate(
        medians[0] if len(medians) == 1 else mean,
        max(_half_rel(observation, is_share) for observation in observations),
        min(len(observation.values) for observation in observations),
        weakest_provenance(observation.provenance for observation in observations),
        is_share,
    )


def _half_rel(observation: Observation, is_share: bool) -> float:
    found = median_interval(observation.values)
    interval = widen_by_model(found, observation.provenance, is_share)
    if interval.known_ends is None or not interval.middle:
        return 0.0
    ends = interval.known_ends
    distance = max(scale_distance(interval.middle, end, is_share) for end in ends)
    if math.isfinite(distance):
        return math.expm1(distance)
    rest = 1 - interval.middle  # an end beyond the scale: as far as the interval is wide
    return interval.half_width_rel / (rest if is_share and rest > 0 else 1)


def _ratio(first: _Estimate | ClaimResult, second: _Estimate | ClaimResult) -> ClaimResult:
    if not second.value:
        raise NoEvidence(Gap.ZERO_DIVISOR, "the divisor is zero")
    half_rel = math.expm1(math.hypot(math.log1p(first.half_rel), math.log1p(second.half_rel)))
    return ClaimResult(*_basis((first, second)), (first.value or 0.0) / second.value, half_rel)


def _basis(parts: Iterable[_Estimate | ClaimResult]) -> tuple[int, Provenance]:
    """Return the fewest runs and the weakest provenance of what a result is computed from."""
    known = list(parts)
    return min(part.n for part in known), weakest_provenance(part.provenance for part in known)


def _along_axis(
    query: Query, metric: str, evidence: StudyEvidence, phone: str
) -> dict[str, _Estimate]:
    estimates = {
        name: _estimate(metric, where, evidence, phone)
        for name, where in _axis_settings(query, evidence, phone, metric)
    }
    if not estimates:
        raise evidence.why_not(phone, metric, query.where)
    return estimates


def _axis_settings(
    query: Query, evidence: StudyEvidence, phone: str, metric: str = ""
) -> list[tuple[str, dict[str, str | int]]]:
    """Return the values on an axis (or on two, as 'cores freq') that a phone has, by name."""
    axes = query.axis.split()
    by_name: dict[str, dict[str, str | int]] = {}
    for observation in evidence.find(phone, metric or query.metric, query.where):
        if all(axis in observation.settings for axis in axes):
            point = {axis: observation.settings[axis] for axis in axes}
            if query.among and not set(map(str, point.values())) & set(query.among):
                continue
            name = " ".join(
                value if isinstance(value, str) else format_number(value)
                for value in point.values()
            )
            by_name.setdefault(name, query.where | point)
    return sorted(by_name.items())
