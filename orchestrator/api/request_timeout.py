"""Closes connections that send no request, so that idle ones do not use up the API's places."""

from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


class RequestTimeoutProtocol(H11Protocol):
    """Waits for the whole head of a request no longer than a kept connection may be idle.

    The class above waits without limit for a first request, and again after its first byte.
    """

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def data_received(self, data: bytes) -> None:
        """Pass data on; the timer ends when the head of a request is complete."""
        self.conn.receive_data(data)
        self.handle_events()
