"""One host's connection: greets it, keeps its streams apart, survives whatever it sends."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Protocol

from agent.virtual.adb.authority import Authority, new_token, read_public_key
from agent.virtual.adb.packets import (
    PAYLOAD_MAX,
    VERSION,
    MalformedPacket,
    Packet,
    Word,
    encode_packet,
    read_packet,
)
from agent.virtual.adb.stream import AdbStream, StreamClosed

Service = Callable[[AdbStream], Awaitable[None]]
FindService = Callable[[str], Service | None]

# A host has one packet in flight per stream; one that sends many without waiting is broken.
_BACKLOG_MAX = 64
_STREAMS_MAX = 512
_TOKEN, _SIGNATURE, _PUBLIC_KEY = 1, 2, 3


class Wire(Protocol):
    """What may happen to packets on their way; without one they just pass."""

    async def arrive(self, packet: Packet) -> None:
        """Wait until a packet that came in may be looked at."""

    def take(self, connection: "Connection", packet: Packet) -> bool:
        """Answer a packet in the connection's place; say whether that was done."""

    def hold(self, connection: "Connection", chunks: list[bytes]) -> bool:
        """Take over what is about to be sent; say whether that was done."""


class Connection:
    """Speaks ADB with one host until either side has enough."""

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
        self.wire: Wire | None = None
        self.authority: Authority | None = None
        self._asked: tuple[Packet, bytes] | None = None  # a greeting that waits for a signature
        self._serving: asyncio.Task[object] | None = None
        self._greeted = False
        self._peer_version = VERSION
        self._payload_max = PAYLOAD_MAX
        self._locals = itertools.count(1)
        self._streams: dict[int, AdbStream] = {}
        self._services: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Answer packets until the connection ends; leaves nothing running behind."""
        self._serving = asyncio.current_task()
        try:
            while True:
                packet = await read_packet(self._reader)
                if self.wire is not None:
                    await self.wire.arrive(packet)
                self._answer(packet)
                await self._writer.drain()
        except (MalformedPacket, asyncio.IncompleteReadError, OSError):
            pass
        finally:
            for stream in list(self._streams.values()):
                stream.shut()
            for service in list(self._services):
                service.cancel()
            await asyncio.gather(*self._services, return_exceptions=True)
            self.close()

    def close(self) -> None:
        self._writer.close()

    def give_up(self) -> None:
        """End even what waits for a wire that will never move again."""
        self.abort()
        if self._serving is not None:
            self._serving.cancel()

    def abort(self) -> None:
        """Be gone at once, as when a cable is pulled."""
        self._writer.transport.abort()

    @property
    def writer(self) -> asyncio.StreamWriter:
        return self._writer

    def greet(
        self,
        packet: Packet,
        version: int = VERSION,
        payload_max: int = PAYLOAD_MAX,
        banner: str = "",
    ) -> None:
        """Answer a host's CNXN; as another adbd would, where version and banner are given."""
        self._greeted = True
        self._asked = None
        self._peer_version = packet.first
        self._payload_max = min(max(packet.second, 4096), payload_max)
        self.send(Packet(Word.CNXN, version, payload_max, (banner or self._banner).encode()))

    def send(self, packet: Packet) -> None:
        if not self._writer.is_closing():
            chunks = encode_packet(packet, self._peer_version)
            if self.wire is None or not self.wire.hold(self, chunks):
                self._writer.writelines(chunks)

    # -- packets

    def _answer(self, packet: Packet) -> None:
        if self.wire is not None and self.wire.take(self, packet):
            return
        if packet.word == Word.CNXN:
            if self.authority is not None and self.authority.required:
                self._challenge(packet)
            else:
                self.greet(packet)
        elif packet.word == Word.AUTH:
            self._weigh(packet)
        elif not self._greeted:
            raise MalformedPacket("a packet before the greeting")
        elif packet.word == Word.OPEN:
            self._open(packet)
        elif packet.word in (Word.OKAY, Word.WRTE, Word.CLSE):
            self._to_stream(packet)
        elif packet.word != Word.SYNC:
            raise MalformedPacket(f"unknown command {packet.word:08x}")

    def _challenge(self, greeting: Packet) -> None:
        """Ask for a signature; a host has one try per key, each with a token of its own."""
        token = new_token()
        self._asked = (greeting, token)
        self.send(Packet(Word.AUTH, _TOKEN, 0, token))

    def _weigh(self, packet: Packet) -> None:
        if self._asked is None or self.authority is None:
            return
        greeting, token = self._asked
        if packet.first == _SIGNATURE:
            if self.authority.knows(token, packet.payload):
                self.greet(greeting)
            else:
                self._challenge(greeting)
        elif packet.first == _PUBLIC_KEY:
            key = read_public_key(packet.payload)
            if key is None:
                raise MalformedPacket("no public key")

            def welcome() -> None:
                if self._asked is not None:
                    self.greet(greeting)

            self.authority.wait(key, welcome)

    async def open(self, name: str) -> AdbStream | None:
        """A stream that the phone opens at the host; None where the host refuses."""
        stream = AdbStream(next(self._locals), 0, self.send, self._payload_max)
        self._streams[stream.local] = stream
        self.send(
            Packet(Word.OPEN, stream.local, 0, name.encode("utf-8", "surrogateescape") + b"\0")
        )
        await stream.flushed()
        if stream.closed.is_set():
            self._streams.pop(stream.local, None)
            return None
        return stream

    def _open(self, packet: Packet) -> None:
        name = packet.payload.rstrip(b"\0").decode("utf-8", "surrogateescape")
        service = self._find_service(name)
        if service is None or packet.first == 0 or len(self._streams) >= _STREAMS_MAX:
            self.send(Packet(Word.CLSE, 0, packet.first))
            return
        stream = AdbStream(next(self._locals), packet.first, self.send, self._payload_max)
        self._streams[stream.local] = stream
        self.send(Packet(Word.OKAY, stream.local, stream.remote))
        work = asyncio.get_running_loop().create_task(self._attend(stream, service))
        self._services.add(work)
        work.add_done_callback(self._services.discard)

    def _to_stream(self, packet: Packet) -> None:
        stream = self._streams.get(packet.second)
        if stream is not None and not stream.remote and packet.word == Word.OKAY:
            stream.remote = packet.first
        if stream is None or (packet.first not in (0, stream.remote)):
            # A WRTE to a stream that is gone is told so; anything else is late news.
            if packet.word == Word.WRTE:
                self.send(Packet(Word.CLSE, 0, packet.first))
            return
        if packet.word == Word.OKAY:
            stream.acknowledge()
        elif packet.word == Word.CLSE:
            stream.shut()
            if stream.opened_here:
                self._streams.pop(stream.local, None)
        else:
            stream.receive(packet.payload)
            if stream.backlog > _BACKLOG_MAX:
                raise MalformedPacket("a host that does not wait for OKAY")

    async def _attend(self, stream: AdbStream, service: Service) -> None:
        try:
            await service(stream)
            if not stream.closed.is_set():
                await stream.flushed()
        except StreamClosed:
            pass
        finally:
            self._streams.pop(stream.local, None)
            self.send(Packet(Word.CLSE, stream.local, stream.remote))
            stream.shut()
