"""The shell services: v1 (one merged stream), v2 (stdin, stdout, stderr, exit), exec.

Output of v1 goes through one sink, so that what was printed first arrives first.
"""

import asyncio
import errno
import signal
import struct
from collections import deque
from dataclasses import dataclass

from agent.virtual.adb.stream import AdbStream, StreamClosed
from agent.virtual.adb.terminal import Keyboard, TerminalSink
from agent.virtual.files.tree import failed
from agent.virtual.phone import Phone
from agent.virtual.programs import PhonePrograms
from agent.virtual.shell.call import Streams
from agent.virtual.shell.interpreter import Shell
from agent.virtual.shell.streams import Pipe, Sink

_STDIN, _STDOUT, _STDERR, _EXIT, _CLOSE_STDIN = range(5)
_PACKET = struct.Struct("<BI")
_BUFFER_MAX = 256 * 1024


class Outlet:
    """Collects what a shell prints and sends it as fast as the host takes it."""

    def __init__(self, stream: AdbStream, packed: bool) -> None:
        self._stream = stream
        self._packed = packed
        self._queue: deque[tuple[int, bytearray]] = deque()
        self._size = 0
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._holders = 0
        self._status: int | None = None
        self._finished = False
        self.stdout = OutletSink(self, _STDOUT)
        self.stderr = OutletSink(self, _STDERR) if packed else self.stdout

    def put(self, kind: int, chunk: bytes) -> None:
        if self._stream.closed.is_set():
            raise failed(errno.EPIPE)
        if self._queue and self._queue[-1][0] == kind:
            self._queue[-1][1].extend(chunk)
        else:
            self._queue.append((kind, bytearray(chunk)))
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
        """The shell is done."""
        self._status = status
        self._changed.set()

    async def send_all(self) -> None:
        """Send until the shell has ended and nobody holds its output any more."""
        while not self._finished:
            if content := self._gather():
                await self._stream.write(content)
            elif not self._finished:
                self._changed.clear()
                await self._changed.wait()

    def shut(self) -> None:
        """Nobody listens any more."""
        self._queue.clear()
        self._room.set()

    def _gather(self) -> bytes:
        """What is there, as one write; the exit packet comes last of all."""
        gathered = bytearray()
        while self._queue:
            kind, chunk = self._queue.popleft()
            gathered += self._wrapped(kind, chunk) if self._packed else chunk
        self._size = 0
        self._room.set()
        if self._status is not None and self._holders <= 0:
            self._finished = True
            if self._packed:
                gathered += _PACKET.pack(_EXIT, 1) + bytes([self._status & 255])
        return bytes(gathered)

    @staticmethod
    def _wrapped(kind: int, chunk: bytearray) -> bytes:
        parts = [chunk[at : at + _BUFFER_MAX] for at in range(0, len(chunk), _BUFFER_MAX)]
        return b"".join(_PACKET.pack(kind, len(part)) + part for part in parts)


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


@dataclass(frozen=True, slots=True)
class ShellRequest:
    """What a host asked for: a command, or a shell that reads its commands where there is none."""

    command: str
    packed: bool  # shell protocol v2
    terminal: bool = False  # a person sits at the other end


async def serve_shell(phone: Phone, stream: AdbStream, request: ShellRequest) -> None:
    """Run until the shell ends or the host is gone; what was started in it goes with it."""
    session = _Session(phone, stream, request)
    loop = asyncio.get_running_loop()
    session.process.work = loop.create_task(session.work())
    feeding = loop.create_task(session.feed())
    gone = loop.create_task(stream.closed.wait())
    sending = loop.create_task(session.outlet.send_all())
    try:
        await asyncio.wait([sending, gone], return_when=asyncio.FIRST_COMPLETED)
    finally:
        session.outlet.shut()
        phone.processes.hang_up(session.process.session)
        for ending in (feeding, gone, sending):
            ending.cancel()
        await asyncio.gather(feeding, gone, sending, return_exceptions=True)


class _Session:
    def __init__(self, phone: Phone, stream: AdbStream, request: ShellRequest) -> None:
        self._phone = phone
        self._stream = stream
        self._request = request
        self._stdin = Pipe()
        self.outlet = Outlet(stream, request.packed)
        command = request.command
        argv = ["sh", "-c", command] if command else ["sh"]
        self.process = phone.processes.spawn(None, argv, phone.adbd_uid)
        name = "/system/bin/sh" if command or request.terminal else "sh"
        self._shell = Shell(phone, self.process, PhonePrograms(), name)
        stdout: Sink = self.outlet.stdout
        stderr: Sink = self.outlet.stderr
        self._keyboard: Keyboard | None = None
        if request.terminal:
            stdout = stderr = TerminalSink(self.outlet.stdout)
            self._keyboard = Keyboard(self._stdin, stdout, self._interrupt)
            self._shell.prompted = True
        self._streams = Streams(self._stdin, stdout, stderr)

    async def work(self) -> int:
        """The shell itself."""
        status = 129
        try:
            if self._request.command:
                status = await self._shell.run_text(self._request.command, self._streams)
            else:
                status = await self._shell.run_source(self._stdin, self._streams)
        except OSError:
            status = 141  # nobody was left to tell
        finally:
            self._phone.processes.end(self.process, status)
            self.outlet.finish(status)
        return status

    async def feed(self) -> None:
        """Carry the host's bytes to stdin until either is closed."""
        try:
            while True:
                chunk = await self._next_input()
                if chunk is None:
                    return
                if self._keyboard is None:
                    self._stdin.write(chunk)
                elif not self._keyboard.type(chunk):
                    return
                await self._stdin.drain()
        except (StreamClosed, OSError):
            return
        finally:
            self._stdin.release()

    async def _next_input(self) -> bytes | None:
        """Bytes for stdin (perhaps none), or None at its end."""
        if not self._request.packed:
            return await self._stream.read() or None
        kind, length = _PACKET.unpack(await self._stream.read_exactly(_PACKET.size))
        content = await self._stream.read_exactly(length)
        if kind == _CLOSE_STDIN:
            return None
        return content if kind == _STDIN else b""

    def _interrupt(self) -> None:
        """^C goes to everybody in the session but its shell."""
        for process in self._phone.processes.all():
            if process.session == self.process.session and process is not self.process:
                self._phone.processes.kill(process, signal.SIGINT)
