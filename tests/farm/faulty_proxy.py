"""A proxy between the farm and its broker that loses, delays, duplicates and replays messages.

It parses just enough of the Redis protocol to recognise a posted message, and draws its fate from a
seed. The sender of a lost or delayed message still gets the broker's success reply. The proxy can
block a port in both directions or in one: connections stay open, and no data passes. It can also
delay all data by random times.
"""

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import redis

from workloads.protocol.messages import host_queue, results_queue

LOST = b"test:lost"
COPIES = 5


@dataclass(frozen=True)
class FaultRates:
    """The share of messages with each fault; all other messages pass unchanged."""

    lost: float = 0.0
    late: float = 0.0
    doubled: float = 0.0
    replayed: float = 0.0  # an older message, of any sender, is posted once more


class FaultyProxy:
    """Several ports in front of one broker; each can be blocked by its name."""

    def __init__(
        self, broker_url: str, hosts: tuple[str, ...], rates: FaultRates, late_s: float
    ) -> None:
        self._path = broker_url.removeprefix("unix://")
        self._broker: redis.Redis = redis.Redis.from_url(broker_url)  # type: ignore[type-arg]
        names = (*map(results_queue, hosts), *map(host_queue, hosts))
        self._queues = {name.encode() for name in names}
        self._random = random.Random(1)
        self._seen: list[tuple[bytes, bytes]] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self._requests_pass: dict[str, asyncio.Event] = {}
        self._replies_pass: dict[str, asyncio.Event] = {}
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        self.rates = rates
        self.late_s = late_s
        self.delay_max_s = 0.0
        self.counts: Counter[str] = Counter()

    @contextmanager
    def running(self) -> Iterator["FaultyProxy"]:
        """Serve all ports in a thread."""
        thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            self._loop.close()
            self._broker.close()

    def open_port(self, name: str) -> str:
        """Open a port and return the broker's URL through it."""

        async def build() -> int:
            for gates in (self._requests_pass, self._replies_pass):
                gates[name] = asyncio.Event()
                gates[name].set()
            server = await asyncio.start_server(
                lambda reader, writer: self._serve(name, reader, writer), "127.0.0.1", 0
            )
            self._servers.append(server)
            return int(server.sockets[0].getsockname()[1])

        port = asyncio.run_coroutine_threadsafe(build(), self._loop).result(10)
        return f"redis://127.0.0.1:{port}/0"

    def block(self, name: str) -> None:
        """Let no data through a port, in either direction; connections stay open."""
        self.block_replies(name)
        self._loop.call_soon_threadsafe(self._requests_pass[name].clear)

    def block_replies(self, name: str) -> None:
        """Forward requests, and hold the replies."""
        self._loop.call_soon_threadsafe(self._replies_pass[name].clear)

    def unblock(self, name: str) -> None:
        """Let everything through a port again, buffered data first."""
        for gate in (self._requests_pass[name], self._replies_pass[name]):
            self._loop.call_soon_threadsafe(gate.set)

    def cut_connections(self) -> None:
        """Abort every connection."""
        for writer in list(self._writers):
            self._loop.call_soon_threadsafe(writer.transport.abort)

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def _serve(
        self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        broker_reader, broker_writer = await asyncio.open_unix_connection(self._path)
        writers = {writer, broker_writer}
        self._writers |= writers
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._forward_requests(name, reader, broker_writer))
                group.create_task(self._forward_replies(name, broker_reader, writer))
        except* (OSError, asyncio.IncompleteReadError):
            pass  # one end closed its connection; both are closed below
        finally:
            self._writers -= writers
            for end in writers:
                end.transport.abort()

    async def _forward_requests(
        self, name: str, reader: asyncio.StreamReader, broker: asyncio.StreamWriter
    ) -> None:
        while True:
            words = await _read_command(reader)
            await self._delay()
            await self._requests_pass[name].wait()
            if words[0].upper() == b"LPUSH" and words[1] in self._queues:
                words = self._inject(words)
            parts = (b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
            broker.write(b"*%d\r\n%s" % (len(words), b"".join(parts)))
            await broker.drain()

    async def _forward_replies(
        self, name: str, broker: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while data := await broker.read(65536):
            await self._delay()
            await self._replies_pass[name].wait()
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError

    async def _delay(self) -> None:
        if self.delay_max_s:
            await asyncio.sleep(self.delay_max_s * self._random.random() ** 8)

    def _inject(self, words: list[bytes]) -> list[bytes]:
        """Draw the fate of a message; a lost one goes to a key that no program reads."""
        _, queue, body = words
        self._seen.append((queue, body))
        drawn = self._random.random()
        if drawn < self.rates.lost:
            self.counts["lost"] += 1
            return [b"LPUSH", LOST, body]
        drawn -= self.rates.lost
        if drawn < self.rates.late:
            self.counts["late"] += 1
            self._loop.call_later(self.late_s, self._push, queue, body)
            return [b"LPUSH", LOST, body]
        drawn -= self.rates.late
        if drawn < self.rates.doubled:
            self.counts["doubled"] += 1
            for _ in range(COPIES - 1):
                self._push(queue, body)
        elif drawn - self.rates.doubled < self.rates.replayed:
            self.counts["replayed"] += 1
            self._push(*self._random.choice(self._seen))
        return words

    def _push(self, queue: bytes, body: bytes) -> None:
        with suppress(redis.RedisError):
            self._broker.lpush(queue, body)


async def _read_command(reader: asyncio.StreamReader) -> list[bytes]:
    """Read one command as clients send it: an array of strings."""
    count = int((await reader.readuntil(b"\r\n"))[1:])
    words = []
    for _ in range(count):
        size = int((await reader.readuntil(b"\r\n"))[1:])
        words.append((await reader.readexactly(size + 2))[:-2])
    return words
