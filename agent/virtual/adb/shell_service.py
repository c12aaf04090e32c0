"""The shell services: v1 (one merged stream), v2 (stdin, stdout, stderr, exit status) and exec.

v1 writes stdout and stderr through one sink, so output arrives in the order it was printed.
"""

import asyncio
import errno
import signal
import struct
from collections import deque
from dataclasses import dataclass

from agent.virtual.adb.adb_stream import AdbStream, StreamClosed
from agent.virtual.adb.line_editor import LineEditor, TerminalSink
from agent.virtual.files.file_tree import os_error
from agent.virtual.phone_loop import process_context
from agent.virtual.program_lookup import ProgramLookup
from agent.virtual.shell.byte_streams import BytePipe, ByteSink
from agent.virtual.shell.command_call import StdStreams
from agent.virtual.shell.interpreter import Shell
from agent.virtual.virtual_phone import VirtualPhone

_STDIN, _STDOUT, _STDERR, _EXIT, _CLOSE_STDIN = range(5)
_PACKET = struct.Struct("<BI")
_BUFFER_MAX = 256 * 1024


class ShellOutput:
    """Collects the output of a shell and sends it as fast as the host accepts it."""

    def __init__(self, stream: AdbStream, is_v2: bool) -> None:
        self._stream = stream
        self._is_v2 = is_v2
        self._queue: deque[tuple[int, bytearray]] = deque()
        self._size = 0
        self._changed = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._holders = 0
        self._released = asyncio.Event()
        self._is_abandoned = False
        self._status: int | None = None
        self._finished = False
        self.stdout = ShellOutputSink(self, _STDOUT)
        self.stderr = ShellOutputSink(self, _STDERR) if is_v2 else self.stdout

    def append(self, stream_id: int, chunk: bytes) -> None:
        if self._stream.closed.is_set():
            raise os_error(errno.EPIPE)
        if self._queue and self._queue[-1][0] == stream_id:
            self._queue[-1][1].extend(chunk)
        else:
            self._queue.append((stream_id, bytearray(chunk)))
        self._size += len(chunk)
        self._changed.set()
        if self._size > _BUFFER_MAX:
            self._has_room.clear()

    async def drain(self) -> None:
        if not self._has_room.is_set():
            await self._has_room.wait()

    def change_holders(self, change: int) -> None:
        """Count the background processes that keep the stream open with their output."""
        self._holders += change
        self._changed.set()
        self._released.set()

    def finish(self, status: int) -> None:
        """Note that the shell has ended."""
        self._status = status
        self._changed.set()

    async def wait_released(self) -> None:
        """Wait until no background process holds the output, or the host is gone."""
        while self._holders > 0 and not self._is_abandoned:
            self._released.clear()
            await self._released.wait()

    async def send_all(self) -> None:
        """Send until the shell has ended and no background process holds its output."""
        while not self._finished:
            if content := self._take_pending():
                await self._stream.write(content)
            elif not self._finished:
                self._changed.clear()
                await self._changed.wait()

    def discard(self) -> None:
        """Drop everything because the host is gone."""
        self._queue.clear()
        self._has_room.set()
        self._is_abandoned = True
        self._released.set()

    def _take_pending(self) -> bytes:
        """Return all pending output as one write; the exit packet comes last."""
        content = bytearray()
        while self._queue:
            stream_id, chunk = self._queue.popleft()
            content += self._as_packets(stream_id, chunk) if self._is_v2 else chunk
        self._size = 0
        self._has_room.set()
        if self._status is not None and self._holders <= 0:
            self._finished = True
            if self._is_v2:
                content += _PACKET.pack(_EXIT, 1) + bytes([self._status & 255])
        return bytes(content)

    @staticmethod
    def _as_packets(stream_id: int, chunk: bytearray) -> bytes:
        parts = [chunk[start : start + _BUFFER_MAX] for start in range(0, len(chunk), _BUFFER_MAX)]
        return b"".join(_PACKET.pack(stream_id, len(part)) + part for part in parts)


class ShellOutputSink:
    """stdout or stderr of a shell."""

    def __init__(self, output: ShellOutput, stream_id: int) -> None:
        self._output = output
        self._stream_id = stream_id

    def write(self, chunk: bytes) -> None:
        if chunk:
            self._output.append(self._stream_id, chunk)

    async def drain(self) -> None:
        await self._output.drain()

    def retain(self) -> None:
        self._output.change_holders(1)

    def release(self) -> None:
        self._output.change_holders(-1)


@dataclass(frozen=True, slots=True)
class ShellRequest:
    """What the host asked for; without a command, the shell reads commands from stdin."""

    command: str
    is_v2: bool  # shell protocol v2
    is_interactive: bool = False  # a person types: echo, prompt, history


async def serve_shell(phone: VirtualPhone, stream: AdbStream, request: ShellRequest) -> None:
    """Run until the shell ends or the host is gone; then hang up the processes of its session."""
    session = _ShellSession(phone, stream, request)
    loop = asyncio.get_running_loop()
    session.process.task = loop.create_task(session.run(), context=process_context(phone.clock))
    input_task = loop.create_task(session.forward_input())
    closed_task = loop.create_task(stream.closed.wait())
    output_task = loop.create_task(session.output.send_all())
    try:
        await asyncio.wait([output_task, closed_task], return_when=asyncio.FIRST_COMPLETED)
    finally:
        session.output.discard()
        phone.processes.hang_up(session.process.session)
        for task in (input_task, closed_task, output_task):
            task.cancel()
        await asyncio.gather(input_task, closed_task, output_task, return_exceptions=True)


class _ShellSession:
    def __init__(self, phone: VirtualPhone, stream: AdbStream, request: ShellRequest) -> None:
        self._phone = phone
        self._stream = stream
        self._request = request
        self._stdin = BytePipe()
        self.output = ShellOutput(stream, request.is_v2)
        command = request.command
        argv = ["sh", "-c", command] if command else ["sh"]
        self.process = phone.processes.spawn(None, argv, phone.adbd_uid)
        name = "/system/bin/sh" if command or request.is_interactive else "sh"
        self._shell = Shell(phone, self.process, ProgramLookup(), name)
        stdout: ByteSink = self.output.stdout
        stderr: ByteSink = self.output.stderr
        self._line_editor: LineEditor | None = None
        if request.is_interactive:
            stdout = stderr = TerminalSink(self.output.stdout)
            self._line_editor = LineEditor(self._stdin, stdout, self._interrupt)
            self._shell.is_interactive = True
        self._streams = StdStreams(self._stdin, stdout, stderr)

    async def run(self) -> int:
        """Run the command, or the commands from stdin."""
        status = 129
        try:
            if self._request.command:
                status = await self._shell.run_text(self._request.command, self._streams)
            else:
                status = await self._shell.run_lines(self._stdin, self._streams)
        except OSError:
            status = 141  # SIGPIPE: the host no longer reads
        finally:
            self._phone.processes.end_process(self.process, status)
            self.output.finish(status)
        with self._phone.clock.blocked():
            await self.output.wait_released()
        return status

    async def forward_input(self) -> None:
        """Copy the host's bytes to stdin until either is closed."""
        try:
            while True:
                chunk = await self._next_input()
                if chunk is None:
                    return
                if self._line_editor is None:
                    self._stdin.write(chunk)
                elif not self._line_editor.feed_keys(chunk):
                    return
                await self._stdin.drain()
        except (StreamClosed, OSError):
            return
        finally:
            self._stdin.release()

    async def _next_input(self) -> bytes | None:
        """Return bytes for stdin (possibly none), or None at its end."""
        if not self._request.is_v2:
            return await self._stream.read() or None
        stream_id, length = _PACKET.unpack(await self._stream.read_exactly(_PACKET.size))
        content = await self._stream.read_exactly(length)
        if stream_id == _CLOSE_STDIN:
            return None
        return content if stream_id == _STDIN else b""

    def _interrupt(self) -> None:
        """Send SIGINT to every process of the session except its shell."""
        for process in self._phone.processes.all():
            if process.session == self.process.session and process is not self.process:
                self._phone.processes.kill(process, signal.SIGINT)
