"""Counts the requests of the API by status, and measures how long they take."""

import time

from orchestrator.api.request_guard import App, Message, Receive, Scope, Send
from workloads.lab.service_metrics import ServiceMetrics


class RequestCounter:
    """Passes every request on; a stream of events counts when it begins."""

    def __init__(self, app: App, metrics: ServiceMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and count the status of its response."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.monotonic()

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._metrics.add("farm_requests_total", label=str(message["status"]))
                self._metrics.observe("farm_request_seconds", time.monotonic() - started)
            await send(message)

        await self._app(scope, receive, counted)
