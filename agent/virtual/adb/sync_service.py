"""The file service: stat, list, send and receive, in both versions.

A pushed file appears under its name only when it is complete: a cut push leaves nothing.
"""

import errno
import stat
import struct
from typing import Protocol

from agent.virtual.adb.stream import AdbStream, StreamClosed
from agent.virtual.files.nodes import Directory, Node
from agent.virtual.files.tree import failed, strerror
from agent.virtual.native.files import HostTree
from agent.virtual.phone import Phone

_REQUEST = struct.Struct("<4sI")
_PATH_MAX = 1024
_CHUNK = 64 * 1024
_NAME_MAX = 255
_NOTED_BYTES = 200

_STAT_V1 = struct.Struct("<4sIII")
_STAT_V2 = struct.Struct("<4sIQQIIIIQqqq")
_DENT_V1 = struct.Struct("<4sIIII")
_DENT_V2 = struct.Struct("<4sIQQIIIIQqqqI")


async def serve_sync(phone: Phone, stream: AdbStream) -> None:
    """Answer requests until QUIT or a request that makes no sense."""
    session = _Session(phone, stream)
    verbs = {
        b"STAT": session.stat_v1,
        b"LSTA": session.stat_v1,
        b"STA2": session.stat_v2,
        b"LST2": session.lstat_v2,
        b"LIST": session.list_v1,
        b"LIS2": session.list_v2,
        b"SEND": session.send_v1,
        b"SND2": session.send_v2,
        b"RECV": session.receive_v1,
        b"RCV2": session.receive_v2,
    }
    while True:
        word, length = _REQUEST.unpack(await stream.read_exactly(_REQUEST.size))
        if word == b"QUIT":
            return
        if word not in verbs or length > _PATH_MAX:
            await session.fail(
                f"unknown command {word.hex()}" if word not in verbs else "path too long"
            )
            return
        path = (await stream.read_exactly(length)).decode("utf-8", "surrogateescape")
        await verbs[word](path)


class SyncTree(Protocol):
    """What the service needs of a file tree."""

    @property
    def capacity(self) -> int: ...

    @property
    def used(self) -> int: ...

    def resolve(
        self, path: str, uid: int = ..., cwd: str = ..., follow: bool = ...
    ) -> tuple[Node, str]: ...

    def names(self, path: str, uid: int = ..., cwd: str = ...) -> list[str]: ...

    def read(self, path: str, uid: int = ..., cwd: str = ...) -> bytes: ...

    def write(self, path: str, content: bytes, uid: int = ..., mode: int = ...) -> None: ...

    def make_link(self, path: str, target: str, uid: int, cwd: str = ...) -> None: ...

    def touch(self, path: str, mtime: float) -> None: ...


class _Session:
    def __init__(self, phone: Phone, stream: AdbStream) -> None:
        self._phone = phone
        self._tree: SyncTree = phone.tree if phone.native is None else HostTree(phone.native)
        self._stream = stream
        self._uid = phone.adbd_uid

    async def fail(self, text: str) -> None:
        raw = text.encode("utf-8", "surrogateescape")
        await self._stream.write(_REQUEST.pack(b"FAIL", len(raw)) + raw)

    # -- looking

    async def stat_v1(self, path: str) -> None:
        try:
            node, _ = self._tree.resolve(path, self._uid, follow=False)
            answer = (node.mode, min(node.size, 0xFFFFFFFF), int(node.mtime))
        except OSError:
            answer = (0, 0, 0)
        await self._stream.write(_STAT_V1.pack(b"STAT", *answer))

    async def stat_v2(self, path: str) -> None:
        await self._stat_v2(b"STA2", path, follow=True)

    async def lstat_v2(self, path: str) -> None:
        await self._stat_v2(b"LST2", path, follow=False)

    async def _stat_v2(self, word: bytes, path: str, follow: bool) -> None:
        try:
            node, _ = self._tree.resolve(path, self._uid, follow=follow)
            answer = (0, *_facts(node))
        except OSError as error:
            answer = (error.errno or errno.EIO, *([0] * 10))
        await self._stream.write(_STAT_V2.pack(word, *answer))

    async def list_v1(self, path: str) -> None:
        entries = b"".join(
            _DENT_V1.pack(
                b"DENT", node.mode, min(node.size, 0xFFFFFFFF), int(node.mtime), len(name)
            )
            + name
            for name, node in self._entries(path)
        )
        await self._stream.write(entries + _DENT_V1.pack(b"DONE", 0, 0, 0, 0))

    async def list_v2(self, path: str) -> None:
        entries = b"".join(
            _DENT_V2.pack(b"DNT2", 0, *_facts(node), len(name)) + name
            for name, node in self._entries(path)
        )
        await self._stream.write(entries + _DENT_V2.pack(b"DONE", *([0] * 12)))

    def _entries(self, path: str) -> list[tuple[bytes, Node]]:
        try:
            folder, _ = self._tree.resolve(path, self._uid)
            names = self._tree.names(path, self._uid)
        except OSError:
            return []
        found: list[tuple[bytes, Node]] = []
        if isinstance(folder, Directory):
            found = [(b".", folder), (b"..", folder)]
            for name in names:
                node = self._child(folder, path, name)
                raw = name.encode("utf-8", "surrogateescape")
                if node is not None and len(raw) <= _NAME_MAX:
                    found.append((raw, node))
        return found

    def _child(self, folder: Directory, path: str, name: str) -> Node | None:
        try:
            return folder.child(name) or self._tree.resolve(f"{path}/{name}", follow=False)[0]
        except OSError:
            return None

    # -- to the phone

    async def send_v1(self, request: str) -> None:
        path, _, mode = request.rpartition(",")
        number = int(mode) if path and mode.isdigit() else 0o100644
        await self._take(path or request, number)

    async def send_v2(self, path: str) -> None:
        _, mode, flags = struct.unpack("<4sII", await self._stream.read_exactly(12))
        if flags & 0x7FFFFFFF:
            await self.fail("compression was never offered")
            raise StreamClosed
        await self._take(path, mode)

    async def _take(self, path: str, mode: int) -> None:
        self._phone.journal.write("push", path=path)
        chunks: list[bytes] = []
        size = 0
        trouble: str | None = None
        room = self._tree.capacity - self._tree.used
        while True:
            word, number = _REQUEST.unpack(await self._stream.read_exactly(_REQUEST.size))
            if word == b"DONE":
                break
            if word != b"DATA" or number > _CHUNK:
                await self.fail("invalid data message")
                raise StreamClosed
            chunk = await self._stream.read_exactly(number)
            if size + number > room:
                trouble = f"write failed: {strerror(failed(errno.ENOSPC))}"
                chunks.clear()
            elif trouble is None:
                chunks.append(chunk)
                size += number
        content = b"".join(chunks)
        chunks.clear()
        text = content[:_NOTED_BYTES].decode("utf-8", "replace") if size <= _NOTED_BYTES else ""
        trouble = trouble or self._place(path, mode, content, number)
        self._phone.journal.write("pushed", path=path, bytes=size, fault=trouble, text=text)
        if trouble:
            await self.fail(trouble)
        else:
            await self._stream.write(_REQUEST.pack(b"OKAY", 0))

    def _place(self, path: str, mode: int, content: bytes, mtime: int) -> str | None:
        """Put a complete file in its place; say what is wrong if it cannot be."""
        try:
            if stat.S_ISLNK(mode):
                self._tree.make_link(path, content.decode("utf-8", "surrogateescape"), self._uid)
                return None
            self._tree.write(path, content, self._uid, stat.S_IMODE(mode) & 0o777)
            self._tree.touch(path, float(mtime))
        except OSError as error:
            return f"couldn't create file: {strerror(error)}"
        return None

    # -- from the phone

    async def receive_v2(self, path: str) -> None:
        _, flags = _REQUEST.unpack(await self._stream.read_exactly(_REQUEST.size))
        if flags & 0x7FFFFFFF:
            await self.fail("compression was never offered")
            return
        await self.receive_v1(path)

    async def receive_v1(self, path: str) -> None:
        try:
            content = self._tree.read(path, self._uid)
        except OSError as error:
            await self.fail(f"open failed: {strerror(error)}")
            return
        for start in range(0, len(content), _CHUNK * 8):
            block = content[start : start + _CHUNK * 8]
            await self._stream.write(
                b"".join(
                    _REQUEST.pack(b"DATA", len(block[i : i + _CHUNK])) + block[i : i + _CHUNK]
                    for i in range(0, len(block), _CHUNK)
                )
            )
        await self._stream.write(_REQUEST.pack(b"DONE", 0))


def _facts(node: Node) -> tuple[int, ...]:
    """dev, ino, mode, nlink, uid, gid, size, atime, mtime, ctime"""
    links = 2 if isinstance(node, Directory) else 1
    when = int(node.mtime)
    return (64, node.inode or 1, node.mode, links, node.uid, node.gid, node.size, when, when, when)
