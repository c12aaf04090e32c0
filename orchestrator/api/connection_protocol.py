"""Closes connections that send no request, so that idle ones do not use up the API's places."""

import json
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from orchestrator.api.open_connections import OpenConnections
from orchestrator.app.app_errors import ErrorKind


class ConnectionProtocol(H11Protocol):
    """Waits for the whole head of a request no longer than a kept connection may be idle.

    The class above waits without limit for a first request, and again after its first byte.
    """

    def __init__(self, connections: OpenConnections, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._connections = connections

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        if self.client is not None:
            self._connections.add(self.client, self)
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        if self.client is not None:
            self._connections.remove(self.client, self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass data on; the timer ends when the head of a request is complete."""
        self.conn.receive_data(data)
        self.handle_events()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP in the form of every other error, and close the connection."""
        text = "this is not a request of HTTP/1.1; send one, and https only where the API has TLS"
        error = {"kind": ErrorKind.INVALID_REQUEST.value, "text": text}
        body = json.dumps({"error": error}).encode()
        head = (
            "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    @property
    def is_idle(self) -> bool:
        """Whether no request on it is being answered."""
        return self.cycle is None or bool(self.cycle.response_complete)

    def end(self) -> None:
        """Close it at once."""
        self.transport.abort()
