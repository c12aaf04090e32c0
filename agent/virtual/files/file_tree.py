"""The file tree of a phone: resolves paths with the permissions, links and errors of a kernel.

Every failure is an OSError with its errno, so that commands print what a phone would print.
"""

import errno
import itertools
import os
import stat
from collections.abc import Callable
from fnmatch import fnmatchcase

from agent.virtual.event_journal import JournalEvent
from agent.virtual.files.file_nodes import (
    ROOT,
    Directory,
    FileNode,
    LiveNode,
    RegularFile,
    SymbolicLink,
    directory_node,
)

_LINKS_MAX = 40
_JOURNALLED_BYTES_MAX = 200

OnLiveWrite = Callable[[str, str, str, str, int, str | None], None]


def os_error(code: int, path: str = "") -> OSError:
    """Make an OSError as the kernel would raise it."""
    return OSError(code, os.strerror(code), path)


def error_text(error: OSError) -> str:
    return os.strerror(error.errno or errno.EIO)


def _ignore_event(event: JournalEvent, **facts: object) -> None:
    """Default callback: ignore."""


def _require_directory(node: FileNode, uid: int, path: str) -> Directory:
    """Return the directory if the user may search it."""
    if not isinstance(node, Directory):
        raise os_error(errno.ENOTDIR, path)
    if not node.allows(uid, 1):
        raise os_error(errno.EACCES, path)
    return node


class FileTree:
    """All files of one phone."""

    def __init__(
        self,
        wall_time: Callable[[], float],
        catch_up: Callable[[], object],
        on_live_write: OnLiveWrite,
        capacity_bytes: int,
    ) -> None:
        self.root = directory_node()
        self.used_bytes = 0
        self.umasks: dict[int, int] = {}  # by user; adbd starts shells with the mask 0
        self.capacity_bytes = capacity_bytes
        self._wall_time = wall_time
        self._catch_up = catch_up
        self._on_live_write = on_live_write
        self.on_change: Callable[..., None] = _ignore_event  # called for every change of a file
        self._inodes = itertools.count(2)
        self._path_cache: dict[str, tuple[FileNode, str]] = {}

    # -- paths

    def resolve(
        self, path: str, uid: int = ROOT, cwd: str = "/", follow: bool = True
    ) -> tuple[FileNode, str]:
        """Return the node at a path and its canonical path."""
        cached = self._path_cache.get(path) if follow else None
        if cached is not None:
            return cached
        resolved = self._walk(path, uid, cwd, follow)
        # Nodes under /sys neither move nor depend on the user, and they are read all the time.
        if follow and path.startswith("/sys/") and resolved[1].startswith("/sys/"):
            self._path_cache[path] = resolved
        return resolved

    def _walk(self, path: str, uid: int, cwd: str, follow: bool) -> tuple[FileNode, str]:
        remaining = [part for part in self._absolute(path, cwd).split("/") if part]
        remaining.reverse()
        trail: list[tuple[str, Directory]] = []
        node: FileNode = self.root
        link_count = 0
        while remaining:
            name = remaining.pop()
            if name == ".":
                continue
            if name == "..":
                node = trail.pop()[1] if trail else node
                continue
            directory = _require_directory(node, uid, path)
            child = directory.child(name)
            if child is None:
                raise os_error(errno.ENOENT, path)
            if isinstance(child, SymbolicLink) and (follow or remaining):
                link_count += 1
                if link_count > _LINKS_MAX:
                    raise os_error(errno.ELOOP, path)
                if child.target.startswith("/"):
                    trail, node = [], self.root
                remaining.extend(reversed([part for part in child.target.split("/") if part]))
                continue
            trail.append((name, directory))
            node = child
        if path.endswith("/") and not isinstance(node, Directory):
            raise os_error(errno.ENOTDIR, path)
        return node, "/" + "/".join(name for name, _ in trail)

    def exists(self, path: str, cwd: str = "/") -> bool:
        try:
            self.resolve(path, cwd=cwd)
        except OSError:
            return False
        return True

    def names(self, path: str, uid: int = ROOT, cwd: str = "/") -> list[str]:
        """Return the sorted names in a directory."""
        node, _ = self.resolve(path, uid, cwd)
        if not isinstance(node, Directory):
            raise os_error(errno.ENOTDIR, path)
        if not node.allows(uid, 4):
            raise os_error(errno.EACCES, path)
        self._catch_up()
        return sorted(node.names())

    def expand_glob(self, pattern: str, uid: int, cwd: str) -> list[str]:
        """Expand a glob; hidden names need a dot in the pattern."""
        absolute = pattern.startswith("/")
        paths = ["/" if absolute else ""]
        for part in [part for part in pattern.split("/") if part]:
            paths = [name for base in paths for name in self._expand_part(base, part, uid, cwd)]
        return sorted(paths)

    # -- reading

    def read(self, path: str, uid: int = ROOT, cwd: str = "/") -> bytes:
        """Return all bytes of a file; a live node is read at this moment."""
        node, _ = self.resolve(path, uid, cwd)
        if not node.allows(uid, 4):
            raise os_error(errno.EACCES, path)
        return self.read_node(node, path)

    def read_node(self, node: FileNode, path: str = "") -> bytes:
        self._catch_up()
        if isinstance(node, RegularFile):
            return bytes(node.content)
        if isinstance(node, LiveNode):
            return node.read().encode("utf-8", "surrogateescape")
        raise os_error(errno.EISDIR, path)

    # -- changing

    def open_for_writing(
        self, path: str, uid: int, cwd: str = "/", append: bool = False
    ) -> FileNode:
        """Return the node to write to, created or truncated as `>` and `>>` do."""
        try:
            node, _ = self.resolve(path, uid, cwd)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            return self._create(path, uid, cwd)
        if isinstance(node, Directory):
            raise os_error(errno.EISDIR, path)
        # kernfs refuses to open an attribute without a store method, whatever the capabilities.
        if not node.allows(uid, 2) or (isinstance(node, LiveNode) and node.write is None):
            raise os_error(errno.EACCES, path)
        if isinstance(node, RegularFile) and not append:
            self.used_bytes -= len(node.content)
            node.content.clear()
        return node

    def report_write(self, path: str, operation: str, chunk: bytes, uid: int) -> None:
        """Report to the journal what was written to a file."""
        text = chunk[:_JOURNALLED_BYTES_MAX].decode("utf-8", "replace")
        self.on_change(
            JournalEvent.FILE_WRITE,
            path=self._absolute(path, "/"),
            operation=operation,
            uid=uid,
            bytes=len(chunk),
            text=text,
        )

    def append(self, node: FileNode, chunk: bytes, uid: int) -> None:
        """Append to a file, or pass the bytes to a live node."""
        if isinstance(node, RegularFile):
            if self.used_bytes + len(chunk) > self.capacity_bytes:
                raise os_error(errno.ENOSPC)
            self.used_bytes += len(chunk)
            node.content += chunk
            node.mtime = self._wall_time()
        elif isinstance(node, LiveNode):
            self._write_live(node, chunk.decode("utf-8", "replace"), uid)

    def write(self, path: str, content: bytes, uid: int = ROOT, mode: int = 0o644) -> None:
        """Replace a whole file in one step; missing parents are created."""
        parent = path.rpartition("/")[0] or "/"
        self.make_directory(parent, uid, parents=True)
        node = self.open_for_writing(path, uid)
        if isinstance(node, RegularFile):
            node.mode = stat.S_IFREG | mode
        self.append(node, content, uid)

    def add_node(self, path: str, node: FileNode) -> FileNode:
        """Add a node without permission checks, parents included; a live node learns its path."""
        parent_path, _, name = path.rpartition("/")
        parent_node: FileNode = self.root
        for part in [part for part in parent_path.split("/") if part]:
            if not isinstance(parent_node, Directory):
                raise os_error(errno.ENOTDIR, path)
            parent_node = parent_node.children.setdefault(part, self._with_inode(directory_node()))
        if not isinstance(parent_node, Directory):
            raise os_error(errno.ENOTDIR, path)
        if isinstance(node, LiveNode):
            node.path = path
        parent_node.children[name] = self._with_inode(node)
        self._path_cache.clear()
        return node

    def clear_path_cache(self) -> None:
        """Forget resolved paths after a node under /sys was added or removed."""
        self._path_cache.clear()

    def set_mtime(self, path: str, mtime: float) -> None:
        """Set the modification time of a file."""
        self.resolve(path)[0].mtime = mtime

    def make_link(self, path: str, target: str, uid: int, cwd: str = "/") -> None:
        """Create a symbolic link, replacing a file of that name."""
        parent, name = self._writable_parent(self._absolute(path, cwd), uid)
        replaced = parent.children.get(name)
        if isinstance(replaced, Directory | LiveNode):
            raise os_error(errno.EEXIST, path)
        if isinstance(replaced, RegularFile):
            self.used_bytes -= len(replaced.content)
        parent.children[name] = self._with_inode(
            SymbolicLink(stat.S_IFLNK | 0o777, uid, uid, target=target)
        )
        self.on_change(
            JournalEvent.LINK_CREATE, path=self._absolute(path, cwd), target=target, uid=uid
        )

    def make_directory(self, path: str, uid: int, cwd: str = "/", parents: bool = False) -> None:
        """Create a directory, with `parents` also the missing ones above it."""
        path = self._absolute(path, cwd).rstrip("/") or "/"
        if parents:
            if self.exists(path):
                if not isinstance(self.resolve(path, uid)[0], Directory):
                    raise os_error(errno.EEXIST, path)
                return
            self.make_directory(path.rpartition("/")[0] or "/", uid, parents=True)
        elif self.exists(path):
            raise os_error(errno.EEXIST, path)
        parent, name = self._writable_parent(path, uid)
        mode = 0o777 & ~self.umasks.get(uid, 0)
        parent.children[name] = self._with_inode(directory_node(mode, uid, uid))
        self.on_change(JournalEvent.DIRECTORY_CREATE, path=path, uid=uid)

    def remove(self, path: str, uid: int, cwd: str = "/", recursive: bool = False) -> None:
        """Remove a file, or with `recursive` a directory and its contents."""
        node, _ = self.resolve(path, uid, cwd, follow=False)
        parent, name = self._writable_parent(self._absolute(path, cwd).rstrip("/"), uid)
        if isinstance(node, LiveNode):
            raise os_error(errno.EACCES, path)
        if isinstance(node, Directory):
            if not recursive:
                raise os_error(errno.EISDIR, path)
            for child_name in list(node.children):
                self.remove(f"{self._absolute(path, cwd)}/{child_name}", uid, recursive=True)
        if isinstance(node, RegularFile):
            self.used_bytes -= len(node.content)
        del parent.children[name]
        self.on_change(JournalEvent.FILE_REMOVE, path=self._absolute(path, cwd), uid=uid)

    def rename(self, source: str, target: str, uid: int, cwd: str = "/") -> None:
        """Move a node within the tree, replacing a file of the target's name."""
        node, _ = self.resolve(source, uid, cwd, follow=False)
        old_parent, old_name = self._writable_parent(self._absolute(source, cwd).rstrip("/"), uid)
        target = self._absolute(target, cwd).rstrip("/")
        if self.exists(target) and isinstance(self.resolve(target)[0], Directory):
            target = f"{target}/{old_name}"
        new_parent, new_name = self._writable_parent(target, uid)
        replaced = new_parent.children.get(new_name)
        if replaced is node:
            return
        if isinstance(replaced, RegularFile):
            self.used_bytes -= len(replaced.content)
        del old_parent.children[old_name]
        new_parent.children[new_name] = node
        self.on_change(
            JournalEvent.FILE_RENAME, path=self._absolute(source, cwd), target=target, uid=uid
        )

    # -- internals

    def _write_live(self, node: LiveNode, text: str, uid: int) -> None:
        if node.write is None:
            raise os_error(errno.EACCES, node.path)
        self._catch_up()
        if not node.path.startswith(("/sys/", "/dev/cpu")):
            node.write(text)
            return
        old = node.read().strip()
        error_message: str | None = None
        try:
            node.write(text)
        except OSError as error:
            error_message = error_text(error)
            raise
        finally:
            self._on_live_write(
                node.path, old, node.read().strip(), text.strip(), uid, error_message
            )

    def _create(self, path: str, uid: int, cwd: str) -> RegularFile:
        parent, name = self._writable_parent(self._absolute(path, cwd), uid)
        mode = 0o666 & ~self.umasks.get(uid, 0)
        node = RegularFile(stat.S_IFREG | mode, uid, uid, self._wall_time())
        parent.children[name] = self._with_inode(node)
        return node

    def _writable_parent(self, path: str, uid: int) -> tuple[Directory, str]:
        """Return the directory of a path's last name if the user may write there, and that name."""
        parent_path, _, name = path.rpartition("/")
        parent, canonical = self.resolve(parent_path or "/", uid)
        if not isinstance(parent, Directory):
            raise os_error(errno.ENOTDIR, path)
        if canonical.startswith(("/sys", "/proc", "/system", "/vendor")) or canonical == "/":
            # sysfs and procfs accept no new files; the system partition is read-only.
            read_only = canonical == "/" or canonical.startswith(("/system", "/vendor"))
            raise os_error(errno.EROFS if read_only else errno.EACCES, path)
        if not parent.allows(uid, 3):
            raise os_error(errno.EACCES, path)
        return parent, name

    def _with_inode(self, node: FileNode) -> FileNode:
        node.mtime = node.mtime or self._wall_time()
        node.inode = node.inode or next(self._inodes)
        return node

    def _expand_part(self, base: str, part: str, uid: int, cwd: str) -> list[str]:
        prefix = f"{base}/" if base and not base.endswith("/") else base
        if not any(character in part for character in "*?["):
            return [prefix + part] if self.exists(prefix + part, cwd) else []
        try:
            names = self.names(base or ".", uid, cwd)
        except OSError:
            return []
        wants_hidden = part.startswith(".")
        return [
            prefix + name
            for name in names
            if fnmatchcase(name, part) and (wants_hidden or not name.startswith("."))
        ]

    @staticmethod
    def _absolute(path: str, cwd: str) -> str:
        return path if path.startswith("/") else f"{cwd.rstrip('/')}/{path}"
