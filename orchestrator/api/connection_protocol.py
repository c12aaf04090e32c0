"""Closes connections that send no request, so that idle ones do not use up the API's places."""

from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from orchestrator.api.open_connections import OpenConnections


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

    @property
    def is_idle(self) -> bool:
        """Whether no request on it is being answered."""
        return self.cycle is None or bool(self.cycle.response_complete)

    def end(self) -> None:
        """Close it at once."""
        self.transport.abort()
