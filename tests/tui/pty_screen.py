"""Runs a program in a real pseudo-terminal and emulates the screen that it draws."""

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
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyte

ROOT = Path(__file__).resolve().parents[2]
# The only escape sequences that the screen may send: positions, colours, entry and exit.
OWN_ESCAPES = re.compile(r"\x1b\[(\d+;\d+H|[\d;]*m|2J|\?(1049|25|7)[hl])")
LINE_START = re.compile(rb"\x1b\[(\d+);1H")
# Nobody waits longer for an answer; the computer may be busy with other programs.
PATIENCE_S = 300.0


class PtyScreen:
    """A program in a terminal: the text on its screen, and keys to press."""

    def __init__(self, pid: int, fd: int, columns: int, lines: int) -> None:
        self.pid = pid
        self.raw = bytearray()
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
                # pyte has no alternate screen; entering it clears the screen, which is enough
                self._stream.feed(content)

    @property
    def text(self) -> str:
        """The text on the screen."""
        with self._lock:
            return "\n".join(self._screen.display)

    def wait(self, *words: str, seconds: float = PATIENCE_S) -> str:
        """Wait until all of these texts are on the screen."""
        deadline = time.monotonic() + seconds
        while not all(word in self.text for word in words):
            missing = [word for word in words if word not in self.text]
            assert time.monotonic() < deadline, f"{missing} did not appear:\n{self.text}"
            time.sleep(0.02)
        return self.text

    def press(self, keys: str) -> None:
        """Send keys."""
        os.write(self._fd, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        """Change the size of the terminal."""
        with self._lock:
            self._screen.resize(lines, columns)
            self._screen.reset()
        set_size(self._fd, columns, lines)

    def settings(self) -> list[Any]:
        """Return the terminal attributes: echo, line mode, signals."""
        return termios.tcgetattr(self._fd)

    def wait_for_end(self, seconds: float = PATIENCE_S) -> int:
        """Wait for the end of the program; return its exit code, or the negative signal number."""
        deadline = time.monotonic() + seconds
        while self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
            assert time.monotonic() < deadline, f"the program did not end:\n{self.text}"
            time.sleep(0.01)
        self._reader.join(0.5)
        return self.status

    def count_redraws(self, seconds: float) -> tuple[int, float]:
        """Count the redraws in the next seconds; return also how many seconds it really were."""
        with self._lock:
            seen, began = len(self.raw), time.monotonic()
        time.sleep(seconds)
        with self._lock:
            lines = [int(line) for line in LINE_START.findall(self.raw, seen)]
            elapsed_s = time.monotonic() - began
        # Each redraw writes the lines that changed from top to bottom.
        return sum(after <= before for before, after in pairwise([1000, *lines])), elapsed_s


def set_size(fd: int, columns: int, lines: int) -> None:
    """Set the size of a terminal."""
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


@contextmanager
def open_farm_screen(
    *arguments: str | Path, columns: int = 80, lines: int = 24, **variables: str
) -> Iterator[PtyScreen]:
    """Run a farm command in its own terminal."""
    words = [sys.executable, "-m", "orchestrator", *map(str, arguments)]
    with open_screen(words, columns, lines, **variables) as screen:
        yield screen


@contextmanager
def open_screen(
    words: list[str], columns: int = 80, lines: int = 24, **variables: str
) -> Iterator[PtyScreen]:
    """Run a program in its own terminal."""
    environment = {**os.environ, "TERM": "xterm-256color", "TZ": "UTC", "HISTFILE": "", **variables}
    pid, fd = pty.fork()
    if pid == 0:
        set_size(0, columns, lines)
        os.chdir(ROOT)
        os.execve(words[0], words, environment)
    set_size(fd, columns, lines)
    screen = PtyScreen(pid, fd, columns, lines)
    try:
        yield screen
    finally:
        if screen.status is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(fd)
