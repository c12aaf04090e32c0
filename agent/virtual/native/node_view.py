"""The /sys of a native phone: the listed nodes of this computer, and how they are written.

A node that the phone's user may read is a link to the computer's node. Others are copies that this
process keeps fresh: nodes that only root may read, and nodes that may be written. The phone's
programs run without privileges, so this process writes for them, and only what came over adb; a
program on the phone can do no more than restore an old value, as the runner's watchdog does.
"""

import asyncio
import os
import re
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from agent.virtual.native.host_nodes import HostNode, find_host_nodes
from agent.virtual.native.node_restorer import NodeRestorer

COUNTER_INTERVAL_S = 0.02  # a reading of the sampler is older by this at most
WRITABLE_INTERVAL_S = 0.2
_NODE_BYTES_MAX = 4096
_VALUE = re.compile(r"[A-Za-z0-9_-]{1,32}")
_WRITE_LINE = re.compile(
    rb"\s*echo +'?([A-Za-z0-9_-]{1,32})'? *(?:</dev/null)? *"
    rb"> *'?(/sys/[A-Za-z0-9_./:,@-]{1,200})'? *(?:2>&1)?\s*"
)

# Path on the phone, old value, new value, error; the error is empty where the kernel accepted it.
WriteListener = Callable[[str, str, str, str], None]


@dataclass
class NodeCopy:
    """A file on the phone that shows a node of this computer."""

    path: Path  # of the computer's node
    shown_as: str  # path on the phone
    may_write: bool
    host_file: int
    phone_file: int
    content: bytes = b""


class NodeView:
    """The folder /sys of one native phone."""

    def __init__(self, folder: Path, sysfs: Path, uid: int | None) -> None:
        self.on_write: WriteListener | None = None
        self._folder = folder
        self._sysfs = sysfs
        self._uid = uid
        self._copies: dict[str, NodeCopy] = {}
        self._old_values: dict[str, str] = {}  # by path on the phone, in the order of the changes
        self._restorer = NodeRestorer()
        self._timer: asyncio.TimerHandle | None = None
        self._writable_at = 0.0

    def build(self) -> None:
        """Show every listed node of this computer; what the phone changed before is restored."""
        self.close()
        for node in find_host_nodes(self._sysfs):
            file = self._folder / node.shown_as
            file.parent.mkdir(parents=True, exist_ok=True)
            can_write = node.may_write and os.access(node.path, os.W_OK)  # guard: listed-nodes
            if can_write or (not self._is_readable(node.path) and os.access(node.path, os.R_OK)):
                self._add_copy(node, file, can_write)
            else:
                file.symlink_to(node.path)
        self.refresh()

    def close(self) -> None:
        """Restore every changed node, and remove the nodes."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.restore_all()
        self._restorer.close()
        for copy in self._copies.values():
            os.close(copy.host_file)
            os.close(copy.phone_file)
        self._copies.clear()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True, exist_ok=True)

    # -- writing

    def parse_write(self, line: bytes) -> tuple[str, str] | None:
        """Return path and value of a shell line that writes a writable node; None for others."""
        match = _WRITE_LINE.fullmatch(line)
        if match is None:
            return None
        value, path = match[1].decode(), match[2].decode()
        copy = self._copies.get(path)
        return (path, value) if copy is not None and copy.may_write else None

    def write(self, path: str, value: str) -> str:
        """Write a node of this computer; return the kernel's error, or an empty text."""
        copy = self._copies.get(path)
        if copy is None or not copy.may_write or _VALUE.fullmatch(value) is None:
            return "Permission denied"
        old = _read(copy.host_file).decode(errors="replace").strip()
        try:
            old_value = self._old_values.setdefault(path, old)
            self._restorer.record_change(copy.path, old_value)  # guard: restorer-first
            copy.path.write_text(f"{value}\n", encoding="ascii")
        except OSError as error:
            self._notify(path, old, value, error.strerror or "Input/output error")
            return error.strerror or "Input/output error"
        if self._is_original(copy, value):
            del self._old_values[path]
            self._restorer.record_restored(copy.path)
        self._show(copy, _read(copy.host_file))
        self._notify(path, old, value, "")
        return ""

    def restore_all(self) -> None:
        """Give every changed node its old value, the last change first."""
        for path, old in [*self._old_values.items()][::-1]:
            self.write(path, old)

    # -- reading

    def keep_fresh(self, loop: asyncio.AbstractEventLoop) -> None:
        """Refresh the copies from now on, in an event loop."""
        if self._timer is None and self._copies:
            self._refresh_later(loop)

    def refresh(self, writable: bool = True) -> None:
        """Bring the copies up to date: the counters, and the writable nodes on request."""
        requested: dict[str, str] = {}
        for path, copy in self._copies.items():
            if not copy.may_write:
                self._show(copy, _read(copy.host_file))
            elif writable:
                written = _read(copy.phone_file)
                if written != copy.content:
                    requested[path] = written.decode(errors="replace").strip()
                self._show(copy, _read(copy.host_file), force=written != copy.content)
        # A program on the phone may restore; the order is that of the runner's watchdog.
        for path in [*self._old_values][::-1]:
            value = requested.get(path, "")
            if value and self._is_original(self._copies[path], value):  # guard: only-old-values
                self.write(path, value)

    def _refresh_later(self, loop: asyncio.AbstractEventLoop) -> None:
        is_due = loop.time() >= self._writable_at
        if is_due:
            self._writable_at = loop.time() + WRITABLE_INTERVAL_S
        self.refresh(writable=is_due)
        has_counters = not all(copy.may_write for copy in self._copies.values())
        pause_s = COUNTER_INTERVAL_S if has_counters else WRITABLE_INTERVAL_S
        self._timer = loop.call_later(pause_s, self._refresh_later, loop)

    def _add_copy(self, node: HostNode, file: Path, can_write: bool) -> None:
        host_file = os.open(node.path, os.O_RDONLY | os.O_CLOEXEC)
        phone_file = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if self._uid is not None:  # other users may not read what only root may read
            os.fchown(phone_file, self._uid if can_write else -1, self._uid)
        os.fchmod(phone_file, 0o640 if can_write else 0o440)
        path = f"/sys/{node.shown_as}"
        self._copies[path] = NodeCopy(node.path, path, can_write, host_file, phone_file)

    def _show(self, copy: NodeCopy, content: bytes, force: bool = False) -> None:
        if content != copy.content or force:
            # Content ends with a newline and readers take one line: they never see a mixture.
            os.pwrite(copy.phone_file, content, 0)
            os.ftruncate(copy.phone_file, len(content))
            copy.content = content

    def _is_original(self, copy: NodeCopy, value: str) -> bool:
        """Whether a value undoes the change of a node.

        While the kernel caps a clock, its limit shows the cap. An agent that noticed this restores
        the highest clock instead of the cap that it found.
        """
        if value == self._old_values.get(copy.shown_as):
            return True
        highest = copy.path.with_name("cpuinfo_max_freq")
        return copy.path.name == "scaling_max_freq" and _text(highest) == value

    def _is_readable(self, path: Path) -> bool:
        """Whether the phone's user may read a node."""
        if self._uid is None:
            return os.access(path, os.R_OK)
        with suppress(OSError):
            folders = path.resolve().parents
            return bool(path.stat().st_mode & stat.S_IROTH) and all(
                folder.stat().st_mode & stat.S_IXOTH for folder in folders
            )
        return False

    def _notify(self, path: str, old: str, value: str, error: str) -> None:
        if self.on_write is not None:
            self.on_write(path, old, value, error)


def _read(file: int) -> bytes:
    with suppress(OSError):  # a core that is offline takes its nodes with it
        return os.pread(file, _NODE_BYTES_MAX, 0)
    return b""


def _text(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(encoding="ascii", errors="replace").strip()
    return ""
