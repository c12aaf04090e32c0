"""One host's connection: greets it, keeps its streams apart, survives whatever it sends."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable

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
        self._greeted = False
        self._peer_version = VERSION
        self._payload_max = PAYLOAD_MAX
        self._locals = itertools.count(1)
        self._streams: dict[int, AdbStream] = {}
        self._services: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Answer packets until the connection ends; leaves nothing running behind."""
        try:
            while True:
                self._answer(await read_packet(self._reader))
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

    # -- packets

    def _answer(self, packet: Packet) -> None:
        if packet.word == Word.CNXN:
            self._greet(packet)
        elif not self._greeted:
            raise MalformedPacket("a packet before the greeting")
        elif packet.word == Word.OPEN:
            self._open(packet)
        elif packet.word in (Word.OKAY, Word.WRTE, Word.CLSE):
            self._to_stream(packet)
        elif packet.word not in (Word.AUTH, Word.SYNC):
            raise MalformedPacket(f"unknown command {packet.word:08x}")

    def _greet(self, packet: Packet) -> None:
        self._greeted = True
        self._peer_version = packet.first
        self._payload_max = min(max(packet.second, 4096), PAYLOAD_MAX)
        self._send(Packet(Word.CNXN, VERSION, PAYLOAD_MAX, self._banner.encode()))

    def _open(self, packet: Packet) -> None:
        name = packet.payload.rstrip(b"\0").decode("utf-8", "surrogateescape")
        service = self._find_service(name)
        if service is None or packet.first == 0 or len(self._streams) >= _STREAMS_MAX:
            self._send(Packet(Word.CLSE, 0, packet.first))
            return
        stream = AdbStream(next(self._locals), packet.first, self._send, self._payload_max)
        self._streams[stream.local] = stream
        self._send(Packet(Word.OKAY, stream.local, stream.remote))
        work = asyncio.get_running_loop().create_task(self._attend(stream, service))
        self._services.add(work)
        work.add_done_callback(self._services.discard)

    def _to_stream(self, packet: Packet) -> None:
        stream = self._streams.get(packet.second)
        if stream is None or (packet.first not in (0, stream.remote)):
            # A WRTE to a stream that is gone is told so; anything else is late news.
            if packet.word == Word.WRTE:
                self._send(Packet(Word.CLSE, 0, packet.first))
            return
        if packet.word == Word.OKAY:
            stream.acknowledge()
        elif packet.word == Word.CLSE:
            stream.shut()
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
            self._send(Packet(Word.CLSE, stream.local, stream.remote))
            stream.shut()

    def _send(self, packet: Packet) -> None:
        if not self._writer.is_closing():
            self._writer.writelines(encode_packet(packet, self._peer_version))
