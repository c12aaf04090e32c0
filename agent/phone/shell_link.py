"""The link: one long-lived shell on a phone, and files sent beside it.

A new adb connection per command costs 10 to 20 ms; a line written into an open shell costs one
round trip. Every line is followed by an end mark with a nonce, so an answer is either whole or an
error: a lost link can never pass for empty output.
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
from workloads.fault import FarmError, FarmTrouble, Hung, PhoneTrouble, ShellFailed, Unreachable
from workloads.text import safe_text

MIB = 1024 * 1024
SHELL = "shell,v2,raw:sh"
OPEN_S = 10.0
SU_TRIES, PROMPT_S = 2, 1.0
SU_ANSWER_S = 5.0  # a root manager may put a question on the screen, which nobody will answer

_STDIN, _STDOUT, _STDERR, _EXIT = range(4)  # packets of the shell protocol, version 2
_PACKET = struct.Struct("<BI")
_PACKET_BYTES_MAX = 16 * 1024
_SYNC = struct.Struct("<4sI")
_SYNC_DATA_BYTES = 64 * 1024
_QUICKACK: int | None = getattr(socket, "TCP_QUICKACK", None)  # Linux has it
_STATUS = re.compile(rb"(\d{1,3})\n")

Dial = Callable[[str, str, Deadline], socket.socket]


class AdbDown(FarmTrouble):
    """The adb server of this host does not answer."""


LINK_LOST = (Unreachable, Hung, AdbDown)  # what may pass: the phone works on meanwhile


class Reply(NamedTuple):
    """What one line of shell came to; its output holds stderr as well."""

    status: int
    output: bytes


class Link:
    """The way to one phone. One exchange at a time; a lost shell is opened again when needed."""

    def __init__(self, address: str, dial: Dial) -> None:
        self.address = address
        self.root = False
        self._dial = dial
        self._lock = threading.Lock()
        self._shell: _Shell | None = None
        self._su_refused = False

    def exchange(
        self, lines: Sequence[str], deadline: Deadline, limit: int = MIB
    ) -> tuple[Reply, ...]:
        """Send lines in one go and answer what each came to, in order: one round trip."""
        if not self._lock.acquire(timeout=deadline.remaining):
            raise Hung(f"{self.address}: another command did not end in time")
        try:
            with self._failing("the shell"):
                return self._open_shell(deadline).talk(lines, deadline, limit)
        except BaseException:
            # What the phone still has to say would be taken for the next answer.
            self.close()
            raise
        finally:
            self._lock.release()

    def send_file(self, content: bytes, path: str, mode: int, deadline: Deadline) -> None:
        """Write a file by adb's sync service, with the rights of adb's own user."""
        with self._failing("a push"), closing(self._dial(self.address, "sync:", deadline)) as sync:
            target = f"{path},{0o100000 | mode}".encode()
            parts = [_SYNC.pack(b"SEND", len(target)) + target]
            for start in range(0, len(content), _SYNC_DATA_BYTES):
                data = content[start : start + _SYNC_DATA_BYTES]
                parts.append(_SYNC.pack(b"DATA", len(data)) + data)
            parts.append(_SYNC.pack(b"DONE", int(time.time())))
            for part in parts:
                sync.settimeout(_left(deadline))
                sync.sendall(part)
            answer, length = _SYNC.unpack(_read(sync, _SYNC.size, deadline))
            if answer != b"OKAY":
                why = _read(sync, min(length, 1024), deadline) if answer == b"FAIL" else answer
                raise ShellFailed(f"{self.address} did not take {path}: {_text(why)}")

    def close(self) -> None:
        """Let go of the shell, also under a command that waits; the next one opens another."""
        shell, self._shell = self._shell, None
        if shell is not None:
            shell.close()

    def _open_shell(self, deadline: Deadline) -> "_Shell":
        shell = self._shell
        if shell is not None and not shell.ended:
            return shell
        self.close()
        shell = _Shell(self._dial(self.address, SHELL, deadline.within(OPEN_S)))
        self.root = shell.uid(deadline) == "0"
        if not self.root and not self._su_refused:
            shell = self._enter_root(shell, deadline)
        self._shell = shell
        return shell

    def _enter_root(self, shell: "_Shell", deadline: Deadline) -> "_Shell":
        """Ask for root, twice: a link that broke or stood still just then is no refusal."""
        for _ in range(SU_TRIES):
            try:
                # exec: a root shell that dies must not leave us in the plain one below it.
                shell.send(b"exec su\n", deadline)
                self.root = shell.uid(deadline.within(SU_ANSWER_S)) == "0"
                break
            except (EOFError, OSError):
                shell.close()
                shell = self._answering_shell(deadline)
        self._su_refused = not self.root
        return shell

    def _answering_shell(self, deadline: Deadline) -> "_Shell":
        """A plain shell that answers at once; where even that takes long, silence says nothing."""
        shell = _Shell(self._dial(self.address, SHELL, deadline.within(OPEN_S)))
        try:
            shell.uid(deadline.within(PROMPT_S))
        except BaseException:
            shell.close()
            raise
        return shell

    @contextmanager
    def _failing(self, what: str) -> Iterator[None]:
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
    """A shell that reads lines from one end of a socket, in adb's shell protocol."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream

    @property
    def ended(self) -> bool:
        """Whether the other end has closed: adb closes our side when the phone goes."""
        try:
            self._stream.settimeout(0)
            return self._stream.recv(1, socket.MSG_PEEK) in {b"", bytes([_EXIT])}
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            return True

    def close(self) -> None:
        """Hang up; whoever waits for an answer is woken."""
        with suppress(OSError):
            self._stream.shutdown(socket.SHUT_RDWR)
        self._stream.close()

    def uid(self, deadline: Deadline) -> str:
        """Who the shell runs as."""
        return _text(self.talk(["id -u </dev/null"], deadline, MIB)[0].output).split(" ")[-1]

    def talk(self, lines: Sequence[str], deadline: Deadline, limit: int) -> tuple[Reply, ...]:
        """Send lines, each with an end mark behind it, and read up to the last mark."""
        nonce = secrets.token_hex(8)
        marked = (f"{line}\necho $farm.{at} $?\n" for at, line in enumerate(lines))
        self.send(f"farm={nonce}\n{''.join(marked)}".encode(), deadline)
        replies: list[Reply] = []
        pending = bytearray()
        taken = 0
        while len(replies) < len(lines):
            seen = max(0, len(pending) - 64)  # a mark may straddle two packets
            pending += self._output(deadline)
            while found := _find_mark(pending, f"{nonce}.{len(replies)} ".encode(), seen):
                replies.append(Reply(found.status, bytes(pending[: found.start])))
                taken += found.start
                del pending[: found.end]
                seen = 0
            if taken + len(pending) > limit + 64:
                raise ShellFailed(f"The phone printed more than {limit} bytes.")
        return tuple(replies)

    def send(self, data: bytes, deadline: Deadline) -> None:
        """Write to the shell's stdin."""
        for start in range(0, len(data), _PACKET_BYTES_MAX):
            part = data[start : start + _PACKET_BYTES_MAX]
            self._stream.settimeout(_left(deadline))
            self._stream.sendall(_PACKET.pack(_STDIN, len(part)) + part)

    def _output(self, deadline: Deadline) -> bytes:
        """The next piece of stdout; what the shell itself says on stderr is of no interest."""
        while True:
            kind, length = _PACKET.unpack(_read(self._stream, _PACKET.size, deadline))
            if length > 16 * MIB:
                raise ValueError(f"a packet of {length} bytes")
            data = _read(self._stream, length, deadline)
            if kind == _EXIT:
                raise EOFError("the shell ended")
            if kind == _STDOUT:
                return data


class _Mark(NamedTuple):
    """Where the mark behind an answer stands, and the status that it tells."""

    start: int
    end: int
    status: int


def _find_mark(pending: bytearray, mark: bytes, seen: int) -> _Mark | None:
    """The mark, once it has arrived to its last character."""
    start = pending.find(mark, seen)
    told = _STATUS.match(pending, start + len(mark)) if start >= 0 else None
    return _Mark(start, told.end(), int(told[1])) if told else None


def _read(stream: socket.socket, count: int, deadline: Deadline) -> bytes:
    content = bytearray()
    while len(content) < count:
        stream.settimeout(_left(deadline))
        _acknowledge(stream)
        part = stream.recv(min(count - len(content), MIB))
        if not part:
            raise EOFError(f"{len(content)} of {count} bytes")
        content += part
    return bytes(content)


def _acknowledge(stream: socket.socket) -> None:
    """Let what arrives be acknowledged at once: adb's server holds the next piece back until then.

    It sends small pieces by Nagle's rule, and a kernel that waits for more to say answers after
    40 ms. The wish is forgotten with every piece, so it is told before each.
    """
    if _QUICKACK is not None and stream.family == socket.AF_INET:
        stream.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)


def _left(deadline: Deadline) -> float:
    if deadline.expired:
        raise TimeoutError("the deadline has passed")
    return max(deadline.remaining, 0.001)  # zero would mean: do not wait at all


def _text(content: bytes) -> str:
    return safe_text(content.decode(errors="replace"))
