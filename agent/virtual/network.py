"""The phone's own sockets: who listens on which name, inside the phone and nowhere else.

No host socket is ever opened: a forwarded port ends here, and only what listens here answers.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol


class Duplex(Protocol):
    """Both ends of a connection inside the phone."""

    async def read(self) -> bytes:
        """Some bytes, or none at the end."""

    async def write(self, content: bytes) -> None: ...


Listener = Callable[[Duplex], Awaitable[None]]

# Two that always answer, so that a forward can be tried on a phone with nothing on it.
ECHO_NAMES = ("tcp:7", "localabstract:echo")


async def _echo(peer: Duplex) -> None:
    while chunk := await peer.read():
        await peer.write(chunk)


class Network:
    """Names such as tcp:5000 or localabstract:NAME, and who listens there."""

    def __init__(self) -> None:
        self._listeners: dict[str, Listener] = {}
        self.reset()

    def reset(self) -> None:
        """As after boot."""
        self._listeners = dict.fromkeys(ECHO_NAMES, _echo)

    def find(self, name: str) -> Listener | None:
        return self._listeners.get(name)

    def listen(self, name: str, listener: Listener) -> bool:
        """Take a name; False where somebody has it."""
        if name in self._listeners:
            return False
        self._listeners[name] = listener
        return True

    def leave(self, name: str) -> bool:
        return self._listeners.pop(name, None) is not None


class PipeEnd:
    """One end of a connection between two parties in the phone."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[bytes] = asyncio.Queue(maxsize=16)
        self._ended = False
        self.other: PipeEnd | None = None

    async def read(self) -> bytes:
        if self._ended:
            return b""
        chunk = await self._queue.get()
        self._ended = not chunk
        return chunk

    async def write(self, content: bytes) -> None:
        """Give bytes to the other end; none of them says that this was all."""
        if self.other is not None and not self.other._ended:
            await self.other._queue.put(content)


def pipe_ends() -> tuple[PipeEnd, PipeEnd]:
    """Two ends that talk to each other."""
    left, right = PipeEnd(), PipeEnd()
    left.other, right.other = right, left
    return left, right


async def join(here: Duplex, far: Duplex) -> None:
    """Carry bytes both ways until the far side has ended; an end here is no end there."""

    async def carry(source: Duplex, target: Duplex) -> None:
        while chunk := await source.read():
            await target.write(chunk)

    out = asyncio.ensure_future(carry(here, far))
    try:
        await carry(far, here)
    finally:
        out.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await out
