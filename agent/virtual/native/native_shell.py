"""The shell services of a native phone: a real sh per stream, in its own process group.

When a stream ends, its process group is killed; processes that called setsid live until the phone
ends. The shell has no privileges: a line that writes a listed kernel node is executed by this
process, in its turn between the other lines.
"""

import asyncio
import os
import secrets
import shlex
import signal
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from agent.virtual.adb.adb_stream import AdbStream, StreamClosed
from agent.virtual.event_journal import JournalEvent
from agent.virtual.files.file_nodes import ROOT
from agent.virtual.native.native_folder import NativeFolder
from agent.virtual.virtual_phone import VirtualPhone

_STDIN, _STDOUT, _STDERR, _EXIT, _CLOSE_STDIN = range(5)
_PACKET = struct.Struct("<BI")
_CHUNK = 64 * 1024
_GRACE_S = 0.2
_BARRIER_TIMEOUT_S = 10.0
_end_tasks: set["asyncio.Task[None]"] = set()


async def serve_native_shell(
    phone: VirtualPhone, native_folder: NativeFolder, stream: AdbStream, command: str, is_v2: bool
) -> None:
    """Run until the shell ends or the host is gone."""
    loop = asyncio.get_running_loop()
    _connect_nodes(phone, native_folder, loop)
    script = native_folder.to_host_paths(
        _without_write(native_folder, command.encode("utf-8", "surrogateescape"))
    )
    argv: list[bytes | str] = ["/bin/sh", "-c", script] if command else ["/bin/sh"]
    stderr = asyncio.subprocess.PIPE if is_v2 else asyncio.subprocess.STDOUT
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=stderr,
        cwd=native_folder.root / "data" / "local" / "tmp",
        env=native_folder.environment(),
        start_new_session=True,
        user=native_folder.uid,
        group=native_folder.uid,
        extra_groups=[] if native_folder.uid is not None else None,
    )
    phone.journal.write(
        JournalEvent.PROCESS_START, pid=process.pid, argv=["sh", "-c", command], native=True
    )
    session = _NativeSession(native_folder, stream, process, is_v2, bool(command))
    output_task = loop.create_task(session.send_output())
    input_task = loop.create_task(session.forward_input())
    closed_task = loop.create_task(stream.closed.wait())
    try:
        await asyncio.wait([output_task, closed_task], return_when=asyncio.FIRST_COMPLETED)
        if output_task.done():
            # Processes that the shell left behind get time to call setsid, as on a busy phone.
            end_task = loop.create_task(_end_group(process, _GRACE_S))
            _end_tasks.add(end_task)
            end_task.add_done_callback(_end_tasks.discard)
    finally:
        if not output_task.done():
            await _end_group(process)
        for task in (output_task, input_task, closed_task):
            task.cancel()
        await asyncio.gather(output_task, input_task, closed_task, return_exceptions=True)
        phone.journal.write(
            JournalEvent.PROCESS_STOP, pid=process.pid, status=process.returncode, native=True
        )


def _connect_nodes(
    phone: VirtualPhone, native_folder: NativeFolder, loop: asyncio.AbstractEventLoop
) -> None:
    """Keep the copies of nodes fresh, and write changes of nodes to the phone's journal."""

    def record_write(path: str, old: str, value: str, error: str) -> None:
        facts = {"error": error} if error else {}
        phone.journal.write(
            JournalEvent.SYSFS_WRITE, path=path, old=old, new=value, text=value, uid=ROOT, **facts
        )

    native_folder.nodes.on_write = record_write
    native_folder.nodes.keep_fresh(loop)


def _without_write(native_folder: NativeFolder, line: bytes) -> bytes:
    """Write a node if the line does that, and return a line with its result; else the line."""
    request = native_folder.nodes.parse_write(line)
    if request is None:
        return line
    path, value = request
    error = native_folder.nodes.write(path, value)
    if not error:
        return b"true\n"
    return f"(echo {shlex.quote(f'sh: {path}: {error}')}; exit 1)\n".encode()


async def _end_group(process: asyncio.subprocess.Process, delay_s: float = 0.0) -> None:
    """Send SIGHUP as a phone would, then SIGKILL to those that ignore it."""
    await asyncio.sleep(delay_s)
    for signal_number in (signal.SIGHUP, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal_number)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _GRACE_S)


class _NativeSession:
    def __init__(
        self,
        native_folder: NativeFolder,
        stream: AdbStream,
        process: asyncio.subprocess.Process,
        is_v2: bool,
        has_command: bool,
    ) -> None:
        self._folder = native_folder
        self._stream = stream
        self._process = process
        self._is_v2 = is_v2
        self._has_command = has_command
        self._sending = asyncio.Lock()

    async def send_output(self) -> None:
        """Send the output to the host, then the exit status."""
        process = self._process
        assert process.stdout is not None
        readers = [self._forward(process.stdout, _STDOUT)]
        if process.stderr is not None:
            readers.append(self._forward(process.stderr, _STDERR))
        with suppress(StreamClosed):
            await asyncio.gather(*readers)
            status = await process.wait()
            if self._is_v2:
                code = status if status >= 0 else 128 - status
                await self._stream.write(_PACKET.pack(_EXIT, 1) + bytes([code & 255]))
            await self._stream.wait_flushed()

    async def _forward(self, source: asyncio.StreamReader, stream_id: int) -> None:
        rest = b""
        while chunk := await source.read(_CHUNK):
            content, rest = self._folder.to_phone_paths(rest + chunk)
            await self._send_packet(stream_id, content)
        await self._send_packet(stream_id, rest)

    async def _send_packet(self, stream_id: int, content: bytes) -> None:
        if content:
            async with self._sending:
                header = _PACKET.pack(stream_id, len(content)) if self._is_v2 else b""
                await self._stream.write(header + content)

    async def forward_input(self) -> None:
        """Copy stdin; a shell without a command gets the phone's paths replaced by host paths."""
        stdin = self._process.stdin
        assert stdin is not None
        pending = b""
        try:
            while (chunk := await self._next_input()) is not None:
                if not self._has_command:
                    # Whole lines only, so that no path is split.
                    pending += chunk
                    lines, newline, pending = pending.rpartition(b"\n")
                    chunk = await self._write_nodes(stdin, lines + newline)
                stdin.write(chunk)
                await stdin.drain()
            stdin.write(self._folder.to_host_paths(pending))
        except (StreamClosed, OSError):
            return
        finally:
            with suppress(OSError):
                stdin.close()

    async def _write_nodes(self, stdin: asyncio.StreamWriter, lines: bytes) -> bytes:
        """Execute the lines that write nodes, each after the lines before it; return the others."""
        ready: list[bytes] = []
        for line in lines.splitlines(keepends=True):
            if self._folder.nodes.parse_write(line) is not None:
                is_reached = await self._reach_barrier(stdin, ready)
                ready = [_without_write(self._folder, line) if is_reached else line]
            else:
                ready.append(self._folder.to_host_paths(line))
        return b"".join(ready)

    async def _reach_barrier(self, stdin: asyncio.StreamWriter, lines: list[bytes]) -> bool:
        """Let the shell execute some lines; return whether it has come to their end.

        A shell does not execute the lines of an unfinished compound command.
        """
        with _barrier(self._folder) as (barrier, reached):
            stdin.write(b"".join(lines) + f"echo >{barrier}\n".encode())
            await stdin.drain()
            with suppress(TimeoutError):
                await asyncio.wait_for(reached.wait(), _BARRIER_TIMEOUT_S)
            return reached.is_set()

    async def _next_input(self) -> bytes | None:
        if not self._is_v2:
            return await self._stream.read() or None
        stream_id, length = _PACKET.unpack(await self._stream.read_exactly(_PACKET.size))
        content = await self._stream.read_exactly(length)
        if stream_id == _CLOSE_STDIN:
            return None
        return content if stream_id == _STDIN else b""


@contextmanager
def _barrier(native_folder: NativeFolder) -> Iterator[tuple[Path, asyncio.Event]]:
    """Make a pipe that the shell writes to when it has come to this line."""
    path = native_folder.root / "system" / f"barrier-{secrets.token_hex(8)}"
    os.mkfifo(path, 0o600)
    native_folder.give_to_phone_user(path)
    file = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    loop, reached = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(file, reached.set)
    try:
        yield path, reached
    finally:
        loop.remove_reader(file)
        os.close(file)
        path.unlink(missing_ok=True)
