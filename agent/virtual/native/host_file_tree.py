"""The file service's view of a native phone: nodes made from real files as they are asked for."""

import errno
import os
import stat
from pathlib import Path

from agent.virtual.files.nodes import ROOT, Directory, Node
from agent.virtual.files.tree import failed
from agent.virtual.native.home import NativeHome, mode_bits

_CAPACITY = 4 << 30


class HostNode(Node):
    """A real file's facts."""

    length: int = 0

    @property
    def size(self) -> int:
        return self.length


class HostTree:
    """What the file service needs of a tree, over a real folder."""

    capacity: int = _CAPACITY

    def __init__(self, home: NativeHome) -> None:
        self._home = home

    @property
    def used(self) -> int:
        return 0

    def resolve(
        self, path: str, uid: int = ROOT, cwd: str = "/", follow: bool = True
    ) -> tuple[Node, str]:
        return _node(self._place(path), follow), path

    def names(self, path: str, uid: int = ROOT, cwd: str = "/") -> list[str]:
        return sorted(entry.name for entry in self._place(path).iterdir())

    def read(self, path: str, uid: int = ROOT, cwd: str = "/") -> bytes:
        found = self._place(path)
        if not found.resolve().is_relative_to(self._home.root.resolve()):
            raise failed(errno.EACCES, path)
        return found.read_bytes()

    def write(self, path: str, content: bytes, uid: int = ROOT, mode: int = 0o644) -> None:
        """A whole file in one stroke, by the phone's user."""
        found = self._place(path)
        self._make_parents(found.parent)
        aside = found.with_name(f".{found.name}.new")
        aside.write_bytes(content)
        aside.chmod(mode_bits(mode))
        self._home.give(aside)
        aside.replace(found)

    def make_link(self, path: str, target: str, uid: int, cwd: str = "/") -> None:
        found = self._place(path)
        inside = self._home.inward(os.fsencode(target)).decode("utf-8", "surrogateescape")
        found.unlink(missing_ok=True)
        found.symlink_to(inside)

    def touch(self, path: str, mtime: float) -> None:
        os.utime(self._place(path), (mtime, mtime))

    def _place(self, path: str) -> Path:
        try:
            return self._home.host_path(path)
        except PermissionError:
            raise failed(errno.EACCES, path) from None

    def _make_parents(self, folder: Path) -> None:
        if not folder.exists():
            self._make_parents(folder.parent)
            folder.mkdir()
            self._home.give(folder)
        writable = self._home.root / "data", self._home.root / "sdcard"
        if not any(folder.is_relative_to(place) for place in writable):
            raise failed(errno.EACCES, str(folder))


def _node(path: Path, follow: bool) -> Node:
    facts = path.stat() if follow else path.lstat()
    common = (facts.st_mode, facts.st_uid, facts.st_gid, facts.st_mtime, facts.st_ino)
    if stat.S_ISDIR(facts.st_mode):
        return Directory(*common, children={})
    node = HostNode(*common)
    node.length = facts.st_size
    return node
