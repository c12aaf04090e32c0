"""A bad postman between the farm and its broker: he loses, doubles, delays and delivers again.

He stands on the wire, speaks just enough of Redis' protocol to see a message being posted, and
draws its fate with his seed. Whoever posts a message that is lost or late is told that it went out.
He can also fall silent, in both directions or in one: connections stay open, and nothing comes
through. And he can dawdle: everything takes a while, now and then a long one.
"""

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import redis

from workloads.protocol.messages import RESULTS_QUEUE, host_queue

LOST = b"test:lost"
COPIES = 5


@dataclass(frozen=True)
class Odds:
    """How often a message meets with what; what is left over comes through as it should."""

    lost: float = 0.0
    late: float = 0.0
    doubled: float = 0.0
    again: float = 0.0  # an older one, of anybody's, comes once more


class Postman:
    """Doors in front of one broker, each with a port of its own."""

    def __init__(self, broker_url: str, hosts: tuple[str, ...], odds: Odds, late_s: float) -> None:
        self._path = broker_url.removeprefix("unix://")
        self._broker: redis.Redis = redis.Redis.from_url(broker_url)  # type: ignore[type-arg]
        self._queues = {name.encode() for name in (RESULTS_QUEUE, *map(host_queue, hosts))}
        self._draw = random.Random(1)
        self._kept: list[tuple[bytes, bytes]] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self._asking: dict[str, asyncio.Event] = {}
        self._answering: dict[str, asyncio.Event] = {}
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        self.odds = odds
        self.late_s = late_s
        self.dawdling_s = 0.0
        self.done: Counter[str] = Counter()

    @contextmanager
    def at_work(self) -> Iterator["Postman"]:
        """Stand on the wire, in a thread of his own."""
        thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(self._go_home(), self._loop).result(10)
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            self._loop.close()
            self._broker.close()

    def door(self, name: str) -> str:
        """The broker's URL, as those behind one door know it."""

        async def build() -> int:
            for ways in (self._asking, self._answering):
                ways[name] = asyncio.Event()
                ways[name].set()
            server = await asyncio.start_server(
                lambda reader, writer: self._serve(name, reader, writer), "127.0.0.1", 0
            )
            self._servers.append(server)
            return int(server.sockets[0].getsockname()[1])

        port = asyncio.run_coroutine_threadsafe(build(), self._loop).result(10)
        return f"redis://127.0.0.1:{port}/0"

    def silence(self, name: str) -> None:
        """Let nothing through a door, in neither direction, without a word."""
        self.withhold_answers(name)
        self._loop.call_soon_threadsafe(self._asking[name].clear)

    def withhold_answers(self, name: str) -> None:
        """Carry what is asked, and keep what is answered."""
        self._loop.call_soon_threadsafe(self._answering[name].clear)

    def speak(self, name: str) -> None:
        """Let everything through again, what has gathered first."""
        for way in (self._asking[name], self._answering[name]):
            self._loop.call_soon_threadsafe(way.set)

    def cut(self) -> None:
        """Cut every connection."""
        for writer in list(self._writers):
            self._loop.call_soon_threadsafe(writer.transport.abort)

    async def _go_home(self) -> None:
        for server in self._servers:
            server.close()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def _serve(
        self, door: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        there_reader, there = await asyncio.open_unix_connection(self._path)
        ends = {writer, there}
        self._writers |= ends
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._ask(door, reader, there))
                group.create_task(self._answer(door, there_reader, writer))
        except* (OSError, asyncio.IncompleteReadError):
            pass  # one end has hung up, and the other hears of it
        finally:
            self._writers -= ends
            for end in ends:
                end.transport.abort()

    async def _ask(
        self, door: str, reader: asyncio.StreamReader, there: asyncio.StreamWriter
    ) -> None:
        while True:
            words = await _command(reader)
            await self._dawdle()
            await self._asking[door].wait()
            if words[0].upper() == b"LPUSH" and words[1] in self._queues:
                words = self._handle(words)
            parts = (b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
            there.write(b"*%d\r\n%s" % (len(words), b"".join(parts)))
            await there.drain()

    async def _answer(
        self, door: str, there: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while data := await there.read(65536):
            await self._dawdle()
            await self._answering[door].wait()
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError

    async def _dawdle(self) -> None:
        if self.dawdling_s:
            await asyncio.sleep(self.dawdling_s * self._draw.random() ** 8)

    def _handle(self, words: list[bytes]) -> list[bytes]:
        """Draw what becomes of a message; a key that nobody reads swallows it."""
        _, queue, body = words
        self._kept.append((queue, body))
        luck = self._draw.random()
        if luck < self.odds.lost:
            self.done["lost"] += 1
            return [b"LPUSH", LOST, body]
        luck -= self.odds.lost
        if luck < self.odds.late:
            self.done["late"] += 1
            self._loop.call_later(self.late_s, self._push, queue, body)
            return [b"LPUSH", LOST, body]
        luck -= self.odds.late
        if luck < self.odds.doubled:
            self.done["doubled"] += 1
            for _ in range(COPIES - 1):
                self._push(queue, body)
        elif luck - self.odds.doubled < self.odds.again:
            self.done["again"] += 1
            self._push(*self._draw.choice(self._kept))
        return words

    def _push(self, queue: bytes, body: bytes) -> None:
        with suppress(redis.RedisError):
            self._broker.lpush(queue, body)


async def _command(reader: asyncio.StreamReader) -> list[bytes]:
    """One command as clients send it: an array of strings."""
    count = int((await reader.readuntil(b"\r\n"))[1:])
    words = []
    for _ in range(count):
        size = int((await reader.readuntil(b"\r\n"))[1:])
        words.append((await reader.readexactly(size + 2))[:-2])
    return words
