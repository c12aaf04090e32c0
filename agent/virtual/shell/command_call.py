"""What a command is given, and how it becomes a process of its own."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from agent.virtual.processes import Process
from agent.virtual.shell.streams import Sink, Source

if TYPE_CHECKING:
    from agent.virtual.phone import Phone
    from agent.virtual.shell.interpreter import Shell


class Streams(NamedTuple):
    """Descriptors 0, 1 and 2."""

    stdin: Source
    stdout: Sink
    stderr: Sink

    async def drain(self) -> None:
        await self.stdout.drain()
        await self.stderr.drain()


class Holding:
    """A background process keeps the output it inherited open, until it ends or redirects."""

    def __init__(self, streams: Streams) -> None:
        self._sinks = [streams.stdout, streams.stderr]
        for sink in self._sinks:
            sink.hold()

    def keep(self, *wanted: Sink) -> None:
        """Let go of everything else."""
        for sink in self._sinks:
            if sink not in wanted:
                sink.release()
        self._sinks = [sink for sink in self._sinks if sink in wanted]


@dataclass(slots=True)
class Call:
    """One command at work."""

    argv: list[str]
    shell: "Shell"
    process: Process
    streams: Streams

    @property
    def phone(self) -> "Phone":
        return self.shell.phone

    @property
    def name(self) -> str:
        return self.argv[0].rpartition("/")[2]

    @property
    def uid(self) -> int:
        return self.process.uid

    @property
    def cwd(self) -> str:
        return self.shell.cwd

    def say(self, text: str) -> None:
        self.streams.stdout.write(encode(text))

    def complain(self, text: str, status: int = 1) -> int:
        """Say what is wrong the way toybox does, and return the status."""
        with suppress(OSError):  # a full disk or a closed pipe does not hear of it
            self.streams.stderr.write(encode(f"{self.name}: {text}\n"))
        return status


Program = Callable[[Call], int | Awaitable[int]]


def encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def decode(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


async def occupy(
    call: Call, argv: list[str], body: Callable[[Process], Awaitable[int]], uid: int | None = None
) -> int:
    """Run a body as a process: in the vacant one, as exec does, or else in a child."""
    processes = call.phone.processes
    if call.process.vacant:
        processes.become(call.process, argv, uid)
        return await body(call.process)
    child = processes.spawn(call.process, argv, uid)
    status = 129
    child.work = asyncio.ensure_future(_as_int(body, child))
    try:
        status = await child.work
    except asyncio.CancelledError:
        # Killed alone, the child is a status; killed with us, it is our end too.
        if child.status is None or call.process.status is not None:
            raise
        status = child.status
    finally:
        processes.end(child, status)
    return status


async def _as_int(body: Callable[[Process], Awaitable[int]], process: Process) -> int:
    return await body(process)
