"""The sync service: stat, list, send and receive files, in both protocol versions.

A pushed file appears under its name only when it is complete: an interrupted push leaves nothing.
"""

import errno
import stat
import struct
from typing import Protocol

from agent.virtual.adb.adb_stream import AdbStream, StreamClosed
from agent.virtual.event_journal import JournalEvent
from agent.virtual.files.file_nodes import Directory, FileNode
from agent.virtual.files.file_tree import error_text, os_error
from agent.virtual.native.host_file_tree import HostFileTree
from agent.virtual.virtual_phone import VirtualPhone

_REQUEST = struct.Struct("<4sI")
_PATH_MAX = 1024
_CHUNK = 64 * 1024
_NAME_MAX = 255
_JOURNALLED_BYTES_MAX = 200

_STAT_V1 = struct.Struct("<4sIII")
_STAT_V2 = struct.Struct("<4sIQQIIIIQqqq")
_DENT_V1 = struct.Struct("<4sIIII")
_DENT_V2 = struct.Struct("<4sIQQIIIIQqqqI")


async def serve_sync(phone: VirtualPhone, stream: AdbStream) -> None:
    """Handle requests until QUIT or an invalid request."""
    session = _SyncSession(phone, stream)
    handlers = {
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
        request_id, length = _REQUEST.unpack(await stream.read_exactly(_REQUEST.size))
        if request_id == b"QUIT":
            return
        if request_id not in handlers or length > _PATH_MAX:
            await session.send_failure(
                f"unknown command {request_id.hex()}"
                if request_id not in handlers
                else "path too long"
            )
            return
        path = (await stream.read_exactly(length)).decode("utf-8", "surrogateescape")
        await handlers[request_id](path)


class SyncTree(Protocol):
    """The part of a file tree that the sync service uses."""

    @property
    def capacity_bytes(self) -> int: ...

    @property
    def used_bytes(self) -> int: ...

    def resolve(
        self, path: str, uid: int = ..., cwd: str = ..., follow: bool = ...
    ) -> tuple[FileNode, str]: ...

    def names(self, path: str, uid: int = ..., cwd: str = ...) -> list[str]: ...

    def read(self, path: str, uid: int = ..., cwd: str = ...) -> bytes: ...

    def write(self, path: str, content: bytes, uid: int = ..., mode: int = ...) -> None: ...

    def make_link(self, path: str, target: str, uid: int, cwd: str = ...) -> None: ...

    def set_mtime(self, path: str, mtime: float) -> None: ...


class _SyncSession:
    def __init__(self, phone: VirtualPhone, stream: AdbStream) -> None:
        self._phone = phone
        self._tree: SyncTree = phone.tree if phone.native is None else HostFileTree(phone.native)
        self._stream = stream
        self._uid = phone.adbd_uid

    async def send_failure(self, text: str) -> None:
        raw = text.encode("utf-8", "surrogateescape")
        await self._stream.write(_REQUEST.pack(b"FAIL", len(raw)) + raw)

    # -- stat and list

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

    async def _stat_v2(self, request_id: bytes, path: str, follow: bool) -> None:
        try:
            node, _ = self._tree.resolve(path, self._uid, follow=follow)
            answer = (0, *_stat_fields(node))
        except OSError as error:
            answer = (error.errno or errno.EIO, *([0] * 10))
        await self._stream.write(_STAT_V2.pack(request_id, *answer))

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
            _DENT_V2.pack(b"DNT2", 0, *_stat_fields(node), len(name)) + name
            for name, node in self._entries(path)
        )
        await self._stream.write(entries + _DENT_V2.pack(b"DONE", *([0] * 12)))

    def _entries(self, path: str) -> list[tuple[bytes, FileNode]]:
        try:
            folder, _ = self._tree.resolve(path, self._uid)
            names = self._tree.names(path, self._uid)
        except OSError:
            return []
        entries: list[tuple[bytes, FileNode]] = []
        if isinstance(folder, Directory):
            entries = [(b".", folder), (b"..", folder)]
            for name in names:
                node = self._child(folder, path, name)
                raw = name.encode("utf-8", "surrogateescape")
                if node is not None and len(raw) <= _NAME_MAX:
                    entries.append((raw, node))
        return entries

    def _child(self, folder: Directory, path: str, name: str) -> FileNode | None:
        try:
            return folder.child(name) or self._tree.resolve(f"{path}/{name}", follow=False)[0]
        except OSError:
            return None

    # -- push

    async def send_v1(self, request: str) -> None:
        path, _, mode = request.rpartition(",")
        number = int(mode) if path and mode.isdigit() else 0o100644
        await self._receive_file(path or request, number)

    async def send_v2(self, path: str) -> None:
        _, mode, flags = struct.unpack("<4sII", await self._stream.read_exactly(12))
        if flags & 0x7FFFFFFF:
            await self.send_failure("compression is not supported")
            raise StreamClosed
        await self._receive_file(path, mode)

    async def _receive_file(self, path: str, mode: int) -> None:
        self._phone.journal.write(JournalEvent.PUSH_START, path=path)
        chunks: list[bytes] = []
        size = 0
        error: str | None = None
        free_bytes = self._tree.capacity_bytes - self._tree.used_bytes
        while True:
            request_id, number = _REQUEST.unpack(await self._stream.read_exactly(_REQUEST.size))
            if request_id == b"DONE":
                break
            if request_id != b"DATA" or number > _CHUNK:
                await self.send_failure("invalid data message")
                raise StreamClosed
            chunk = await self._stream.read_exactly(number)
            if size + number > free_bytes:
                error = f"write failed: {error_text(os_error(errno.ENOSPC))}"
                chunks.clear()
            elif error is None:
                chunks.append(chunk)
                size += number
        content = b"".join(chunks)
        chunks.clear()
        text = (
            content[:_JOURNALLED_BYTES_MAX].decode("utf-8", "replace")
            if size <= _JOURNALLED_BYTES_MAX
            else ""
        )
        error = error or self._store_file(path, mode, content, number)
        self._phone.journal.write(
            JournalEvent.PUSH_END, path=path, bytes=size, error=error, text=text
        )
        if error:
            await self.send_failure(error)
        else:
            await self._stream.write(_REQUEST.pack(b"OKAY", 0))

    def _store_file(self, path: str, mode: int, content: bytes, mtime: int) -> str | None:
        """Store a complete file; return an error message if that fails."""
        try:
            if stat.S_ISLNK(mode):
                self._tree.make_link(path, content.decode("utf-8", "surrogateescape"), self._uid)
                return None
            self._tree.write(path, content, self._uid, stat.S_IMODE(mode) & 0o777)
            self._tree.set_mtime(path, float(mtime))
        except OSError as error:
            return f"couldn't create file: {error_text(error)}"
        return None

    # -- pull

    async def receive_v2(self, path: str) -> None:
        _, flags = _REQUEST.unpack(await self._stream.read_exactly(_REQUEST.size))
        if flags & 0x7FFFFFFF:
            await self.send_failure("compression is not supported")
            return
        await self.receive_v1(path)

    async def receive_v1(self, path: str) -> None:
        try:
            content = self._tree.read(path, self._uid)
        except OSError as error:
            await self.send_failure(f"open failed: {error_text(error)}")
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


def _stat_fields(node: FileNode) -> tuple[int, ...]:
    """Return dev, ino, mode, nlink, uid, gid, size, atime, mtime and ctime."""
    links = 2 if isinstance(node, Directory) else 1
    when = int(node.mtime)
    return (64, node.inode or 1, node.mode, links, node.uid, node.gid, node.size, when, when, when)
