"""Finds where a metric of one phone and workload changed over time and stayed changed.

A change point is accepted if the runs before and after it differ by more than the margin, and the
best of all possible cuts would rarely look like this by chance. Values of different kinds (source,
control, energy grade) are never joined into one history.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from orchestrator.analysis.ab_comparison import ALPHA, MARGIN, ComparisonVerdict, higher_is_better
from orchestrator.analysis.log_ratio import RunPair, estimate_log_ratio
from orchestrator.analysis.measurements import MeasurementKind, TrialSeries
from orchestrator.analysis.stats import median
from workloads.text import natural_sort_key

RUNS_PER_SIDE = 4
CUT_PENALTY = 3.0  # in units of the gain of a cut in pure noise
CHANGE_ALPHA = ALPHA / 5  # many histories are checked, and each of them repeatedly


@dataclass(frozen=True)
class ChangePoint:
    """A point where a history changed."""

    started_at: datetime  # of the first run after the change
    before: float
    after: float
    p: float  # of the best cut, times the number of possible cuts
    verdict: ComparisonVerdict

    @property
    def ratio(self) -> float:
        """The median after the change over the median before it."""
        return self.after / self.before


@dataclass(frozen=True)
class MetricHistory:
    """All valid runs of one case under one condition on one phone, of one measurement kind."""

    phone: str
    model: str
    case: str
    condition: str
    metric: str
    kind: MeasurementKind
    sweeps: int
    times: tuple[datetime, ...]
    values: tuple[float, ...]
    changes: tuple[ChangePoint, ...]


def metric_histories(trials: Iterable[TrialSeries]) -> list[MetricHistory]:
    """Return every history among the trials of any sweeps, with its change points."""
    groups: dict[tuple[str, str, str, MeasurementKind], list[TrialSeries]] = {}
    for trial in trials:
        if len(trial.kinds) == 1:
            (kind,) = trial.kinds
            key = (trial.phone, trial.case.digest, trial.condition.digest, kind)
            groups.setdefault(key, []).append(trial)
    histories = [_history(members, key[3]) for key, members in groups.items()]
    return sorted(
        histories,
        key=lambda item: (item.model, item.phone, natural_sort_key(item.case), item.condition),
    )


def _history(trials: Sequence[TrialSeries], kind: MeasurementKind) -> MetricHistory:
    runs = sorted(
        (time, value)
        for trial in trials
        for time, value in zip(trial.times, trial.values, strict=True)
    )
    times, values = tuple(time for time, _ in runs), tuple(value for _, value in runs)
    first = trials[0]
    return MetricHistory(
        phone=first.phone,
        model=first.model,
        case=first.case.label,
        condition=first.condition.label,
        metric=first.metric,
        kind=kind,
        sweeps=len({trial.sweep for trial in trials}),
        times=times,
        values=values,
        changes=_change_points(first.metric, times, values),
    )


def _change_points(
    metric: str, times: Sequence[datetime], values: Sequence[float]
) -> tuple[ChangePoint, ...]:
    cuts = _significant_cuts(values, _optimal_cuts(values))
    changes = []
    for start, cut, end in _segments_around(cuts, len(values)):
        before, after = median(values[start:cut]), median(values[cut:end])
        better = (after > before) == higher_is_better(metric)
        verdict = ComparisonVerdict.FASTER if better else ComparisonVerdict.SLOWER
        p = _corrected_p(values, start, cut, end)
        changes.append(ChangePoint(times[cut], before, after, p, verdict))
    return tuple(changes)


def _segments_around(cuts: Sequence[int], n: int) -> list[tuple[int, int, int]]:
    """Return every cut with the start of the segment before it and the end of the one after it."""
    edges = [0, *cuts, n]
    return [(edges[i], edges[i + 1], edges[i + 2]) for i in range(len(cuts))]


def _significant_cuts(values: Sequence[float], cuts: list[int]) -> list[int]:
    """Drop the weakest cut repeatedly until all remaining cuts are significant."""
    while cuts:
        strengths = []
        for start, cut, end in _segments_around(cuts, len(values)):
            change = abs(median(values[cut:end]) / median(values[start:cut]) - 1)
            p = _corrected_p(values, start, cut, end) if change > MARGIN else 1.0
            strengths.append((p, -change, cut))
        weakest = max(strengths)
        if weakest[0] <= CHANGE_ALPHA:
            return cuts
        cuts = [cut for cut in cuts if cut != weakest[2]]
    return []


def _corrected_p(values: Sequence[float], start: int, cut: int, end: int) -> float:
    """Return the p-value of a cut, corrected for choosing the best of all possible cuts."""
    estimate = estimate_log_ratio([RunPair("", values[start:cut], values[cut:end])])
    return 1.0 if estimate is None else min(1.0, estimate.p_value() * len(values))


def _optimal_cuts(values: Sequence[float]) -> list[int]:
    """Choose cuts that minimise the scatter within segments plus a penalty per cut.

    Outliers are clipped first, so that none of them becomes a segment.
    """
    n = len(values)
    if n < 2 * RUNS_PER_SIDE:
        return []
    import numpy as np

    logs = np.log(values)
    noise = float(np.median(np.abs(np.diff(logs)))) / (0.6745 * np.sqrt(2)) or 1e-9
    smooth = np.array([np.median(logs[max(0, i - 2) : i + 3]) for i in range(n)])
    logs = np.clip(logs, smooth - 3 * noise, smooth + 3 * noise)
    sums, squares = (np.concatenate([[0.0], np.cumsum(terms)]) for terms in (logs, logs**2))
    penalty = CUT_PENALTY * noise**2 * np.log(n)
    best, last = np.full(n + 1, np.inf), np.zeros(n + 1, dtype=int)
    best[0] = -penalty
    for end in range(RUNS_PER_SIDE, n + 1):
        starts = np.arange(end - RUNS_PER_SIDE + 1)
        length = end - starts
        scatter = squares[end] - squares[starts] - (sums[end] - sums[starts]) ** 2 / length
        total = best[starts] + scatter + penalty
        last[end] = int(np.argmin(total))
        best[end] = total[last[end]]
    cuts, end = [], n
    while last[end] > 0:
        end = int(last[end])
        cuts.append(end)
    return cuts[::-1]
