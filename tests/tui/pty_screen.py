"""A terminal to look at: a real pseudo-terminal, and a screen that understands what is written."""

import fcntl
import os
import pty
import re
import signal
import struct
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyte

ROOT = Path(__file__).resolve().parents[2]
# all that the screen may send beside text: places, colours, and what it does on entry and exit
OWN = re.compile(r"\x1b\[(\d+;\d+H|[\d;]*m|2J|\?(1049|25|7)[hl])")


class Glass:
    """A program in a terminal: what is on its screen, and keys to press."""

    def __init__(self, pid: int, fd: int, columns: int, lines: int) -> None:
        self.pid = pid
        self.raw = bytearray()
        self.bursts: list[float] = []  # when something was written
        self.status: int | None = None
        self._fd = fd
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                content = os.read(self._fd, 65536)
            except OSError:
                return
            if not content:
                return
            with self._lock:
                self.raw += content
                self.bursts.append(time.monotonic())
                # pyte does not know the other screen; entering it clears ours all the same
                self._stream.feed(content)

    @property
    def text(self) -> str:
        """What stands there now."""
        with self._lock:
            return "\n".join(self._screen.display)

    def wait(self, *words: str, seconds: float = 15.0) -> str:
        """Wait until all of these words stand there."""
        until = time.monotonic() + seconds
        while not all(each in self.text for each in words):
            missing = [each for each in words if each not in self.text]
            assert time.monotonic() < until, f"{missing} did not appear:\n{self.text}"
            time.sleep(0.02)
        return self.text

    def press(self, keys: str) -> None:
        """Type."""
        os.write(self._fd, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        """Pull at the corner of the window."""
        with self._lock:
            self._screen.resize(lines, columns)
            self._screen.reset()
        set_size(self._fd, columns, lines)

    def settings(self) -> list[Any]:
        """How the terminal treats keys: echo, lines, signals."""
        return termios.tcgetattr(self._fd)

    def ended(self, seconds: float = 10.0) -> int:
        """Wait for the end, and answer the exit code; of a signal, its number below zero."""
        until = time.monotonic() + seconds
        while self.status is None:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                self.status = os.waitstatus_to_exitcode(status)
            assert time.monotonic() < until, f"it did not end:\n{self.text}"
            time.sleep(0.01)
        self._reader.join(0.5)
        return self.status

    def redraws(self, seconds: float, apart_s: float = 0.02) -> int:
        """How often it was drawn in the next seconds; what is written at once is one drawing."""
        time.sleep(seconds)
        with self._lock:
            recent = [at for at in self.bursts if at > time.monotonic() - seconds]
        return sum(
            after - before > apart_s for before, after in zip([0.0, *recent], recent, strict=False)
        )


def set_size(fd: int, columns: int, lines: int) -> None:
    """Tell a terminal how large it is."""
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


@contextmanager
def glass(
    *arguments: str | Path, columns: int = 80, lines: int = 24, **variables: str
) -> Iterator[Glass]:
    """Run a farm command in a terminal of its own."""
    words = [sys.executable, "-m", "orchestrator", *map(str, arguments)]
    with program(words, columns, lines, **variables) as shown:
        yield shown


@contextmanager
def program(
    words: list[str], columns: int = 80, lines: int = 24, **variables: str
) -> Iterator[Glass]:
    """Run any program in a terminal of its own."""
    environment = {**os.environ, "TERM": "xterm-256color", "TZ": "UTC", **variables}
    pid, fd = pty.fork()
    if pid == 0:
        set_size(0, columns, lines)
        os.chdir(ROOT)
        os.execve(words[0], words, environment)
    set_size(fd, columns, lines)
    shown = Glass(pid, fd, columns, lines)
    try:
        yield shown
    finally:
        if shown.status is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(fd)
