"""One stream of an ADB connection: a byte pipe with one packet in flight per direction.

The OKAY for a packet is sent when its consumer has taken the bytes: that is the back-pressure.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from agent.virtual.adb.adb_packets import AdbCommand, AdbPacket


class StreamClosed(Exception):
    """The host closed the stream, or the connection is gone."""


class AdbStream:
    """The phone's end of a stream."""

    def __init__(
        self, local_id: int, remote_id: int, send: Callable[[AdbPacket], None], payload_max: int
    ) -> None:
        self.local_id = local_id
        self.remote_id = remote_id
        self.payload_max = payload_max
        self.closed = asyncio.Event()
        self._send = send
        self._inbox: deque[bytes] = deque()
        self._arrived = asyncio.Event()
        self._acknowledged = asyncio.Event()
        self._acknowledged.set()
        self._unread = b""
        self._offset = 0  # how much of _unread was returned already

    # -- called by the connection

    def receive(self, payload: bytes) -> None:
        self._inbox.append(payload)
        self._arrived.set()

    @property
    def backlog(self) -> int:
        return len(self._inbox)

    def acknowledge(self) -> None:
        self._acknowledged.set()

    def mark_closed(self) -> None:
        """Wake up readers and writers: no more bytes in either direction."""
        self.closed.set()
        self._arrived.set()
        self._acknowledged.set()

    # -- called by services

    async def read(self) -> bytes:
        """Return the bytes of the next packet, or none once the stream is closed."""
        if self._offset < len(self._unread):
            chunk = self._unread[self._offset :]
            self._unread, self._offset = b"", 0
            return chunk
        while not self._inbox:
            if self.closed.is_set():
                return b""
            self._arrived.clear()
            await self._arrived.wait()
        chunk = self._inbox.popleft()
        if not self.closed.is_set():
            self._send(AdbPacket(AdbCommand.OKAY, self.local_id, self.remote_id))
        # An empty packet does not end the stream.
        return chunk or await self.read()

    async def read_exactly(self, count: int) -> bytes:
        """Return exactly `count` bytes, or raise StreamClosed."""
        end = self._offset + count
        if end <= len(self._unread):
            chunk = self._unread[self._offset : end]
            self._offset = end
            return chunk
        pieces: list[bytes] = []
        missing = count
        while missing:
            piece = await self.read()
            if not piece:
                raise StreamClosed
            if len(piece) > missing:
                self._unread, self._offset = piece, missing
                piece = piece[:missing]
            pieces.append(piece)
            missing -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def write(self, content: bytes) -> None:
        """Send bytes in packets, each after the host has acknowledged the previous one."""
        view = memoryview(content)
        while view:
            await self._acknowledged.wait()
            if self.closed.is_set():
                raise StreamClosed
            self._acknowledged.clear()
            self._send(
                AdbPacket(
                    AdbCommand.WRTE, self.local_id, self.remote_id, bytes(view[: self.payload_max])
                )
            )
            view = view[self.payload_max :]

    async def wait_flushed(self) -> None:
        """Wait until the host has acknowledged everything."""
        await self._acknowledged.wait()
