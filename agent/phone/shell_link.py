"""ShellLink: one long-lived shell on a phone over adb, and file transfers beside it.

A new adb connection per command costs 10 to 20 ms; a line written into an open shell costs one
round trip. Every line is followed by an end mark with a nonce, so that a reply is either complete
or an error: a lost link is never mistaken for empty output. The last mark comes with the phone's
clock.
"""

import re
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import NamedTuple

from agent.deadline import Deadline
from agent.timeouts import DEFAULT_TIMEOUTS, Timeouts
from workloads.protocol.faults import (
    FarmError,
    FarmTrouble,
    Hung,
    PhoneTrouble,
    ShellFailed,
    Unreachable,
)
from workloads.text import safe_text

MIB = 1024 * 1024
SHELL = "shell,v2,raw:sh"
OLD_SHELL = "exec:sh"  # adbd of Android 6 has no shell protocol, version 2: a bare stream
SU_ATTEMPTS = 2

_STDIN, _STDOUT, _STDERR, _EXIT = range(4)  # packets of the shell protocol, version 2
_PACKET = struct.Struct("<BI")
_PACKET_BYTES_MAX = 16 * 1024
_CLOCK_BYTES_MAX = 4096
_SYNC = struct.Struct("<4sI")
_SYNC_DATA_BYTES = 64 * 1024
_QUICKACK: int | None = getattr(socket, "TCP_QUICKACK", None)  # Linux has it
_STATUS = re.compile(rb"(\d{1,3})\n")
_CLOCK = re.compile(rb"(\d{1,10}\.\d\d)?\n")
_READ_CLOCK = "read -r farm_up farm_idle </proc/uptime\necho $farm.clock $farm_up\n"

Dial = Callable[[str, str, Deadline], socket.socket]


class AdbDown(FarmTrouble):
    """the adb server of this host does not answer; the agent restarts it"""


LINK_LOST = (Unreachable, Hung, AdbDown)  # may be temporary: what runs on the phone continues


class ShellReply(NamedTuple):
    """Exit status and output of one shell line; the output includes stderr."""

    status: int
    output: bytes


class ShellLink:
    """A shell on one phone. One exchange at a time; a lost shell is opened again when needed."""

    def __init__(
        self,
        address: str,
        dial: Dial,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        *,
        use_root: bool = True,
    ) -> None:
        self.address = address
        self.root = False
        self.clock_s: float | None = None  # the phone's, at the end of the last exchange
        self._dial = dial
        self._timeouts = timeouts
        self._lock = threading.Lock()
        self._shell: _Shell | None = None
        self._try_su = use_root
        self._speaks_packets = False  # the last shell was one with packets

    def exchange(
        self,
        lines: Sequence[str],
        deadline: Deadline,
        limit: int = MIB,
        each_s: float | None = None,
    ) -> tuple[ShellReply, ...]:
        """Send lines in one round trip, and return one reply per line, in order.

        With `each_s` every reply extends the deadline to that many seconds from then on.
        """
        if not self._lock.acquire(timeout=deadline.remaining):
            raise Hung(f"{self.address}: another command did not finish in time")
        try:
            with self._translate_errors("the shell"):
                shell = self._open_shell(deadline)
                replies = shell.exchange(lines, deadline, limit, each_s)
                self.clock_s = shell.clock_s
                return replies
        except BaseException:
            # The rest of the output would be mistaken for the next reply.
            self.close()
            raise
        finally:
            self._lock.release()

    def send_file(self, content: bytes, path: str, mode: int, deadline: Deadline) -> None:
        """Write a file with adb's sync service, with the permissions of adb's own user."""
        with (
            self._translate_errors("a push"),
            closing(self._dial(self.address, "sync:", deadline)) as sync,
        ):
            target = f"{path},{0o100000 | mode}".encode()
            parts = [_SYNC.pack(b"SEND", len(target)) + target]
            for start in range(0, len(content), _SYNC_DATA_BYTES):
                data = content[start : start + _SYNC_DATA_BYTES]
                parts.append(_SYNC.pack(b"DATA", len(data)) + data)
            parts.append(_SYNC.pack(b"DONE", int(time.time())))
            # A phone that cannot write the file gives the reason, and old ones close at once.
            with suppress(BrokenPipeError, ConnectionResetError):
                for part in parts:
                    sync.settimeout(_remaining(deadline))
                    sync.sendall(part)
            status, length = _SYNC.unpack(_read(sync, _SYNC.size, deadline))
            if status != b"OKAY":
                reason = _read(sync, min(length, 1024), deadline) if status == b"FAIL" else status
                raise ShellFailed(f"{self.address} did not accept {path}: {_text(reason)}")

    def close(self) -> None:
        """Close the shell, also while a command waits for it; the next command opens another."""
        shell, self._shell = self._shell, None
        if shell is not None:
            shell.close()

    def _open_shell(self, deadline: Deadline) -> "_Shell":
        shell = self._shell
        if shell is not None and not shell.ended:
            return shell
        self.close()
        shell = self._dial_shell(deadline)
        self.root = shell.uid(deadline) == "0"
        if not self.root and self._try_su:
            shell = self._enter_root(shell, deadline)
        # adbd's own mask is 0: without this every user of the phone could write our files.
        shell.send(b"umask 022\n", deadline)
        self._shell = shell
        self._speaks_packets |= shell.has_packets
        return shell

    def _enter_root(self, shell: "_Shell", deadline: Deadline) -> "_Shell":
        """Ask for root, twice: a link that broke or stalled in between does not mean refusal."""
        for _ in range(SU_ATTEMPTS):
            try:
                # exec: a root shell that dies must not leave us in the unprivileged one below it.
                shell.send(b"exec su\n", deadline)
                self.root = shell.uid(deadline.within(self._timeouts.root_grant_timeout_s)) == "0"
                break
            except (EOFError, OSError):
                shell.close()
                shell = self._responsive_shell(deadline)
        self._try_su = self.root  # a refusal is final
        return shell

    def _dial_shell(self, deadline: Deadline) -> "_Shell":
        opened = deadline.within(self._timeouts.shell_open_timeout_s)
        try:
            return _Shell(self._dial(self.address, SHELL, opened))
        except Unreachable as error:  # lost, or refused by an old adbd
            if self._speaks_packets:  # a link that returns must not become a terminal
                self._speaks_packets = False
                raise
            try:
                return _Shell(self._dial(self.address, OLD_SHELL, opened), has_packets=False)
            except FarmError:
                raise error from None

    def _responsive_shell(self, deadline: Deadline) -> "_Shell":
        """Open an unprivileged shell that answers at once.

        If even that takes long, the missing answer to `su` was not a refusal.
        """
        shell = self._dial_shell(deadline)
        try:
            shell.uid(deadline.within(self._timeouts.shell_prompt_timeout_s))
        except BaseException:
            shell.close()
            raise
        return shell

    @contextmanager
    def _translate_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except FarmError:
            raise
        except TimeoutError as error:
            raise Hung(f"{self.address}: {what} got no answer in time") from error
        except (EOFError, OSError) as error:
            raise Unreachable(f"{self.address}: {what} lost the link") from error
        except (ValueError, struct.error) as error:
            raise PhoneTrouble(f"{self.address}: {what} got {safe_text(error)}") from error


class _Shell:
    """A shell behind a socket: in packets of adb's shell protocol, version 2, or without any."""

    def __init__(self, stream: socket.socket, has_packets: bool = True) -> None:
        self.clock_s: float | None = None
        self._stream = stream
        self.has_packets = has_packets

    @property
    def ended(self) -> bool:
        """Whether the other end has closed: adb closes our socket when the phone disappears."""
        try:
            self._stream.settimeout(0)
            first = self._stream.recv(1, socket.MSG_PEEK)
            return first == b"" or (self.has_packets and first == bytes([_EXIT]))
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            return True

    def close(self) -> None:
        """Close the socket; a thread that waits for a reply is woken."""
        with suppress(OSError):
            self._stream.shutdown(socket.SHUT_RDWR)
        self._stream.close()

    def uid(self, deadline: Deadline) -> str:
        """The user id that the shell runs as."""
        reply = self.exchange(["id -u </dev/null"], deadline, MIB)[0]
        return _text(reply.output).split(" ")[-1]

    def exchange(
        self, lines: Sequence[str], deadline: Deadline, limit: int, each_s: float | None = None
    ) -> tuple[ShellReply, ...]:
        """Send lines, each followed by an end mark, and read up to the last mark and the clock."""
        nonce = secrets.token_hex(8)
        marked = (f"{line}\necho $farm.{index} $?\n" for index, line in enumerate(lines))
        self.send(f"farm={nonce}\n{''.join(marked)}{_READ_CLOCK}".encode(), deadline)
        replies: list[ShellReply] = []
        pending = bytearray()
        consumed = 0
        while len(replies) < len(lines):
            searched = max(0, len(pending) - 64)  # a mark may straddle two packets
            pending += self._output(deadline)
            if not self.has_packets and b"\necho $farm." in pending:  # as on newer phones
                raise EOFError("the shell is a terminal that echoes")
            while mark := _find_mark(pending, f"{nonce}.{len(replies)} ".encode(), searched):
                replies.append(ShellReply(mark.status, bytes(pending[: mark.start])))
                deadline = deadline if each_s is None else Deadline.after(each_s)
                consumed += mark.start
                del pending[: mark.end]
                searched = 0
            rest = len(pending) if len(replies) < len(lines) else 0
            if consumed + rest > limit + 64:  # guard: output-limit
                raise ShellFailed(f"the phone printed more than {limit} bytes")
        self.clock_s = self._read_clock(pending, f"{nonce}.clock ".encode(), deadline)
        return tuple(replies)

    def _read_clock(self, pending: bytearray, mark: bytes, deadline: Deadline) -> float | None:
        """Read the phone's clock, which follows the last mark; None if the phone hides it."""
        while True:
            start = pending.find(mark)
            clock = _CLOCK.match(pending, start + len(mark)) if start >= 0 else None
            if clock:
                return float(clock[1]) if clock[1] else None
            if len(pending) > _CLOCK_BYTES_MAX:
                raise ShellFailed("the phone printed something after the end mark")
            pending += self._output(deadline)

    def send(self, data: bytes, deadline: Deadline) -> None:
        """Write to the shell's stdin."""
        for start in range(0, len(data), _PACKET_BYTES_MAX):
            part = data[start : start + _PACKET_BYTES_MAX]
            header = _PACKET.pack(_STDIN, len(part)) if self.has_packets else b""
            self._stream.settimeout(_remaining(deadline))
            self._stream.sendall(header + part)

    def _output(self, deadline: Deadline) -> bytes:
        """The next piece of stdout; the shell's own stderr is ignored where it is distinguished."""
        if not self.has_packets:
            return _read_some(self._stream, MIB, deadline)
        while True:
            kind, length = _PACKET.unpack(_read(self._stream, _PACKET.size, deadline))
            if length > 16 * MIB:
                raise ValueError(f"a packet of {length} bytes")
            data = _read(self._stream, length, deadline)
            if kind == _EXIT:
                raise EOFError("the shell ended")
            if kind == _STDOUT:
                return data


class _EndMark(NamedTuple):
    """The position of the mark after a reply, and the exit status in it."""

    start: int
    end: int
    status: int


def _find_mark(pending: bytearray, mark: bytes, searched: int) -> _EndMark | None:
    """Find the mark, once it has arrived completely."""
    start = pending.find(mark, searched)
    status = _STATUS.match(pending, start + len(mark)) if start >= 0 else None
    return _EndMark(start, status.end(), int(status[1])) if status else None


def _read(stream: socket.socket, count: int, deadline: Deadline) -> bytes:
    content = bytearray()
    while len(content) < count:
        content += _read_some(stream, count - len(content), deadline)
    return bytes(content)


def _read_some(stream: socket.socket, limit: int, deadline: Deadline) -> bytes:
    stream.settimeout(_remaining(deadline))
    _request_quick_ack(stream)
    part = stream.recv(min(limit, MIB))
    if not part:
        raise EOFError(f"{limit} more bytes were expected")
    return part


def _request_quick_ack(stream: socket.socket) -> None:
    """Let the kernel acknowledge data at once: adb's server holds the next piece back until then.

    The server sends small pieces by Nagle's algorithm, and a delayed acknowledgement takes 40 ms.
    The kernel forgets the option after every piece, so it is set before each read.
    """
    if _QUICKACK is not None and stream.family == socket.AF_INET:
        stream.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)


def _remaining(deadline: Deadline) -> float:
    if deadline.expired:
        raise TimeoutError("the deadline has passed")
    return max(deadline.remaining, 0.001)  # zero would mean non-blocking


def _text(content: bytes) -> str:
    return safe_text(content.decode(errors="replace"))
