"""A wire that can be stopped, slowed, cut without a sign, or answered by another adbd.

Whatever it holds back goes out in order once it may; nothing is lost that TCP would not lose.
"""

import asyncio
import ctypes
import os
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from agent.virtual.adb.connection import Connection
from agent.virtual.adb.packets import Packet, Word

_AUTH_TOKEN, _AUTH_SIGNATURE = 1, 2
_TOKEN_BYTES = 20
_HEADER_BYTES = 24
_LINGER_S = 0.1
_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27
_DROP_ALL = struct.pack("HBBI", 0x06, 0, 0, 0)  # one instruction of BPF: keep no byte


@dataclass(frozen=True, slots=True)
class OtherAdbd:
    """How an adbd of another age introduces itself."""

    version: int
    payload_max: int
    banner: str


class TroubledWire:
    """The wire of one phone; shared by all its connections."""

    def __init__(self) -> None:
        self.stopped: set[object] = set()
        self.locked: set[object] = set()  # who keeps the phone unauthorized
        self.mute: set[object] = set()  # who keeps it from greeting at all
        self.other: OtherAdbd | None = None
        self.bytes_per_s = 0.0
        self.latency_s = 0.0
        self._moving = asyncio.Event()
        self._held: dict[Connection, deque[bytes]] = {}
        self._pumps: set[asyncio.Task[None]] = set()
        self._waiting: dict[Connection, Packet] = {}

    # -- what troubles do

    def stop(self, who: object) -> None:
        """Let nothing pass, either way."""
        self.stopped.add(who)
        self._moving.clear()

    def go(self, who: object) -> None:
        self.stopped.discard(who)
        if not self.stopped:
            self._moving.set()

    def let_in(self) -> None:
        """Greet the hosts that were kept waiting, if nothing keeps them any more."""
        if not self.locked and not self.mute:
            waiting, self._waiting = self._waiting, {}
            for connection, packet in waiting.items():
                connection.greet(packet)

    # -- what the connection asks

    async def arrive(self, packet: Packet) -> None:
        if self.slow:
            await self._linger(self.latency_s + self._takes(_HEADER_BYTES + len(packet.payload)))
        while self.stopped:
            await self._moving.wait()

    def take(self, connection: Connection, packet: Packet) -> bool:
        if packet.word == Word.CNXN and (self.locked or self.mute):
            self._waiting[connection] = packet
            if self.locked and not self.mute:
                self._challenge(connection)
            return True
        if packet.word == Word.AUTH and connection in self._waiting:
            # No signature is good enough; a public key waits for somebody to tap 'allow'.
            if packet.first == _AUTH_SIGNATURE and self.locked:
                self._challenge(connection)
            return True
        if packet.word == Word.CNXN and self.other is not None:
            other = self.other
            connection.greet(packet, other.version, other.payload_max, other.banner)
            return True
        return False

    def hold(self, connection: Connection, chunks: list[bytes]) -> bool:
        queue = self._held.get(connection)
        if queue is None:
            if not self.stopped and not self.slow:
                return False
            queue = self._held[connection] = deque()
            pump = asyncio.get_running_loop().create_task(self._pump(connection, queue))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)
        queue.append(b"".join(chunks))
        return True

    # -- inside

    @property
    def slow(self) -> bool:
        return self.bytes_per_s > 0 or self.latency_s > 0

    def _takes(self, size: int) -> float:
        return size / self.bytes_per_s if self.bytes_per_s > 0 else 0.0

    async def _linger(self, seconds: float) -> None:
        """Be slow, but no longer than there is reason to be."""
        due = time.monotonic() + seconds
        while self.slow and (left := due - time.monotonic()) > 0:
            await asyncio.sleep(min(left, _LINGER_S))

    def _challenge(self, connection: Connection) -> None:
        connection.send(Packet(Word.AUTH, _AUTH_TOKEN, 0, os.urandom(_TOKEN_BYTES)))

    async def _pump(self, connection: Connection, queue: deque[bytes]) -> None:
        try:
            while queue and not connection.writer.is_closing():
                while self.stopped:
                    await self._moving.wait()
                await self._trickle(connection.writer, queue.popleft())
        except OSError:
            pass  # the host had enough
        finally:
            self._held.pop(connection, None)

    async def _trickle(self, writer: asyncio.StreamWriter, content: bytes) -> None:
        await self._linger(self.latency_s)
        while content and not writer.is_closing():
            piece = max(1, int(self.bytes_per_s / 20)) if self.bytes_per_s > 0 else len(content)
            writer.write(content[:piece])
            await writer.drain()
            await self._linger(self._takes(min(piece, len(content))))
            content = content[piece:]


def turn_deaf(sockets: Iterable[socket.socket]) -> bool:
    """Drop whatever comes in below TCP: no acknowledgement, no reset. Say whether it could be."""
    program = ctypes.create_string_buffer(_DROP_ALL)
    return _set(sockets, _SO_ATTACH_FILTER, struct.pack("HP", 1, ctypes.addressof(program)))


def listen_again(sockets: Iterable[socket.socket]) -> bool:
    return _set(sockets, _SO_DETACH_FILTER, struct.pack("i", 0))


def _set(sockets: Iterable[socket.socket], option: int, value: bytes) -> bool:
    if sys.platform != "linux":
        return False
    done = True
    for one in sockets:
        try:
            one.setsockopt(socket.SOL_SOCKET, option, value)
        except OSError:
            done = False  # closed meanwhile, or a kernel that has no filters
    return done
