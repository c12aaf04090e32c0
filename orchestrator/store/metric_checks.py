"""Whether the metrics of a report can be what they claim to be; a host may claim anything."""

from collections.abc import Sequence
from typing import get_args

from workloads.protocol.condition import HEADLINES
from workloads.protocol.metrics import Family, Metric, Provenances, metric_kind
from workloads.text import safe_text

# Of the size of a value that is not zero: ratios, squares and axes of such values are finite.
SIZE_MIN, SIZE_MAX = 1e-30, 1e15
_NEVER_NEGATIVE = ("ms", "MB", "1/s")  # units
_NEVER_ZERO = frozenset(HEADLINES.values())  # tables show ratios of these


def metric_objection(metrics: Sequence[Metric], announced: Provenances | None) -> str:
    """Return what is wrong with the metrics of a report, or nothing.

    Each one must be in the catalogue, with its unit and a possible value, and have the source that
    the phone was announced with for that family of metrics: a simulated number is never taken for a
    measured one.
    """
    stated = {family: announced and announced.for_family(family) for family in get_args(Family)}
    sources = {item.source for item in stated.values() if item}
    names: set[str] = set()
    for metric in metrics:
        name, kind = metric.name, metric_kind(metric.name)
        if kind is None or metric.unit != kind.unit:
            return f"there is no metric {safe_text(name, 60)} in '{safe_text(metric.unit, 20)}'"
        if name in names:
            return f"the metric {name} occurs twice"
        names.add(name)
        value = metric.value
        size_is_possible = SIZE_MIN <= abs(value) <= SIZE_MAX or (
            value == 0 and name not in _NEVER_ZERO
        )
        if not size_is_possible or (value < 0 and kind.unit in _NEVER_NEGATIVE):
            return f"{name} cannot be {value:g} {kind.unit}"
        own, source = stated[kind.family], metric.provenance.source
        if announced is not None and (source is not own.source if own else source not in sources):
            return f"{name} claims the source {source}, which the phone lacks"
    return ""
