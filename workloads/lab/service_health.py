"""The health of a service over HTTP: /healthz, /readyz and /metrics.

/healthz fails when the service's loop has stopped: restart it. /readyz also fails while the service
cannot work because something else is missing: wait. Both return the reason in one line.
"""

import ipaddress
import json
import logging
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

from workloads.lab.logging_setup import configure_logging
from workloads.lab.service_metrics import Service, ServiceMetrics

if TYPE_CHECKING:
    from workloads.lab.settings import Lab

log = logging.getLogger("farm.health")

REQUEST_TIMEOUT_S = 5.0
STUCK_AFTER_S = 120.0  # longer than the longest statement that the store allows


class ServiceHealth:
    """What a service knows about itself; its loop reports here, a server reads it."""

    def __init__(self, service: Service, stuck_after_s: float = STUCK_AFTER_S) -> None:
        self.service = service
        self.metrics = ServiceMetrics(service)
        self._stuck_after_s = stuck_after_s
        self._beat_at = time.monotonic()
        self._troubles: dict[str, str] = {"start": "the service is starting"}

    def beat(self) -> None:
        """Record an iteration of the loop."""
        self._beat_at = time.monotonic()
        self._troubles.pop("start", None)

    def set_trouble(self, part: str, text: str = "") -> None:
        """Note what a part of the service waits for; no text: it works."""
        if text:
            self._troubles[part] = text
        else:
            self._troubles.pop(part, None)

    def stuck(self) -> str:
        """Return why the service should be restarted; empty: it should not."""
        seconds = time.monotonic() - self._beat_at
        return f"no progress for {seconds:.0f} s" if seconds > self._stuck_after_s else ""

    def trouble(self) -> str:
        """Return why the service cannot work now; empty: it can."""
        return self.stuck() or next(iter(list(self._troubles.values())), "")


class _HealthHandler(BaseHTTPRequestHandler):
    """Answers GET; everything else is refused by the base class."""

    timeout = REQUEST_TIMEOUT_S
    health: ServiceHealth

    def do_GET(self) -> None:
        """Answer one request."""
        answers: dict[str, Callable[[], str]] = {
            "/healthz": self.health.stuck,
            "/readyz": self.health.trouble,
        }
        if not is_own_name(self.headers.get("Host", "")):
            self._send(421, b"use the address of this computer\n")
        elif self.path == "/metrics":
            self.health.metrics.set("farm_ready", 0.0 if self.health.trouble() else 1.0)
            self._send(200, self.health.metrics.text(), "text/plain; version=0.0.4")
        elif self.path in answers:
            trouble = answers[self.path]()
            self._send(503 if trouble else 200, f"{trouble or 'ok'}\n".encode())
        else:
            self._send(404, b"there are /healthz, /readyz and /metrics\n")

    def _send(self, status: int, body: bytes, kind: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Do not log requests."""


def is_own_name(host: str) -> bool:
    """Whether a Host header names this computer by address or by a name without a dot.

    A web page can let its own name point here, and such a name has a dot.
    """
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return name == socket.getfqdn() or ("." not in name and bool(name))
    return True


class HealthServer:
    """Serves the health of this process in its own threads."""

    def __init__(self, health: ServiceHealth, listen: str) -> None:
        address, _, port = listen.rpartition(":")
        handler = type("BoundHealthHandler", (_HealthHandler,), {"health": health})
        kind = _SixServer if ":" in address else ThreadingHTTPServer
        self._server = kind((address.strip("[]"), int(port)), handler)
        self._server.daemon_threads = True
        self.address = f"{address}:{self._server.server_address[1]}"
        thread = threading.Thread(target=self._server.serve_forever, name="health", daemon=True)
        thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


class _SixServer(ThreadingHTTPServer):
    address_family = socket.AF_INET6


def serve_health(health: ServiceHealth, listen: str, file: Path) -> HealthServer | None:
    """Serve the health of this process; write its address to a file that Prometheus can read.

    A service without this server still works, so a port that is taken is only logged.
    """
    try:
        server = HealthServer(health, listen)
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        labels = {"service": health.service.value}
        file.write_text(json.dumps([{"targets": [server.address], "labels": labels}]) + "\n")
    except (OSError, OverflowError) as error:
        log.warning("health endpoints cannot be served on %s: %s", listen, error)
        return None
    log.info("serving health endpoints address=%s", server.address)
    return server


def start_service(lab: "Lab", service: Service, name: str) -> ServiceHealth:
    """Configure the log of this process as the lab says, and serve its health."""
    configure_logging(service.value, lab.settings.log.format)
    health = ServiceHealth(service)
    serve_health(health, lab.settings.health.listen, lab.health_file(name))
    return health
