"""The health of a service over HTTP, what it counts, and its log as JSON."""

import http.client
import json
import logging
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from workloads.lab.logging_setup import JsonFormatter, log_values
from workloads.lab.service_health import HealthServer, ServiceHealth, is_own_name, serve_health
from workloads.lab.service_metrics import SERVICE_METRICS, CounterType, Service, ServiceMetrics
from workloads.protocol.messages import RunId


@pytest.fixture
def health() -> ServiceHealth:
    return ServiceHealth(Service.SCHEDULER)


@pytest.fixture
def server(health: ServiceHealth) -> Iterator[HealthServer]:
    started = HealthServer(health, "127.0.0.1:0")
    yield started
    started.close()


def get(server: HealthServer, path: str, host: str = "127.0.0.1") -> tuple[int, str]:
    connection = http.client.HTTPConnection(server.address, timeout=120)
    connection.request("GET", path, headers={"Host": host})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_a_service_is_ready_when_its_loop_runs_and_nothing_is_missing(
    health: ServiceHealth, server: HealthServer
) -> None:
    assert get(server, "/healthz")[0] == 200
    assert get(server, "/readyz") == (503, "the service is starting\n")
    health.beat()
    assert get(server, "/readyz") == (200, "ok\n")
    health.set_trouble("store", "the store is down")
    assert get(server, "/readyz") == (503, "the store is down\n")
    assert get(server, "/healthz")[0] == 200
    assert "\nfarm_ready 0.0\n" in get(server, "/metrics")[1]
    health.set_trouble("store")
    assert get(server, "/readyz")[0] == 200


def test_a_loop_that_hangs_is_a_reason_to_restart() -> None:
    health = ServiceHealth(Service.INGEST, stuck_after_s=0.01)
    server = HealthServer(health, "127.0.0.1:0")
    time.sleep(0.05)
    assert get(server, "/healthz")[0] == 503
    assert "no progress" in get(server, "/readyz")[1]
    server.close()


def test_what_is_not_a_question_about_health_is_refused(server: HealthServer) -> None:
    assert get(server, "/metrics/../etc")[0] == 404
    assert get(server, "/metrics", host="page.example.org")[0] == 421
    assert get(server, "/metrics", host="scheduler:9400")[0] == 200
    address, _, port = server.address.rpartition(":")
    with socket.create_connection((address, int(port))) as raw:
        raw.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
        assert raw.recv(100) != b""
    assert get(server, "/healthz")[0] == 200
    assert is_own_name("[::1]:80")
    assert not is_own_name("")


def test_a_port_that_is_taken_does_not_end_the_service(
    health: ServiceHealth, server: HealthServer, tmp_path: Path
) -> None:
    assert serve_health(health, server.address, tmp_path / "run" / "x.json") is None
    other = serve_health(health, "127.0.0.1:0", tmp_path / "run" / "x.json")
    assert other is not None
    (target,) = json.loads((tmp_path / "run" / "x.json").read_text())
    assert target == {"targets": [other.address], "labels": {"service": "scheduler"}}
    other.close()


@pytest.mark.parametrize("service", Service)
def test_every_metric_of_a_service_is_shown(service: Service) -> None:
    metrics = ServiceMetrics(service)
    for metric in SERVICE_METRICS.values():
        if service not in metric.services:
            with pytest.raises(KeyError):
                metrics.add(metric.name)
        elif metric.type is CounterType.COUNTER:
            metrics.add(metric.name, 2, "x" if metric.label else "")
        elif metric.type is CounterType.HISTOGRAM:
            metrics.observe(metric.name, 0.1)
        elif metric.label:
            metrics.set_by_label(metric.name, {"old": 1})
            metrics.set_by_label(metric.name, {"x": 2})
        else:
            metrics.set(metric.name, 2)
    text = metrics.text().decode()
    assert '="old"' not in text
    assert "process_resident_memory_bytes" in text
    for metric in SERVICE_METRICS.values():
        assert (f"# HELP {metric.name} {metric.text}" in text) == (service in metric.services)


def record(message: str, *values: object) -> logging.LogRecord:
    return logging.LogRecord("farm.agent", logging.INFO, "", 0, message, values, None)


def test_a_json_line_has_the_named_values_and_none_that_a_phone_made_up() -> None:
    run = RunId(trial="tr-" + "0" * 16, repeat=1, attempt=2)
    form = JsonFormatter("agent").format
    with log_values(sweep="sw-1", host="host-a"):
        text = form(
            record("ended: %s run=%s phone=%s seconds=%.1f", "x phone=b", run, "a\n\x1b", 2)
        )
    line = json.loads(text)
    del line["time"]
    assert line == {
        "level": "INFO",
        "service": "agent",
        "logger": "farm.agent",
        "message": "ended: x phone=b",
        "sweep": "sw-1",
        "host": "host-a",
        "trial": run.trial,
        "repeat": 1,
        "attempt": 2,
        "phone": "a",
        "seconds": 2,
    }
    assert "\n" not in text
    assert "sweep" not in json.loads(form(record("started")))
    assert json.loads(form(record("100%% of %d", 3)))["message"] == "100% of 3"
