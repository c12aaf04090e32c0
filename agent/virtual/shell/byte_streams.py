"""Byte sources and sinks of commands: pipes, files and buffers.

Writing never blocks; a command that has written much awaits `drain`. Writing to a pipe whose reader
is closed raises EPIPE.
"""

import asyncio
import errno
from typing import Protocol

from agent.virtual.files.file_nodes import FileNode, RegularFile
from agent.virtual.files.file_tree import FileTree, os_error

_PIPE_MAX = 1 << 20


class ByteSource(Protocol):
    """Something to read from."""

    async def read(self) -> bytes:
        """Return some bytes, or none at the end."""

    async def read_line(self) -> bytes:
        """Return one line with its newline, or the rest at the end."""


class ByteSink(Protocol):
    """Something to write to; it stays open as long as a process retains it."""

    def write(self, chunk: bytes) -> None: ...

    async def drain(self) -> None: ...

    def retain(self) -> None: ...

    def release(self) -> None: ...


class FilteredSink:
    """A sink that changes what is written to another one; subclasses define `write`."""

    def __init__(self, sink: ByteSink) -> None:
        self._sink = sink

    async def drain(self) -> None:
        await self._sink.drain()

    def retain(self) -> None:
        self._sink.retain()

    def release(self) -> None:
        self._sink.release()


async def read_all(source: ByteSource) -> bytes:
    """Read everything up to the end."""
    chunks = []
    while chunk := await source.read():
        chunks.append(chunk)
    return b"".join(chunks)


class BufferedSource:
    """A source with fixed contents; an empty one is /dev/null."""

    def __init__(self, content: bytes = b"") -> None:
        self._remaining = content

    async def read(self) -> bytes:
        chunk, self._remaining = self._remaining, b""
        return chunk

    async def read_line(self) -> bytes:
        end = self._remaining.find(b"\n") + 1 or len(self._remaining)
        line, self._remaining = self._remaining[:end], self._remaining[end:]
        return line


class BytePipe:
    """Bytes between a writer and a reader; it also captures the output of $( .. )."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._holders = 1
        self._changed = asyncio.Event()
        self._taken = asyncio.Event()
        self._reader_closed = False

    def write(self, chunk: bytes) -> None:
        if self._reader_closed:
            raise os_error(errno.EPIPE)
        self._buffer += chunk
        self._changed.set()

    async def drain(self) -> None:
        # A large amount waits for the reader, so that a pipeline needs bounded memory.
        while len(self._buffer) > _PIPE_MAX and not self._reader_closed:
            self._taken.clear()
            await self._taken.wait()

    def retain(self) -> None:
        self._holders += 1

    def release(self) -> None:
        self._holders -= 1
        self._changed.set()

    def close_reader(self) -> None:
        """Note that the reader is gone."""
        self._reader_closed = True
        self._buffer.clear()
        self._taken.set()

    async def read(self) -> bytes:
        while not self._buffer and self._holders > 0:
            self._changed.clear()
            await self._changed.wait()
        chunk = bytes(self._buffer)
        self._buffer.clear()
        self._taken.set()
        return chunk

    async def read_line(self) -> bytes:
        while b"\n" not in self._buffer and self._holders > 0:
            self._changed.clear()
            await self._changed.wait()
        end = self._buffer.find(b"\n") + 1 or len(self._buffer)
        line = bytes(self._buffer[:end])
        del self._buffer[:end]
        self._taken.set()
        return line

    def content(self) -> bytes:
        return bytes(self._buffer)


class FileSink:
    """A file that was opened for writing."""

    def __init__(
        self, tree: FileTree, node: FileNode, uid: int, path: str = "", operation: str = ""
    ) -> None:
        self._tree = tree
        self._node = node
        self._uid = uid
        self._path = path
        self._operation = operation

    def write(self, chunk: bytes) -> None:
        self._tree.append(self._node, chunk, self._uid)
        if isinstance(self._node, RegularFile):
            self._tree.report_write(self._path, self._operation, chunk, self._uid)

    async def drain(self) -> None:
        return

    def retain(self) -> None:
        return

    def release(self) -> None:
        return
