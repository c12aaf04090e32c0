"""The call of a command: its arguments and streams, and how it runs as a process."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from agent.virtual.process_table import Process
from agent.virtual.shell.byte_streams import ByteSink, ByteSource

if TYPE_CHECKING:
    from agent.virtual.shell.interpreter import Shell
    from agent.virtual.virtual_phone import VirtualPhone


class StdStreams(NamedTuple):
    """File descriptors 0, 1 and 2."""

    stdin: ByteSource
    stdout: ByteSink
    stderr: ByteSink

    async def drain(self) -> None:
        await self.stdout.drain()
        await self.stderr.drain()


class RetainedOutput:
    """The output that a background process keeps open until it ends or redirects it."""

    def __init__(self, streams: StdStreams) -> None:
        self._sinks = [streams.stdout, streams.stderr]
        for sink in self._sinks:
            sink.retain()

    def keep_only(self, *kept_sinks: ByteSink) -> None:
        """Release all other sinks."""
        for sink in self._sinks:
            if sink not in kept_sinks:
                sink.release()
        self._sinks = [sink for sink in self._sinks if sink in kept_sinks]


@dataclass(slots=True)
class CommandCall:
    """One running command."""

    argv: list[str]
    shell: "Shell"
    process: Process
    streams: StdStreams

    @property
    def phone(self) -> "VirtualPhone":
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

    def print(self, text: str) -> None:
        self.streams.stdout.write(encode(text))

    def fail(self, text: str, status: int = 1) -> int:
        """Print an error as toybox does, and return the status."""
        with suppress(OSError):  # the disk may be full or the pipe closed
            self.streams.stderr.write(encode(f"{self.name}: {text}\n"))
        return status


CommandFunction = Callable[[CommandCall], int | Awaitable[int]]


def by_name(*functions: CommandFunction) -> dict[str, CommandFunction]:
    """Return commands under the names of their functions."""
    return {function.__name__: function for function in functions}


def encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def decode(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


async def run_as_process(
    call: CommandCall,
    argv: list[str],
    body: Callable[[Process], Awaitable[int]],
    uid: int | None = None,
) -> int:
    """Run a body as a process: in one that awaits exec, otherwise in a child."""
    processes = call.phone.processes
    if call.process.awaiting_exec:
        processes.exec_program(call.process, argv, uid)
        return await body(call.process)
    child = processes.spawn(call.process, argv, uid)
    status = 129
    child.task = asyncio.ensure_future(_run_body(body, child))
    try:
        status = await child.task
    except asyncio.CancelledError:
        # If only the child was killed, it has a status; if this process was killed too, it ends as
        # well.
        if child.status is None or call.process.status is not None:
            raise
        status = child.status
    finally:
        processes.end_process(child, status)
    return status


async def _run_body(body: Callable[[Process], Awaitable[int]], process: Process) -> int:
    return await body(process)
