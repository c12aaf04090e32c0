"""Groups metric values by trial; values that do not count are counted with their reason."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from orchestrator.analysis.measurements import (
    Exclusion,
    MeasuredRun,
    MeasuredTrial,
    MeasurementKind,
    MetricValue,
    TrialSeries,
    weakest_provenance,
)
from orchestrator.analysis.stats import median
from workloads.protocol.verdict import Validity


def trial_series(runs: Iterable[MeasuredRun], metric: str = "") -> list[TrialSeries]:
    """Return one metric of every trial among some runs; by default the condition's headline."""
    return group_by_trial(_metric_value(run, metric or run.condition.headline) for run in runs)


def group_by_trial(values: Iterable[MetricValue]) -> list[TrialSeries]:
    """Return every trial with its values, in the order of its blocks."""
    by_trial: dict[tuple[str, str], list[MetricValue]] = {}
    for value in values:
        by_trial.setdefault((value.trial.trial, value.trial.phone), []).append(value)
    return [_series(members) for members in by_trial.values()]


def cell_medians(values: Iterable[MetricValue]) -> dict[tuple[str, str], float]:
    """Return the median of the phones' medians of every cell with a valid run, by its labels."""
    by_cell: dict[tuple[str, str], list[float]] = {}
    for series in group_by_trial(values):
        if series.values:
            cell = (series.case.label, series.condition.label)
            by_cell.setdefault(cell, []).append(median(series.values))
    return {cell: median(medians) for cell, medians in by_cell.items()}


def _series(values: Sequence[MetricValue]) -> TrialSeries:
    counted: list[tuple[MetricValue, float]] = []
    left_out: Counter[Exclusion] = Counter()
    for value in sorted(values, key=lambda value: value.block):
        exclusion = _exclusion(value)
        if exclusion is not None:
            left_out[exclusion] += 1
        elif value.value is not None:
            counted.append((value, value.value))
    provenances = {value.provenance for value, _ in counted if value.provenance is not None}
    return TrialSeries(
        **vars(values[0].trial),
        metric=values[0].metric,
        values=tuple(number for _, number in counted),
        blocks=tuple(value.block for value, _ in counted),
        times=tuple(value.started_at for value, _ in counted),
        provenance=weakest_provenance(provenances) if provenances else None,
        kinds=frozenset(_kind(value) for value, _ in counted),
        left_out=left_out,
    )


def _kind(value: MetricValue) -> MeasurementKind:
    source = value.provenance.source.value if value.provenance else "unknown"
    return MeasurementKind(source, value.control, value.grade)


def _exclusion(value: MetricValue) -> Exclusion | None:
    """Return why a value takes no part in a comparison; None when it does."""
    if value.validity is not Validity.VALID:
        return Exclusion(value.validity.value)
    if value.value is None:
        return Exclusion.METRIC_MISSING
    if not math.isfinite(value.value) or value.value <= 0:
        return Exclusion.NOT_POSITIVE
    return None


def _metric_value(run: MeasuredRun, name: str) -> MetricValue:
    metric = run.metrics.get(name)
    facts = run.facts
    return MetricValue(
        trial=MeasuredTrial(
            run.sweep, run.trial, run.phone, facts.model, facts.soc, run.case, run.condition
        ),
        metric=name,
        block=run.block,
        started_at=run.started_at,
        validity=run.validity_of(name),
        control=str(run.control or "unknown"),
        grade=metric.grade if metric else "",
        value=metric.value if metric else None,
        provenance=metric.provenance if metric else None,
    )
