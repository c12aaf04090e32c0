"""Whether the metrics of a report can be what they claim to be; a host may claim anything."""

from collections.abc import Sequence
from typing import get_args

from workloads.protocol.metrics import Family, Metric, Provenances, metric_kind
from workloads.text import safe_text


def metric_objection(metrics: Sequence[Metric], announced: Provenances | None) -> str:
    """Return what is wrong with the metrics of a report, or nothing.

    Each one must be in the catalogue, with its unit, and have the source that the phone was
    announced with for that family of metrics: a simulated number is never taken for a measured one.
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
        own, source = stated[kind.family], metric.provenance.source
        if announced is not None and (source is not own.source if own else source not in sources):
            return f"{name} claims the source {source}, which the phone lacks"
    return ""
