"""The link between a phone and its hosts, with faults: blocked, slow, silently cut, or another
adbd.

Delayed packets are sent in order later; nothing is lost that TCP would not lose.
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

from agent.virtual.adb.adb_connection import AdbConnection
from agent.virtual.adb.adb_packets import AdbCommand, AdbPacket

_AUTH_TOKEN, _AUTH_SIGNATURE = 1, 2
_TOKEN_BYTES = 20
_HEADER_BYTES = 24
_DELAY_STEP_S = 0.1
_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27
_DROP_ALL = struct.pack("HBBI", 0x06, 0, 0, 0)  # one BPF instruction: accept no byte


@dataclass(frozen=True, slots=True)
class ForeignAdbd:
    """How another version of adbd identifies itself."""

    version: int
    payload_max: int
    banner: str


class FaultyWire:
    """The link of one phone, shared by all its connections."""

    def __init__(self) -> None:
        self.block_reasons: set[object] = set()
        self.unauthorized_reasons: set[object] = set()  # faults that keep the phone unauthorized
        self.silent_reasons: set[object] = set()  # faults that keep it from answering CNXN
        self.foreign_adbd: ForeignAdbd | None = None
        self.bytes_per_s = 0.0
        self.latency_s = 0.0
        self._unblocked = asyncio.Event()
        self._queues: dict[AdbConnection, deque[bytes]] = {}
        self._send_tasks: set[asyncio.Task[None]] = set()
        self._waiting_hosts: dict[AdbConnection, AdbPacket] = {}

    # -- called by faults

    def block(self, reason: object) -> None:
        """Let nothing pass in either direction."""
        self.block_reasons.add(reason)
        self._unblocked.clear()

    def unblock(self, reason: object) -> None:
        self.block_reasons.discard(reason)
        if not self.block_reasons:
            self._unblocked.set()

    def greet_waiting(self) -> None:
        """Greet the hosts that were kept waiting, unless another fault still blocks them."""
        if not self.unauthorized_reasons and not self.silent_reasons:
            waiting, self._waiting_hosts = self._waiting_hosts, {}
            for connection, packet in waiting.items():
                connection.greet(packet)

    # -- called by the connection

    async def delay_incoming(self, packet: AdbPacket) -> None:
        if self.is_slow:
            await self._delay(
                self.latency_s + self._transfer_s(_HEADER_BYTES + len(packet.payload))
            )
        while self.block_reasons:
            await self._unblocked.wait()

    def answer_instead(self, connection: AdbConnection, packet: AdbPacket) -> bool:
        if packet.command == AdbCommand.CNXN and (self.unauthorized_reasons or self.silent_reasons):
            self._waiting_hosts[connection] = packet
            if self.unauthorized_reasons and not self.silent_reasons:
                self._challenge(connection)
            return True
        if packet.command == AdbCommand.AUTH and connection in self._waiting_hosts:
            # No signature is accepted; a public key waits for the user to tap 'allow'.
            if packet.arg0 == _AUTH_SIGNATURE and self.unauthorized_reasons:
                self._challenge(connection)
            return True
        if packet.command == AdbCommand.CNXN and self.foreign_adbd is not None:
            foreign_adbd = self.foreign_adbd
            connection.greet(
                packet, foreign_adbd.version, foreign_adbd.payload_max, foreign_adbd.banner
            )
            return True
        return False

    def queue_outgoing(self, connection: AdbConnection, chunks: list[bytes]) -> bool:
        queue = self._queues.get(connection)
        if queue is None:
            if not self.block_reasons and not self.is_slow:
                return False
            queue = self._queues[connection] = deque()
            task = asyncio.get_running_loop().create_task(self._send_queued(connection, queue))
            self._send_tasks.add(task)
            task.add_done_callback(self._send_tasks.discard)
        queue.append(b"".join(chunks))
        return True

    # -- internals

    @property
    def is_slow(self) -> bool:
        return self.bytes_per_s > 0 or self.latency_s > 0

    def _transfer_s(self, size: int) -> float:
        return size / self.bytes_per_s if self.bytes_per_s > 0 else 0.0

    async def _delay(self, seconds: float) -> None:
        """Wait, but only as long as the link is slow."""
        deadline = time.monotonic() + seconds
        while self.is_slow and (remaining_s := deadline - time.monotonic()) > 0:
            await asyncio.sleep(min(remaining_s, _DELAY_STEP_S))

    def _challenge(self, connection: AdbConnection) -> None:
        connection.send(AdbPacket(AdbCommand.AUTH, _AUTH_TOKEN, 0, os.urandom(_TOKEN_BYTES)))

    async def _send_queued(self, connection: AdbConnection, queue: deque[bytes]) -> None:
        try:
            while queue and not connection.writer.is_closing():
                while self.block_reasons:
                    await self._unblocked.wait()
                await self._send_slowly(connection.writer, queue.popleft())
        except OSError:
            pass  # the host closed the connection
        finally:
            self._queues.pop(connection, None)

    async def _send_slowly(self, writer: asyncio.StreamWriter, content: bytes) -> None:
        await self._delay(self.latency_s)
        while content and not writer.is_closing():
            piece_bytes = (
                max(1, int(self.bytes_per_s / 20)) if self.bytes_per_s > 0 else len(content)
            )
            writer.write(content[:piece_bytes])
            await writer.drain()
            await self._delay(self._transfer_s(min(piece_bytes, len(content))))
            content = content[piece_bytes:]


def drop_incoming(sockets: Iterable[socket.socket]) -> bool:
    """Drop incoming packets below TCP: no acknowledgement, no reset. Return whether that worked."""
    program = ctypes.create_string_buffer(_DROP_ALL)
    return _set_socket_option(
        sockets, _SO_ATTACH_FILTER, struct.pack("HP", 1, ctypes.addressof(program))
    )


def accept_incoming(sockets: Iterable[socket.socket]) -> bool:
    return _set_socket_option(sockets, _SO_DETACH_FILTER, struct.pack("i", 0))


def _set_socket_option(sockets: Iterable[socket.socket], option: int, value: bytes) -> bool:
    if sys.platform != "linux":
        return False
    all_set = True
    for connection_socket in sockets:
        try:
            connection_socket.setsockopt(socket.SOL_SOCKET, option, value)
        except OSError:
            all_set = False  # closed in the meantime, or a kernel without socket filters
    return all_set
