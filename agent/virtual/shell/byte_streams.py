"""Where bytes come from and go to: pipes, files and nothing at all.

Writing never waits; whoever wrote much drains. A closed reader is EPIPE for its writer.
"""

import asyncio
import errno
from typing import Protocol

from agent.virtual.files.nodes import File, Node
from agent.virtual.files.tree import FileTree, failed

_PIPE_MAX = 1 << 20


class Source(Protocol):
    """Something to read from."""

    async def read(self) -> bytes:
        """Some bytes, or none at the end."""

    async def read_line(self) -> bytes:
        """One line with its newline, or what is left at the end."""


class Sink(Protocol):
    """Something to write to; holders keep it open."""

    def write(self, chunk: bytes) -> None: ...

    async def drain(self) -> None: ...

    def hold(self) -> None: ...

    def release(self) -> None: ...


async def read_all(source: Source) -> bytes:
    """Everything up to the end."""
    chunks = []
    while chunk := await source.read():
        chunks.append(chunk)
    return b"".join(chunks)


class Bytes:
    """A source with everything already there; empty, it is /dev/null."""

    def __init__(self, content: bytes = b"") -> None:
        self._left = content

    async def read(self) -> bytes:
        chunk, self._left = self._left, b""
        return chunk

    async def read_line(self) -> bytes:
        end = self._left.find(b"\n") + 1 or len(self._left)
        line, self._left = self._left[:end], self._left[end:]
        return line


class Pipe:
    """Bytes between a writer and a reader; also what captures the output of $( .. )."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._holders = 1
        self._changed = asyncio.Event()
        self._taken = asyncio.Event()
        self._reader_gone = False

    def write(self, chunk: bytes) -> None:
        if self._reader_gone:
            raise failed(errno.EPIPE)
        self._buffer += chunk
        self._changed.set()

    async def drain(self) -> None:
        # Large amounts wait for the reader's turn, so that a pipeline takes bounded memory.
        while len(self._buffer) > _PIPE_MAX and not self._reader_gone:
            self._taken.clear()
            await self._taken.wait()

    def hold(self) -> None:
        self._holders += 1

    def release(self) -> None:
        self._holders -= 1
        self._changed.set()

    def leave(self) -> None:
        """The reader goes away."""
        self._reader_gone = True
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

    def __init__(self, tree: FileTree, node: Node, uid: int, path: str = "", how: str = "") -> None:
        self._tree = tree
        self._node = node
        self._uid = uid
        self._path = path
        self._how = how

    def write(self, chunk: bytes) -> None:
        self._tree.append(self._node, chunk, self._uid)
        if isinstance(self._node, File):
            self._tree.note(self._path, self._how, chunk, self._uid)

    async def drain(self) -> None:
        return

    def hold(self) -> None:
        return

    def release(self) -> None:
        return
