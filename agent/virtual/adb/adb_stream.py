"""One stream of an ADB connection: a byte pipe with one packet in flight each way.

The OKAY for a packet goes out when its consumer took the bytes: that is the back-pressure.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from agent.virtual.adb.packets import Packet, Word


class StreamClosed(Exception):
    """The host closed the stream, or is gone."""


class AdbStream:
    """The phone's end of a stream."""

    def __init__(
        self, local: int, remote: int, send: Callable[[Packet], None], payload_max: int
    ) -> None:
        self.local = local
        self.remote = remote  # 0 until the host answers a stream that the phone opened
        self.opened_here = not remote
        self.payload_max = payload_max
        self.closed = asyncio.Event()
        self._send = send
        self._inbox: deque[bytes] = deque()
        self._arrived = asyncio.Event()
        self._acknowledged = asyncio.Event()
        if remote:
            self._acknowledged.set()
        self._left = b""
        self._at = 0  # how much of what is left was taken

    # -- called by the connection

    def receive(self, payload: bytes) -> None:
        self._inbox.append(payload)
        self._arrived.set()

    @property
    def backlog(self) -> int:
        return len(self._inbox)

    def acknowledge(self) -> None:
        self._acknowledged.set()

    def shut(self) -> None:
        """No more bytes either way; readers and writers wake up."""
        self.closed.set()
        self._arrived.set()
        self._acknowledged.set()

    # -- called by services

    async def read(self) -> bytes:
        """The next packet's bytes, or none once the stream is closed."""
        if self._at < len(self._left):
            chunk = self._left[self._at :]
            self._left, self._at = b"", 0
            return chunk
        while not self._inbox:
            if self.closed.is_set():
                return b""
            self._arrived.clear()
            await self._arrived.wait()
        chunk = self._inbox.popleft()
        if not self.closed.is_set():
            self._send(Packet(Word.OKAY, self.local, self.remote))
        # An empty packet is no end.
        return chunk or await self.read()

    async def read_exactly(self, count: int) -> bytes:
        """So many bytes, or StreamClosed."""
        end = self._at + count
        if end <= len(self._left):
            chunk = self._left[self._at : end]
            self._at = end
            return chunk
        pieces: list[bytes] = []
        missing = count
        while missing:
            piece = await self.read()
            if not piece:
                raise StreamClosed
            if len(piece) > missing:
                self._left, self._at = piece, missing
                piece = piece[:missing]
            pieces.append(piece)
            missing -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def write(self, content: bytes) -> None:
        """Send bytes in packets, each after the host took the one before."""
        view = memoryview(content)
        while view:
            await self._acknowledged.wait()
            if self.closed.is_set():
                raise StreamClosed
            self._acknowledged.clear()
            self._send(Packet(Word.WRTE, self.local, self.remote, bytes(view[: self.payload_max])))
            view = view[self.payload_max :]

    def end(self) -> None:
        """Close a stream that the phone opened."""
        if not self.closed.is_set():
            self._send(Packet(Word.CLSE, self.local, self.remote))
            self.shut()

    async def flushed(self) -> None:
        """Wait until the host took everything."""
        await self._acknowledged.wait()
