"""The sync service's view of a native phone: nodes made from real files when they are requested."""

import errno
import os
import stat
from pathlib import Path

from agent.virtual.files.file_nodes import ROOT, Directory, FileNode
from agent.virtual.files.file_tree import os_error
from agent.virtual.native.native_folder import NativeFolder, mode_bits

_CAPACITY_BYTES = 4 << 30


class HostFileNode(FileNode):
    """The metadata of a real file."""

    length: int = 0

    @property
    def size(self) -> int:
        return self.length


class HostFileTree:
    """The part of a file tree that the sync service uses, over a real directory."""

    capacity_bytes: int = _CAPACITY_BYTES

    def __init__(self, native_folder: NativeFolder) -> None:
        self._native_folder = native_folder

    @property
    def used_bytes(self) -> int:
        return 0

    def resolve(
        self, path: str, uid: int = ROOT, cwd: str = "/", follow: bool = True
    ) -> tuple[FileNode, str]:
        return _stat_node(self._host_path(path), follow), path

    def names(self, path: str, uid: int = ROOT, cwd: str = "/") -> list[str]:
        return sorted(entry.name for entry in self._host_path(path).iterdir())

    def read(self, path: str, uid: int = ROOT, cwd: str = "/") -> bytes:
        host_path = self._host_path(path)
        if not host_path.resolve().is_relative_to(self._native_folder.root.resolve()):
            raise os_error(errno.EACCES, path)
        return host_path.read_bytes()

    def write(self, path: str, content: bytes, uid: int = ROOT, mode: int = 0o644) -> None:
        """Replace a whole file in one step, owned by the phone's user."""
        host_path = self._host_path(path)
        self._make_parents(host_path.parent)
        temporary = host_path.with_name(f".{host_path.name}.new")
        temporary.write_bytes(content)
        temporary.chmod(mode_bits(mode))
        self._native_folder.give_to_phone_user(temporary)
        temporary.replace(host_path)

    def make_link(self, path: str, target: str, uid: int, cwd: str = "/") -> None:
        host_path = self._host_path(path)
        host_target = self._native_folder.to_host_paths(os.fsencode(target)).decode(
            "utf-8", "surrogateescape"
        )
        host_path.unlink(missing_ok=True)
        host_path.symlink_to(host_target)

    def set_mtime(self, path: str, mtime: float) -> None:
        os.utime(self._host_path(path), (mtime, mtime))

    def _host_path(self, path: str) -> Path:
        try:
            return self._native_folder.host_path(path)
        except PermissionError:
            raise os_error(errno.EACCES, path) from None

    def _make_parents(self, folder: Path) -> None:
        if not folder.exists():
            self._make_parents(folder.parent)
            folder.mkdir()
            self._native_folder.give_to_phone_user(folder)
        writable = self._native_folder.root / "data", self._native_folder.root / "sdcard"
        if not any(folder.is_relative_to(root) for root in writable):
            raise os_error(errno.EACCES, str(folder))


def _stat_node(path: Path, follow: bool) -> FileNode:
    status = path.stat() if follow else path.lstat()
    common = (status.st_mode, status.st_uid, status.st_gid, status.st_mtime, status.st_ino)
    if stat.S_ISDIR(status.st_mode):
        return Directory(*common, children={})
    node = HostFileNode(*common)
    node.length = status.st_size
    return node
