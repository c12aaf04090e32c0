"""One ADB connection: handshake, authentication, and the streams that the host opens.

Whatever the host sends, only its own connection is affected.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Protocol

from agent.virtual.adb.adb_packets import (
    PAYLOAD_MAX,
    VERSION,
    AdbCommand,
    AdbPacket,
    MalformedPacket,
    encode_packet,
    read_packet,
)
from agent.virtual.adb.adb_stream import AdbStream, StreamClosed
from agent.virtual.adb.host_keys import HostKeys, make_token, parse_public_key

Service = Callable[[AdbStream], Awaitable[None]]
FindService = Callable[[str], Service | None]

# A host has one packet in flight per stream; a host that sends many without waiting is broken.
_BACKLOG_MAX = 64
_STREAMS_MAX = 512
_TOKEN, _SIGNATURE, _PUBLIC_KEY = 1, 2, 3


class WireHook(Protocol):
    """Lets the fault injector intercept packets; without a hook they pass unchanged."""

    async def delay_incoming(self, packet: AdbPacket) -> None:
        """Wait until a received packet may be handled."""

    def answer_instead(self, connection: "AdbConnection", packet: AdbPacket) -> bool:
        """Answer a packet instead of the connection; return whether that was done."""

    def queue_outgoing(self, connection: "AdbConnection", chunks: list[bytes]) -> bool:
        """Take over packets that are about to be sent; return whether that was done."""


class AdbConnection:
    """Speaks ADB with one host until either side closes."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        banner: str,
        find_service: FindService,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._banner = banner
        self._find_service = find_service
        self.wire_hook: WireHook | None = None
        self.host_keys: HostKeys | None = None
        # the host's CNXN and the token that it must sign
        self._pending_greeting: tuple[AdbPacket, bytes] | None = None
        self._serve_task: asyncio.Task[object] | None = None
        self._is_greeted = False
        self._peer_version = VERSION
        self._payload_max = PAYLOAD_MAX
        self._next_local_ids = itertools.count(1)
        self._streams: dict[int, AdbStream] = {}
        self._service_tasks: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Handle packets until the connection ends; stop every service that it started."""
        self._serve_task = asyncio.current_task()
        try:
            while True:
                packet = await read_packet(self._reader)
                if self.wire_hook is not None:
                    await self.wire_hook.delay_incoming(packet)
                self._handle_packet(packet)
                await self._writer.drain()
        except (MalformedPacket, asyncio.IncompleteReadError, OSError):
            pass
        finally:
            for stream in list(self._streams.values()):
                stream.mark_closed()
            for service in list(self._service_tasks):
                service.cancel()
            await asyncio.gather(*self._service_tasks, return_exceptions=True)
            self.close()

    def close(self) -> None:
        self._writer.close()

    def cancel(self) -> None:
        """Close the connection even if it waits for a wire that never delivers again."""
        self.abort()
        if self._serve_task is not None:
            self._serve_task.cancel()

    def abort(self) -> None:
        """Close at once without a CLSE packet, as when a cable is pulled."""
        self._writer.transport.abort()

    @property
    def writer(self) -> asyncio.StreamWriter:
        return self._writer

    def greet(
        self,
        packet: AdbPacket,
        version: int = VERSION,
        payload_max: int = PAYLOAD_MAX,
        banner: str = "",
    ) -> None:
        """Answer a host's CNXN; with version and banner, answer as another adbd would."""
        self._is_greeted = True
        self._pending_greeting = None
        self._peer_version = packet.arg0
        self._payload_max = min(max(packet.arg1, 4096), payload_max)
        self.send(
            AdbPacket(AdbCommand.CNXN, version, payload_max, (banner or self._banner).encode())
        )

    def send(self, packet: AdbPacket) -> None:
        if not self._writer.is_closing():
            chunks = encode_packet(packet, self._peer_version)
            if self.wire_hook is None or not self.wire_hook.queue_outgoing(self, chunks):
                self._writer.writelines(chunks)

    # -- packets

    def _handle_packet(self, packet: AdbPacket) -> None:
        if self.wire_hook is not None and self.wire_hook.answer_instead(self, packet):
            return
        if packet.command == AdbCommand.CNXN:
            if self.host_keys is not None and self.host_keys.is_required:
                self._challenge(packet)
            else:
                self.greet(packet)
        elif packet.command == AdbCommand.AUTH:
            self._check_auth(packet)
        elif not self._is_greeted:
            raise MalformedPacket("packet before CNXN")
        elif packet.command == AdbCommand.OPEN:
            self._open_stream(packet)
        elif packet.command in (AdbCommand.OKAY, AdbCommand.WRTE, AdbCommand.CLSE):
            self._route_to_stream(packet)
        elif packet.command != AdbCommand.SYNC:
            raise MalformedPacket(f"unknown command {packet.command:08x}")

    def _challenge(self, greeting: AdbPacket) -> None:
        """Ask for a signature; the host gets one attempt per key, each with a new token."""
        token = make_token()
        self._pending_greeting = (greeting, token)
        self.send(AdbPacket(AdbCommand.AUTH, _TOKEN, 0, token))

    def _check_auth(self, packet: AdbPacket) -> None:
        if self._pending_greeting is None or self.host_keys is None:
            return
        greeting, token = self._pending_greeting
        if packet.arg0 == _SIGNATURE:
            if self.host_keys.accepts_signature(token, packet.payload):
                self.greet(greeting)
            else:
                self._challenge(greeting)
        elif packet.arg0 == _PUBLIC_KEY:
            key = parse_public_key(packet.payload)
            if key is None:
                raise MalformedPacket("not a public key")
            if self.host_keys.accepts(key):
                self.greet(greeting)

    def _open_stream(self, packet: AdbPacket) -> None:
        name = packet.payload.rstrip(b"\0").decode("utf-8", "surrogateescape")
        service = self._find_service(name)
        if service is None or packet.arg0 == 0 or len(self._streams) >= _STREAMS_MAX:
            self.send(AdbPacket(AdbCommand.CLSE, 0, packet.arg0))
            return
        stream = AdbStream(next(self._next_local_ids), packet.arg0, self.send, self._payload_max)
        self._streams[stream.local_id] = stream
        self.send(AdbPacket(AdbCommand.OKAY, stream.local_id, stream.remote_id))
        task = asyncio.get_running_loop().create_task(self._run_service(stream, service))
        self._service_tasks.add(task)
        task.add_done_callback(self._service_tasks.discard)

    def _route_to_stream(self, packet: AdbPacket) -> None:
        stream = self._streams.get(packet.arg1)
        if stream is None or (packet.arg0 not in (0, stream.remote_id)):
            # A WRTE to a closed stream is answered with CLSE; other packets arrive late and are
            # ignored.
            if packet.command == AdbCommand.WRTE:
                self.send(AdbPacket(AdbCommand.CLSE, 0, packet.arg0))
            return
        if packet.command == AdbCommand.OKAY:
            stream.acknowledge()
        elif packet.command == AdbCommand.CLSE:
            stream.mark_closed()
        else:
            stream.receive(packet.payload)
            if stream.backlog > _BACKLOG_MAX:
                raise MalformedPacket("host does not wait for OKAY")

    async def _run_service(self, stream: AdbStream, service: Service) -> None:
        try:
            await service(stream)
            if not stream.closed.is_set():
                await stream.wait_flushed()
        except StreamClosed:
            pass
        finally:
            self._streams.pop(stream.local_id, None)
            self.send(AdbPacket(AdbCommand.CLSE, stream.local_id, stream.remote_id))
            stream.mark_closed()
