"""Whether the metrics of a report can be what they claim to be; a host may claim anything."""

from collections.abc import Sequence

from workloads.protocol.metrics import Metric, Provenances, metric_kind
from workloads.text import safe_text


def metric_objection(metrics: Sequence[Metric], announced: Provenances | None) -> str:
    """Return what is wrong with the metrics of a report, or nothing.

    Each one must be in the catalogue, with its unit, and have the source that the phone was
    announced with for that family of metrics: a simulated number is never taken for a measured one.
    """
    seen: set[str] = set()
    for metric in metrics:
        kind, name = metric_kind(metric.name), safe_text(metric.name, 60)
        if kind is None or metric.unit != kind.unit:
            return f"there is no metric {name} with the unit '{safe_text(metric.unit, 20)}'"
        if metric.name in seen:
            return f"the metric {name} occurs twice"
        seen.add(metric.name)
        if announced is None:
            continue
        own = announced.for_family(kind.family)
        families = (announced.time, announced.clock, announced.heat, announced.energy)
        allowed = {item.source for item in ((own,) if own else families) if item is not None}
        if metric.provenance.source not in allowed:
            return f"{name} claims the source {metric.provenance.source}, which the phone lacks"
    return ""
