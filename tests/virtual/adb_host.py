"""The host's side of the tests: a private stock adb server, and a small client of its socket."""

import os
import random
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import adbutils  # type: ignore[import-untyped]

ADB = Path(adbutils.__file__).parent / "binaries" / "adb"
WAIT_S = 120.0
SLEEPS_MAX = 2000

_PACKET = struct.Struct("<BI")
_STDIN, _STDOUT, _STDERR, _EXIT, _CLOSE_STDIN = range(5)


class CommandResult(NamedTuple):
    """Exit status and output of a command."""

    status: int
    out: str
    err: str


def free_port() -> int:
    """Return a free loopback port that adb does not scan."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if not 5554 <= port <= 5585:
            return port


def free_ports(count: int) -> int:
    """Return the first of several free ports in a row, below the ephemeral range."""
    for base in random.sample(range(20_000, 30_000), 200):
        if not any(_listens(base + offset) for offset in range(count)):
            return base
    raise AssertionError("no free ports")


@dataclass(frozen=True)
class AdbHost:
    """A running adb server."""

    port: int
    home: Path
    binary: Path = ADB

    @property
    def env(self) -> dict[str, str]:
        return {
            **os.environ,
            "ADB_USB": "0",
            "ADB_EMU": "0",
            "HOME": str(self.home),
            "ANDROID_ADB_LOG_PATH": str(self.home / "adb.log"),
            "ANDROID_ADB_SERVER_PORT": str(self.port),
        }

    def adb(self, *words: str, text: str | None = None) -> CommandResult:
        """Run the adb command line."""
        done = subprocess.run(
            [self.binary, *words],
            env=self.env,
            input=text,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        return CommandResult(done.returncode, done.stdout, done.stderr)

    def open_service(self, address: str, service: str) -> socket.socket:
        """Open a service of a phone through the server."""
        stream = socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_S)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for request in (f"host:transport:{address}", service):
            stream.sendall(f"{len(request.encode()):04x}{request}".encode())
            answer = read_exactly(stream, 4)
            if answer != b"OKAY":
                raise ConnectionRefusedError(f"{service}: {answer!r}")
        return stream


@contextmanager
def adb_host(home: Path, binary: Path = ADB) -> Iterator[AdbHost]:
    """Run a server on a free port."""
    host = AdbHost(free_port(), home, binary)
    command: list[str | Path] = [binary, "-P", str(host.port), "nodaemon", "server"]
    with (home / "server.log").open("wb") as log:
        server = subprocess.Popen(command, env=host.env, stdout=log, stderr=log)
    try:
        wait_until(lambda: _listens(host.port), "the adb server listens")
        yield host
    finally:
        server.terminate()
        server.wait(WAIT_S)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_until(true: Callable[[], bool], what: str, seconds: float = WAIT_S) -> None:
    """Wait until a condition is true; fail with its description."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"never came true: {what}"
        time.sleep(0.005)


def child_pid(word: str) -> int:
    """Return the pid of the child of this process that has a word in its command line."""
    pids: list[str] = []
    for children in Path(f"/proc/{os.getpid()}/task").glob("*/children"):
        with suppress(OSError):  # the thread may have ended
            pids += children.read_text().split()
    for pid in pids:
        with suppress(OSError):  # the child may have ended
            if word in Path(f"/proc/{pid}/cmdline").read_text().split("\0"):
                return int(pid)
    raise AssertionError(f"no child has {word} in its command line")


def read_exactly(stream: socket.socket, count: int) -> bytes:
    chunks = bytearray()
    while len(chunks) < count:
        chunk = stream.recv(count - len(chunks))
        if not chunk:
            raise EOFError(f"{len(chunks)} of {count} bytes")
        chunks += chunk
    return bytes(chunks)


def read_packets(stream: socket.socket) -> CommandResult:
    """Read shell packets up to the exit packet."""
    texts = {_STDOUT: bytearray(), _STDERR: bytearray()}
    while True:
        kind, length = _PACKET.unpack(read_exactly(stream, _PACKET.size))
        content = read_exactly(stream, length)
        if kind == _EXIT:
            return CommandResult(content[0], texts[_STDOUT].decode(), texts[_STDERR].decode())
        texts[kind] += content


class AdbPhone:
    """A phone behind an adb server, as a test drives it."""

    def __init__(self, host: AdbHost, address: str) -> None:
        self.host = host
        self.address = address

    def run(self, command: str) -> CommandResult:
        """Run one command over shell v2."""
        with self.host.open_service(self.address, f"shell,v2,raw:{command}") as stream:
            return read_packets(stream)

    def out(self, command: str) -> str:
        """Return the output of a command that must succeed."""
        result = self.run(command)
        assert result.status == 0, result
        return result.out.rstrip("\n")

    def root(self, command: str) -> str:
        """Return the output of a command that must succeed as root."""
        return self.out(f"su -c '{command}'")

    def number(self, path: str) -> int:
        return int(self.out(f"cat {path}"))

    def uptime(self) -> float:
        return float(self.out("cat /proc/uptime").split()[0])

    def sleep_until(self, true: Callable[[], bool], what: str, step_s: float = 1.0) -> None:
        """Let the phone's time pass until a condition is true; fail with its description."""
        for _ in range(SLEEPS_MAX):
            if true():
                return
            self.out(f"sleep {step_s}")
        raise AssertionError(f"never came true: {what}")

    def put(self, path: str, content: bytes, mode: int = 0o644) -> None:
        """Push bytes over the sync service."""
        with self.host.open_service(self.address, "sync:") as stream:
            target = f"{path},{0o100000 | mode}".encode()
            stream.sendall(b"SEND" + struct.pack("<I", len(target)) + target)
            for start in range(0, len(content), 65536):
                chunk = content[start : start + 65536]
                stream.sendall(b"DATA" + struct.pack("<I", len(chunk)) + chunk)
            stream.sendall(b"DONE" + struct.pack("<I", 1_700_000_000))
            answer, length = struct.unpack("<4sI", read_exactly(stream, 8))
            assert answer == b"OKAY", read_exactly(stream, length)

    def shell(self) -> "PersistentShell":
        return PersistentShell(self.host.open_service(self.address, "shell,v2,raw:sh"))


class PersistentShell:
    """One shell that stays open, as the agent keeps it."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._received = bytearray()
        self._marks = 0

    def send(self, text: str) -> None:
        raw = text.encode()
        self._stream.sendall(_PACKET.pack(_STDIN, len(raw)) + raw)

    def line(self, text: str) -> tuple[int, str]:
        """Run one line; return its status and merged output."""
        self._marks += 1
        mark = f"MARK{self._marks}"
        self.send(f"{{ {text}\n}} 2>&1\necho {mark} $?\n")
        while True:
            before, marker, after = self._received.partition(mark.encode())
            if marker and after.endswith(b"\n"):
                self._received.clear()
                return int(after), before.decode()
            kind, length = _PACKET.unpack(read_exactly(self._stream, _PACKET.size))
            content = read_exactly(self._stream, length)
            assert kind != _EXIT, self._received
            self._received += content

    def end(self) -> CommandResult:
        """Close stdin and read the rest."""
        self._stream.sendall(_PACKET.pack(_CLOSE_STDIN, 0))
        return read_packets(self._stream)

    def close(self) -> None:
        self._stream.close()
