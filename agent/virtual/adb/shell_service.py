"""The shell services: v1 (one merged stream), v2 (stdin, stdout, stderr, exit), exec.

Output of v1 goes through one sink, so that what was printed first arrives first.
"""

import asyncio
import errno
import struct
from collections import deque

from agent.virtual.adb.stream import AdbStream, StreamClosed
from agent.virtual.files.tree import failed
from agent.virtual.phone import Phone
from agent.virtual.programs import PhonePrograms
from agent.virtual.shell.call import Streams
from agent.virtual.shell.interpreter import Shell
from agent.virtual.shell.streams import Pipe

_STDIN, _STDOUT, _STDERR, _EXIT, _CLOSE_STDIN = range(5)
_PACKET = struct.Struct("<BI")
_BUFFER_MAX = 256 * 1024
_CHUNK_MAX = 64 * 1024


class Outlet:
    """Collects what a shell prints and sends it as fast as the host takes it."""

    def __init__(self, stream: AdbStream, packed: bool) -> None:
        self._stream = stream
        self._packed = packed
        self._queue: deque[tuple[int, bytes]] = deque()
        self._size = 0
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._holders = 0
        self._ended = False
        self.stdout = OutletSink(self, _STDOUT)
        self.stderr = OutletSink(self, _STDERR) if packed else self.stdout

    def put(self, kind: int, chunk: bytes) -> None:
        if self._stream.closed.is_set():
            raise failed(errno.EPIPE)
        self._queue.append((kind, chunk))
        self._size += len(chunk)
        self._changed.set()
        if self._size > _BUFFER_MAX:
            self._room.clear()

    async def drain(self) -> None:
        if not self._room.is_set():
            await self._room.wait()

    def hold(self, change: int) -> None:
        """Background processes keep the stream open as long as they hold its output."""
        self._holders += change
        self._changed.set()

    def finish(self, status: int) -> None:
        """The shell is done; an exit packet follows its last output."""
        if self._packed:
            self._queue.append((_EXIT, bytes([status & 255])))
        self._ended = True
        self._changed.set()

    async def send_all(self) -> None:
        """Send until the shell has ended and nobody holds its output any more."""
        while True:
            # The exit packet must be last, so it waits for holders.
            if self._queue and not (self._queue[0][0] == _EXIT and self._holders > 0):
                await self._stream.write(self._gather())
                continue
            if self._ended and self._holders <= 0:
                return
            self._changed.clear()
            await self._changed.wait()

    def shut(self) -> None:
        """Nobody listens any more."""
        self._queue.clear()
        self._room.set()
        self._changed.set()

    def _gather(self) -> bytes:
        gathered = bytearray()
        while self._queue and len(gathered) < _CHUNK_MAX:
            kind, chunk = self._queue.popleft()
            if kind == _EXIT and self._holders > 0:
                self._queue.append((kind, chunk))
                break
            self._size -= len(chunk) if kind != _EXIT else 0
            gathered += _PACKET.pack(kind, len(chunk)) + chunk if self._packed else chunk
        if self._size <= _BUFFER_MAX:
            self._room.set()
        return bytes(gathered)


class OutletSink:
    """stdout or stderr of a shell."""

    def __init__(self, outlet: Outlet, kind: int) -> None:
        self._outlet = outlet
        self._kind = kind

    def write(self, chunk: bytes) -> None:
        if chunk:
            self._outlet.put(self._kind, chunk)

    async def drain(self) -> None:
        await self._outlet.drain()

    def hold(self) -> None:
        self._outlet.hold(1)

    def release(self) -> None:
        self._outlet.hold(-1)


async def serve_shell(phone: Phone, stream: AdbStream, command: str, packed: bool) -> None:
    """Run one command, or a shell that reads its commands, until it ends or the host is gone."""
    outlet = Outlet(stream, packed)
    stdin = Pipe()
    process = phone.processes.spawn(None, ["sh", "-c", command] if command else ["sh"])
    shell = Shell(phone, process, PhonePrograms(), "/system/bin/sh" if command else "sh")
    streams = Streams(stdin, outlet.stdout, outlet.stderr)

    async def work() -> int:
        status = 129
        try:
            if command:
                status = await shell.run_text(command, streams)
            else:
                status = await shell.run_source(stdin, streams)
        finally:
            phone.processes.end(process, status)
            outlet.finish(status)
        return status

    process.work = asyncio.get_running_loop().create_task(work())
    feeding = asyncio.get_running_loop().create_task(_feed(stream, stdin, packed))
    gone = asyncio.get_running_loop().create_task(stream.closed.wait())
    sending = asyncio.get_running_loop().create_task(outlet.send_all())
    try:
        await asyncio.wait([sending, gone], return_when=asyncio.FIRST_COMPLETED)
    finally:
        outlet.shut()
        phone.processes.hang_up(process.session)
        for task in (feeding, gone, sending):
            task.cancel()
        await asyncio.gather(feeding, gone, sending, return_exceptions=True)


async def _feed(stream: AdbStream, stdin: Pipe, packed: bool) -> None:
    """Carry the host's bytes to stdin until either is closed."""
    try:
        while True:
            if not packed:
                chunk = await stream.read()
                if not chunk:
                    return
                stdin.write(chunk)
            else:
                kind, length = _PACKET.unpack(await stream.read_exactly(_PACKET.size))
                content = await stream.read_exactly(length)
                if kind == _CLOSE_STDIN:
                    return
                if kind == _STDIN:
                    stdin.write(content)
            await stdin.drain()
    except (StreamClosed, OSError):
        return
    finally:
        stdin.release()
