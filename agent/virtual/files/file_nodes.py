"""The things a file tree is made of.

A live node has no bytes: reading asks the phone, writing tells it, at that very moment.
"""

import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

ROOT = 0
SHELL = 2000

_SHELL_GROUPS = frozenset({SHELL, 1004, 1007, 1011, 1015, 1028, 3001, 3003, 3009})


@dataclass(eq=False, slots=True)
class Node:
    """What every file has."""

    mode: int
    uid: int = ROOT
    gid: int = ROOT
    mtime: float = 0.0
    inode: int = 0
    sealed: bool = False  # closed to all but root, whatever the mode says

    def allows(self, uid: int, wanted: int) -> bool:
        """Check permission bits (4 read, 2 write, 1 execute) for a user."""
        if uid == ROOT:
            return wanted != 1 or stat.S_ISDIR(self.mode) or bool(self.mode & 0o111)
        if self.sealed:
            return False
        if uid == self.uid:
            bits = self.mode >> 6
        elif uid == SHELL and self.gid in _SHELL_GROUPS:
            bits = self.mode >> 3
        else:
            bits = self.mode
        return bits & 7 & wanted == wanted

    @property
    def size(self) -> int:
        return 0


@dataclass(eq=False, slots=True)
class File(Node):
    """Real bytes."""

    content: bytearray = field(default_factory=bytearray)

    @property
    def size(self) -> int:
        return len(self.content)


@dataclass(eq=False, slots=True)
class Link(Node):
    """A symbolic link."""

    target: str = ""

    @property
    def size(self) -> int:
        return len(self.target)


@dataclass(eq=False, slots=True)
class Live(Node):
    """A node of sysfs or procfs; without `write` nobody may write it, not even root."""

    read: Callable[[], str] = str
    write: Callable[[str], None] | None = None
    number: Callable[[], int] | None = None  # the same as an integer, where it is always one
    path: str = ""

    @property
    def size(self) -> int:
        # sysfs says a page, procfs says nothing.
        return 4096 if self.path.startswith("/sys/") else 0


@dataclass(eq=False, slots=True)
class Directory(Node):
    """Names to nodes."""

    children: dict[str, Node] = field(default_factory=dict)

    def child(self, name: str) -> Node | None:
        return self.children.get(name)

    def names(self) -> Iterable[str]:
        return list(self.children)

    @property
    def size(self) -> int:
        return 4096 if self.children else 3452


@dataclass(eq=False, slots=True)
class LiveDirectory(Directory):
    """A folder with entries that come and go by themselves, such as /proc."""

    find: Callable[[str], Node | None] = lambda _: None
    extra: Callable[[], Iterable[str]] = tuple

    def child(self, name: str) -> Node | None:
        return self.children.get(name) or self.find(name)

    def names(self) -> Iterable[str]:
        return [*self.children, *self.extra()]


def live(
    read: Callable[[], str], write: Callable[[str], None] | None = None, mode: int | None = None
) -> Live:
    """A live node with the mode sysfs would give it."""
    bits = mode if mode is not None else (0o644 if write else 0o444)
    return Live(stat.S_IFREG | bits, read=read, write=write)


def live_number(number: Callable[[], int], write: Callable[[str], None] | None = None) -> Live:
    """A live node that always reads as an integer."""
    node = live(lambda: f"{number()}\n", write)
    node.number = number
    return node


def constant(text: str) -> Live:
    """A live node that never changes."""
    return live(lambda: text)


def folder(mode: int = 0o755, uid: int = ROOT, gid: int = ROOT) -> Directory:
    return Directory(stat.S_IFDIR | mode, uid, gid)
