"""What each service counts about itself, in the form that Prometheus reads.

One table lists every name. A label has few values: never a run, a trial or a phone.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.process_collector import ProcessCollector

from workloads.lab.process_identity import software_version

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0)


class Service(StrEnum):
    """A process of a lab."""

    SCHEDULER = "scheduler"
    INGEST = "ingest"
    API = "api"
    AGENT = "agent"


class CounterType(StrEnum):
    """How a value develops: only up, up and down, or as a distribution."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class ServiceMetric(NamedTuple):
    """One name of /metrics."""

    name: str
    type: CounterType
    services: tuple[Service, ...]
    text: str
    label: str = ""


_ALL = tuple(Service)
_SCHEDULER, _INGEST, _API, _AGENT = ((service,) for service in Service)
_COUNTER, _GAUGE, _HISTOGRAM = CounterType
SERVICE_METRICS = {
    metric.name: metric
    for metric in (
        ServiceMetric("farm_ready", _GAUGE, _ALL, "1 if /readyz answers 200, else 0"),
        ServiceMetric("farm_software", _GAUGE, _ALL, "1, with the installed version", "version"),
        ServiceMetric("farm_tick_seconds", _HISTOGRAM, _SCHEDULER, "duration of ticks"),
        ServiceMetric("farm_jobs_sent_total", _COUNTER, _SCHEDULER, "jobs that were sent to hosts"),
        ServiceMetric("farm_leases_expired_total", _COUNTER, _SCHEDULER, "leases that expired"),
        ServiceMetric("farm_phones", _GAUGE, (*_SCHEDULER, *_AGENT), "phones by state", "state"),
        ServiceMetric("farm_unhealthy_phones", _GAUGE, _SCHEDULER, "phones by health", "health"),
        ServiceMetric("farm_hosts", _GAUGE, _SCHEDULER, "hosts whose heartbeat is fresh"),
        ServiceMetric("farm_host_problems", _GAUGE, _SCHEDULER, "hosts with a problem", "problem"),
        ServiceMetric(
            "farm_claims_ignored", _GAUGE, _SCHEDULER, "phones and runs of others that hosts name"
        ),
        ServiceMetric("farm_runs_left", _GAUGE, _SCHEDULER, "runs left of the ten newest sweeps"),
        ServiceMetric("farm_notices_open", _GAUGE, _SCHEDULER, "active conditions", "kind"),
        ServiceMetric("farm_notices_waiting", _GAUGE, _SCHEDULER, "notices not delivered yet"),
        ServiceMetric(
            "farm_notice_deliveries_total", _COUNTER, _SCHEDULER, "delivery attempts", "outcome"
        ),
        ServiceMetric("farm_prunes_total", _COUNTER, _SCHEDULER, "pruning attempts", "outcome"),
        ServiceMetric("farm_disk_free_bytes", _GAUGE, _SCHEDULER, "free space of the lab folder"),
        ServiceMetric("farm_reports_total", _COUNTER, _INGEST, "stored reports", "status"),
        ServiceMetric("farm_parcels_total", _COUNTER, _INGEST, "stored parcels of all kinds"),
        ServiceMetric("farm_messages_dropped_total", _COUNTER, _INGEST, "invalid messages", "host"),
        ServiceMetric("farm_store_seconds", _HISTOGRAM, _INGEST, "duration of transactions"),
        ServiceMetric("farm_requests_total", _COUNTER, _API, "requests by HTTP status", "status"),
        ServiceMetric("farm_request_seconds", _HISTOGRAM, _API, "duration of requests"),
        ServiceMetric("farm_attempts_total", _COUNTER, _AGENT, "ended attempts", "outcome"),
        ServiceMetric("farm_reports_waiting", _GAUGE, _AGENT, "reports not confirmed yet"),
        ServiceMetric(
            "farm_messages_refused_total", _COUNTER, _AGENT, "messages that could not be read"
        ),
    )
}


class ServiceMetrics:
    """The values of one process. Names of other services are refused, so a typing error fails."""

    def __init__(self, service: Service) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call] # a second name per counter
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)  # memory, CPU time, open files
        self._values: dict[str, Counter | Gauge | Histogram] = {}
        for metric in SERVICE_METRICS.values():
            if service in metric.services:
                self._values[metric.name] = self._create(metric)
        self.set_by_label("farm_software", {software_version(): 1.0})

    def _create(self, metric: ServiceMetric) -> Counter | Gauge | Histogram:
        labels = (metric.label,) if metric.label else ()
        name = metric.name.removesuffix("_total")
        if metric.type is CounterType.COUNTER:
            return Counter(name, metric.text, labels, registry=self._registry)
        if metric.type is CounterType.GAUGE:
            return Gauge(name, metric.text, labels, registry=self._registry)
        return Histogram(name, metric.text, labels, registry=self._registry, buckets=SECONDS)

    def add(self, name: str, amount: float = 1.0, label: str = "") -> None:
        """Add to a counter."""
        counter = self._values[name]
        assert isinstance(counter, Counter)
        (counter.labels(label) if label else counter).inc(amount)

    def set(self, name: str, value: float) -> None:
        """Set a value that has no label."""
        gauge = self._values[name]
        assert isinstance(gauge, Gauge)
        gauge.set(value)

    def set_by_label(self, name: str, values: Mapping[str, float]) -> None:
        """Set the values of all labels; labels that are not named vanish."""
        gauge = self._values[name]
        assert isinstance(gauge, Gauge)
        gauge.clear()
        for label, value in values.items():
            gauge.labels(label).set(value)

    def observe(self, name: str, seconds: float) -> None:
        """Add a duration."""
        histogram = self._values[name]
        assert isinstance(histogram, Histogram)
        histogram.observe(seconds)

    def text(self) -> bytes:
        """Return all values as Prometheus reads them."""
        return generate_latest(self._registry)
