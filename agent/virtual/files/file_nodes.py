"""The nodes of a file tree: regular files, links, directories and live nodes.

A live node stores no bytes: reading and writing it call functions of the phone.
"""

import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

ROOT = 0
SHELL = 2000

_SHELL_GROUPS = frozenset({SHELL, 1004, 1007, 1011, 1015, 1028, 3001, 3003, 3009})


@dataclass(eq=False, slots=True)
class FileNode:
    """What all nodes have in common."""

    mode: int
    uid: int = ROOT
    gid: int = ROOT
    mtime: float = 0.0
    inode: int = 0
    selinux_denied: bool = False  # denied to everyone but root, whatever the mode says

    def allows(self, uid: int, access: int) -> bool:
        """Check permission bits (4 read, 2 write, 1 execute) for a user."""
        if uid == ROOT:
            return access != 1 or stat.S_ISDIR(self.mode) or bool(self.mode & 0o111)
        if self.selinux_denied:
            return False
        if uid == self.uid:
            bits = self.mode >> 6
        elif uid == SHELL and self.gid in _SHELL_GROUPS:
            bits = self.mode >> 3
        else:
            bits = self.mode
        return bits & 7 & access == access

    @property
    def size(self) -> int:
        return 0


@dataclass(eq=False, slots=True)
class RegularFile(FileNode):
    """A file with contents."""

    content: bytearray = field(default_factory=bytearray)

    @property
    def size(self) -> int:
        return len(self.content)


@dataclass(eq=False, slots=True)
class SymbolicLink(FileNode):
    """A symbolic link."""

    target: str = ""

    @property
    def size(self) -> int:
        return len(self.target)


@dataclass(eq=False, slots=True)
class LiveNode(FileNode):
    """A node of sysfs or procfs; without `write` not even root may write it."""

    read: Callable[[], str] = str
    write: Callable[[str], None] | None = None
    number: Callable[[], int] | None = None  # the value, if it is always an integer
    path: str = ""

    @property
    def size(self) -> int:
        # sysfs reports a page, procfs reports 0.
        return 4096 if self.path.startswith("/sys/") else 0


@dataclass(eq=False, slots=True)
class Directory(FileNode):
    """A directory."""

    children: dict[str, FileNode] = field(default_factory=dict)

    def child(self, name: str) -> FileNode | None:
        return self.children.get(name)

    def names(self) -> Iterable[str]:
        return list(self.children)

    @property
    def size(self) -> int:
        return 4096 if self.children else 3452


@dataclass(eq=False, slots=True)
class LiveDirectory(Directory):
    """A directory whose entries come and go, such as /proc."""

    find_child: Callable[[str], FileNode | None] = lambda _: None
    extra_names: Callable[[], Iterable[str]] = tuple

    def child(self, name: str) -> FileNode | None:
        return self.children.get(name) or self.find_child(name)

    def names(self) -> Iterable[str]:
        return [*self.children, *self.extra_names()]


def live_node(
    read: Callable[[], str], write: Callable[[str], None] | None = None, mode: int | None = None
) -> LiveNode:
    """Make a live node with the mode that sysfs would give it."""
    bits = mode if mode is not None else (0o644 if write else 0o444)
    return LiveNode(stat.S_IFREG | bits, read=read, write=write)


def live_number_node(
    number: Callable[[], int], write: Callable[[str], None] | None = None
) -> LiveNode:
    """Make a live node that always reads as an integer."""
    node = live_node(lambda: f"{number()}\n", write)
    node.number = number
    return node


def constant_node(text: str) -> LiveNode:
    """Make a live node that never changes."""
    return live_node(lambda: text)


def directory_node(mode: int = 0o755, uid: int = ROOT, gid: int = ROOT) -> Directory:
    return Directory(stat.S_IFDIR | mode, uid, gid)
