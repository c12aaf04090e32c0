"""The file tree: paths to nodes, with the permissions, links and errors of a kernel.

Every failure is an OSError with its errno, so commands can print what the phone would.
"""

import errno
import itertools
import os
import stat
from collections.abc import Callable
from fnmatch import fnmatchcase

from agent.virtual.files.nodes import ROOT, Directory, File, Link, Live, Node, folder

_LINKS_MAX = 40
_NOTED_BYTES = 200

LiveWritten = Callable[[str, str, str, str, int, str | None], None]


def failed(code: int, path: str = "") -> OSError:
    """An OSError as the kernel would raise it."""
    return OSError(code, os.strerror(code), path)


def strerror(error: OSError) -> str:
    return os.strerror(error.errno or errno.EIO)


def _nobody(event: str, **facts: object) -> None:
    """Nobody looks."""


def _entered(node: Node, uid: int, path: str) -> Directory:
    """The folder to go on from, if the user may."""
    if not isinstance(node, Directory):
        raise failed(errno.ENOTDIR, path)
    if not node.allows(uid, 1):
        raise failed(errno.EACCES, path)
    return node


class FileTree:
    """All files of one phone."""

    def __init__(
        self,
        wall: Callable[[], float],
        catch_up: Callable[[], object],
        written: LiveWritten,
        capacity: int,
    ) -> None:
        self.root = folder()
        self.used = 0
        self.capacity = capacity
        self._wall = wall
        self._catch_up = catch_up
        self._written = written
        self.witness: Callable[..., None] = _nobody  # is told of every file that changes
        self._inodes = itertools.count(2)
        self._known: dict[str, tuple[Node, str]] = {}

    # -- finding

    def resolve(
        self, path: str, uid: int = ROOT, cwd: str = "/", follow: bool = True
    ) -> tuple[Node, str]:
        """The node at a path and its canonical path."""
        known = self._known.get(path) if follow else None
        if known is not None:
            return known
        found = self._walk(path, uid, cwd, follow)
        # Nothing under /sys moves or hides from anybody, and it is asked for all the time.
        if follow and path.startswith("/sys/") and found[1].startswith("/sys/"):
            self._known[path] = found
        return found

    def _walk(self, path: str, uid: int, cwd: str, follow: bool) -> tuple[Node, str]:
        todo = [part for part in self._absolute(path, cwd).split("/") if part]
        todo.reverse()
        trail: list[tuple[str, Directory]] = []
        here: Node = self.root
        links = 0
        while todo:
            name = todo.pop()
            if name == ".":
                continue
            if name == "..":
                here = trail.pop()[1] if trail else here
                continue
            folder_here = _entered(here, uid, path)
            child = folder_here.child(name)
            if child is None:
                raise failed(errno.ENOENT, path)
            if isinstance(child, Link) and (follow or todo):
                links += 1
                if links > _LINKS_MAX:
                    raise failed(errno.ELOOP, path)
                if child.target.startswith("/"):
                    trail, here = [], self.root
                todo.extend(reversed([part for part in child.target.split("/") if part]))
                continue
            trail.append((name, folder_here))
            here = child
        if path.endswith("/") and not isinstance(here, Directory):
            raise failed(errno.ENOTDIR, path)
        return here, "/" + "/".join(name for name, _ in trail)

    def exists(self, path: str, cwd: str = "/") -> bool:
        try:
            self.resolve(path, cwd=cwd)
        except OSError:
            return False
        return True

    def names(self, path: str, uid: int = ROOT, cwd: str = "/") -> list[str]:
        """What a folder holds, sorted."""
        node, _ = self.resolve(path, uid, cwd)
        if not isinstance(node, Directory):
            raise failed(errno.ENOTDIR, path)
        if not node.allows(uid, 4):
            raise failed(errno.EACCES, path)
        self._catch_up()
        return sorted(node.names())

    def match(self, pattern: str, uid: int, cwd: str) -> list[str]:
        """Expand a glob; hidden names need a dot in the pattern."""
        absolute = pattern.startswith("/")
        found = ["/" if absolute else ""]
        for part in [part for part in pattern.split("/") if part]:
            found = [name for base in found for name in self._match_part(base, part, uid, cwd)]
        return sorted(found)

    # -- reading

    def read(self, path: str, uid: int = ROOT, cwd: str = "/") -> bytes:
        """All bytes of a file, live nodes as they are at this moment."""
        node, _ = self.resolve(path, uid, cwd)
        if not node.allows(uid, 4):
            raise failed(errno.EACCES, path)
        return self.read_node(node, path)

    def read_node(self, node: Node, path: str = "") -> bytes:
        self._catch_up()
        if isinstance(node, File):
            return bytes(node.content)
        if isinstance(node, Live):
            return node.read().encode("utf-8", "surrogateescape")
        raise failed(errno.EISDIR, path)

    # -- changing

    def open_for_writing(self, path: str, uid: int, cwd: str = "/", append: bool = False) -> Node:
        """The node to write to, made or emptied as `>` and `>>` do."""
        try:
            node, _ = self.resolve(path, uid, cwd)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            return self._create(path, uid, cwd)
        if isinstance(node, Directory):
            raise failed(errno.EISDIR, path)
        # kernfs refuses to open what has no store method, whatever the capabilities.
        if not node.allows(uid, 2) or (isinstance(node, Live) and node.write is None):
            raise failed(errno.EACCES, path)
        if isinstance(node, File) and not append:
            self.used -= len(node.content)
            node.content.clear()
        return node

    def note(self, path: str, how: str, chunk: bytes, uid: int, cwd: str = "/") -> None:
        """Have it witnessed what was written to a file."""
        text = chunk[:_NOTED_BYTES].decode("utf-8", "replace")
        where = self._absolute(path, cwd)
        self.witness("file", path=where, how=how, uid=uid, bytes=len(chunk), text=text)

    def append(self, node: Node, chunk: bytes, uid: int) -> None:
        """Write at the end of a file, or hand the bytes to a live node."""
        if isinstance(node, File):
            if self.used + len(chunk) > self.capacity:
                raise failed(errno.ENOSPC)
            self.used += len(chunk)
            node.content += chunk
            node.mtime = self._wall()
        elif isinstance(node, Live):
            self._write_live(node, chunk.decode("utf-8", "replace"), uid)

    def write(self, path: str, content: bytes, uid: int = ROOT, mode: int = 0o644) -> None:
        """Replace a whole file, parents included, in one stroke."""
        parent = path.rpartition("/")[0] or "/"
        self.make_folder(parent, uid, parents=True)
        node = self.open_for_writing(path, uid)
        if isinstance(node, File):
            node.mode = stat.S_IFREG | mode
        self.append(node, content, uid)

    def put(self, path: str, node: Node) -> Node:
        """Plant a node, parents included, without asking anybody; live ones learn their path."""
        parent, _, name = path.rpartition("/")
        here: Node = self.root
        for part in [part for part in parent.split("/") if part]:
            if not isinstance(here, Directory):
                raise failed(errno.ENOTDIR, path)
            here = here.children.setdefault(part, self._stamped(folder()))
        if not isinstance(here, Directory):
            raise failed(errno.ENOTDIR, path)
        if isinstance(node, Live):
            node.path = path
        here.children[name] = self._stamped(node)
        self._known.clear()
        return node

    def forget_known(self) -> None:
        """Something under /sys came or went after all."""
        self._known.clear()

    def touch(self, path: str, mtime: float) -> None:
        """Say when a file was last written."""
        self.resolve(path)[0].mtime = mtime

    def make_link(self, path: str, target: str, uid: int, cwd: str = "/") -> None:
        """ln -s, in place of whatever file is there."""
        parent, name = self._parent(self._absolute(path, cwd), uid)
        old = parent.children.get(name)
        if isinstance(old, Directory | Live):
            raise failed(errno.EEXIST, path)
        if isinstance(old, File):
            self.used -= len(old.content)
        parent.children[name] = self._stamped(Link(stat.S_IFLNK | 0o777, uid, uid, target=target))
        self.witness("link", path=self._absolute(path, cwd), target=target, uid=uid)

    def make_folder(self, path: str, uid: int, cwd: str = "/", parents: bool = False) -> None:
        """mkdir, with -p if asked."""
        path = self._absolute(path, cwd).rstrip("/") or "/"
        if parents:
            if self.exists(path):
                if not isinstance(self.resolve(path, uid)[0], Directory):
                    raise failed(errno.EEXIST, path)
                return
            self.make_folder(path.rpartition("/")[0] or "/", uid, parents=True)
        elif self.exists(path):
            raise failed(errno.EEXIST, path)
        parent, name = self._parent(path, uid)
        parent.children[name] = self._stamped(folder(0o755, uid, uid))
        self.witness("folder", path=path, uid=uid)

    def remove(self, path: str, uid: int, cwd: str = "/", folders: bool = False) -> None:
        """rm, with -r if asked."""
        node, _ = self.resolve(path, uid, cwd, follow=False)
        parent, name = self._parent(self._absolute(path, cwd).rstrip("/"), uid)
        if isinstance(node, Live):
            raise failed(errno.EACCES, path)
        if isinstance(node, Directory):
            if not folders:
                raise failed(errno.EISDIR, path)
            for inner in list(node.children):
                self.remove(f"{self._absolute(path, cwd)}/{inner}", uid, folders=True)
        if isinstance(node, File):
            self.used -= len(node.content)
        del parent.children[name]
        self.witness("remove", path=self._absolute(path, cwd), uid=uid)

    def rename(self, source: str, target: str, uid: int, cwd: str = "/") -> None:
        """mv within the tree; replaces a file that is there."""
        node, _ = self.resolve(source, uid, cwd, follow=False)
        old_parent, old_name = self._parent(self._absolute(source, cwd).rstrip("/"), uid)
        target = self._absolute(target, cwd).rstrip("/")
        if self.exists(target) and isinstance(self.resolve(target)[0], Directory):
            target = f"{target}/{old_name}"
        new_parent, new_name = self._parent(target, uid)
        replaced = new_parent.children.get(new_name)
        if replaced is node:
            return
        if isinstance(replaced, File):
            self.used -= len(replaced.content)
        del old_parent.children[old_name]
        new_parent.children[new_name] = node
        self.witness("rename", path=self._absolute(source, cwd), target=target, uid=uid)

    # -- inside

    def _write_live(self, node: Live, text: str, uid: int) -> None:
        if node.write is None:
            raise failed(errno.EACCES, node.path)
        self._catch_up()
        if not node.path.startswith(("/sys/", "/dev/cpu")):
            node.write(text)
            return
        old = node.read().strip()
        fault: str | None = None
        try:
            node.write(text)
        except OSError as error:
            fault = strerror(error)
            raise
        finally:
            self._written(node.path, old, node.read().strip(), text.strip(), uid, fault)

    def _create(self, path: str, uid: int, cwd: str) -> File:
        parent, name = self._parent(self._absolute(path, cwd), uid)
        node = File(stat.S_IFREG | 0o644, uid, uid, self._wall())
        parent.children[name] = self._stamped(node)
        return node

    def _parent(self, path: str, uid: int) -> tuple[Directory, str]:
        """The folder that holds a path's last name, which must let the user write."""
        above, _, name = path.rpartition("/")
        parent, canonical = self.resolve(above or "/", uid)
        if not isinstance(parent, Directory):
            raise failed(errno.ENOTDIR, path)
        if canonical.startswith(("/sys", "/proc", "/system", "/vendor")) or canonical == "/":
            # sysfs and procfs take no new files; the system partition is read-only.
            read_only = canonical == "/" or canonical.startswith(("/system", "/vendor"))
            raise failed(errno.EROFS if read_only else errno.EACCES, path)
        if not parent.allows(uid, 3):
            raise failed(errno.EACCES, path)
        return parent, name

    def _stamped(self, node: Node) -> Node:
        node.mtime = node.mtime or self._wall()
        node.inode = node.inode or next(self._inodes)
        return node

    def _match_part(self, base: str, part: str, uid: int, cwd: str) -> list[str]:
        joined = f"{base}/" if base and not base.endswith("/") else base
        if not any(mark in part for mark in "*?["):
            return [joined + part] if self.exists(joined + part, cwd) else []
        try:
            names = self.names(base or ".", uid, cwd)
        except OSError:
            return []
        hidden = part.startswith(".")
        return [
            joined + name
            for name in names
            if fnmatchcase(name, part) and (hidden or not name.startswith("."))
        ]

    @staticmethod
    def _absolute(path: str, cwd: str) -> str:
        return path if path.startswith("/") else f"{cwd.rstrip('/')}/{path}"
