"""The shell services of a native phone: a real sh for every stream, in a group of its own.

A stream that ends takes its group with it; what called setsid stays until the phone goes.
"""

import asyncio
import os
import signal
import struct
from contextlib import suppress

from agent.virtual.adb.stream import AdbStream, StreamClosed
from agent.virtual.native.home import NativeHome
from agent.virtual.phone import Phone

_STDIN, _STDOUT, _STDERR, _EXIT, _CLOSE_STDIN = range(5)
_PACKET = struct.Struct("<BI")
_CHUNK = 64 * 1024
_GRACE_S = 0.2
_endings: set["asyncio.Task[None]"] = set()


async def serve_native_shell(
    phone: Phone, home: NativeHome, stream: AdbStream, command: str, packed: bool
) -> None:
    """Run until the shell has ended or the host is gone."""
    raw = command.encode("utf-8", "surrogateescape")
    words: list[bytes | str] = ["/bin/sh", "-c", home.inward(raw)] if command else ["/bin/sh"]
    merged = asyncio.subprocess.PIPE if packed else asyncio.subprocess.STDOUT
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=merged,
        cwd=home.root / "data" / "local" / "tmp",
        env=home.environment(),
        start_new_session=True,
        user=home.user,
        group=home.user,
        extra_groups=[] if home.user is not None else None,
    )
    phone.journal.write("process_start", pid=process.pid, argv=["sh", "-c", command], native=True)
    session = _Session(home, stream, process, packed, bool(command))
    loop = asyncio.get_running_loop()
    work = loop.create_task(session.speak())
    feeding = loop.create_task(session.feed())
    gone = loop.create_task(stream.closed.wait())
    try:
        await asyncio.wait([work, gone], return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            # What the shell left behind gets the time to call setsid, as on a busy phone.
            ending = loop.create_task(_end_group(process, _GRACE_S))
            _endings.add(ending)
            ending.add_done_callback(_endings.discard)
    finally:
        if not work.done():
            await _end_group(process)
        for task in (work, feeding, gone):
            task.cancel()
        await asyncio.gather(work, feeding, gone, return_exceptions=True)
        phone.journal.write("process_stop", pid=process.pid, status=process.returncode, native=True)


async def _end_group(process: asyncio.subprocess.Process, after_s: float = 0.0) -> None:
    """SIGHUP as a phone would, and SIGKILL for those who do not listen."""
    await asyncio.sleep(after_s)
    for number in (signal.SIGHUP, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _GRACE_S)


class _Session:
    def __init__(
        self,
        home: NativeHome,
        stream: AdbStream,
        process: asyncio.subprocess.Process,
        packed: bool,
        commanded: bool,
    ) -> None:
        self._home = home
        self._stream = stream
        self._process = process
        self._packed = packed
        self._commanded = commanded
        self._sending = asyncio.Lock()

    async def speak(self) -> None:
        """Carry output to the host, then the status."""
        process = self._process
        assert process.stdout is not None
        readers = [self._carry(process.stdout, _STDOUT)]
        if process.stderr is not None:
            readers.append(self._carry(process.stderr, _STDERR))
        await asyncio.gather(*readers)
        status = await process.wait()
        if self._packed:
            code = status if status >= 0 else 128 - status
            await self._stream.write(_PACKET.pack(_EXIT, 1) + bytes([code & 255]))
        await self._stream.flushed()

    async def _carry(self, source: asyncio.StreamReader, kind: int) -> None:
        while chunk := await source.read(_CHUNK):
            told = self._home.outward(chunk)
            async with self._sending:
                header = _PACKET.pack(kind, len(told)) if self._packed else b""
                await self._stream.write(header + told)

    async def feed(self) -> None:
        """Carry stdin in; a shell that reads its commands gets the phone's paths as ours."""
        stdin = self._process.stdin
        assert stdin is not None
        pending = b""
        try:
            while (chunk := await self._next()) is not None:
                if not self._commanded:
                    # Whole lines only: a path must not be cut in two.
                    pending += chunk
                    lines, newline, pending = pending.rpartition(b"\n")
                    chunk = self._home.inward(lines + newline)
                stdin.write(chunk)
                await stdin.drain()
            stdin.write(self._home.inward(pending))
        except (StreamClosed, OSError):
            return
        finally:
            with suppress(OSError):
                stdin.close()

    async def _next(self) -> bytes | None:
        if not self._packed:
            return await self._stream.read() or None
        kind, length = _PACKET.unpack(await self._stream.read_exactly(_PACKET.size))
        content = await self._stream.read_exactly(length)
        if kind == _CLOSE_STDIN:
            return None
        return content if kind == _STDIN else b""
