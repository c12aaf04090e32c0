"""The terminal: reads single keys, writes only lines that changed, and is always restored.

Whatever ends the screen (a key, an error, SIGTERM, Ctrl-C, Ctrl-Z), the cursor, the shell's text
and the echo of typed characters are restored.
"""

import os
import select
import signal
import termios
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from rich.console import Console
from rich.style import Style
from rich.text import Text

from orchestrator.tui.text_cells import in_ascii

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"  # alternate screen, no cursor, no wrapping
_LEAVE = "\x1b[?7h\x1b[?25h\x1b[0m\x1b[?1049l"
SIZE_MAX = 1000


class Terminal:
    """A terminal in cbreak mode, drawn line by line."""

    def __init__(self, keys: int, out: int, ascii_only: bool = False) -> None:
        self._keys = keys
        self._out = out
        self._ascii = ascii_only
        self._console = Console(
            file=os.fdopen(os.dup(out), "w", encoding="utf-8"), force_terminal=True, highlight=False
        )
        self._style_codes: dict[Style | None, tuple[str, str]] = {}
        self._drawn: list[Text] = []
        self._before: list[Any] = []
        self._wake_read, self._wake_write = os.pipe()
        for end in (self._wake_read, self._wake_write):
            os.set_blocking(end, False)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Take over the terminal, and always restore it."""
        self._before = termios.tcgetattr(self._keys)
        old = {
            # Also if SIGINT was ignored, as in a process that a script started in the background.
            signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
            signal.SIGTERM: signal.signal(signal.SIGTERM, self._on_end),
            signal.SIGHUP: signal.signal(signal.SIGHUP, self._on_end),
            signal.SIGTSTP: signal.signal(signal.SIGTSTP, self._on_stop),
            signal.SIGWINCH: signal.signal(signal.SIGWINCH, lambda *_: self.wake()),
        }
        try:
            self._enter()
            yield
        finally:
            self._restore()
            for number, handler in old.items():
                signal.signal(number, handler)

    def size(self) -> tuple[int, int]:
        """Return the current columns and lines."""
        columns, lines = os.get_terminal_size(self._out)
        return max(1, min(columns, SIZE_MAX)), max(1, min(lines, SIZE_MAX))

    def read(self, wait_s: float) -> bytes:
        """Return typed bytes; wait for them, for wake(), or until the time is over."""
        try:
            ready, _, _ = select.select([self._keys, self._wake_read], [], [], max(0.0, wait_s))
            if self._wake_read in ready:
                os.read(self._wake_read, 4096)
            if self._keys not in ready:
                return b""
            typed = os.read(self._keys, 1024)
        except InterruptedError:
            return b""
        if not typed:
            raise EOFError("the terminal was closed")
        return typed

    def wake(self) -> None:
        """Make a waiting read() return; callable from any thread."""
        with suppress(BlockingIOError):
            os.write(self._wake_write, b"!")

    def draw(self, lines: Sequence[Text]) -> int:
        """Draw the lines; only those that changed are written."""
        shown = [in_ascii(text) for text in lines] if self._ascii else list(lines)
        if len(shown) != len(self._drawn):
            self._drawn = []
        written = []
        for index, text in enumerate(shown):
            if index < len(self._drawn) and self._drawn[index] == text:
                continue
            written.append(f"\x1b[{index + 1};1H{self._render(text)}")
        self._drawn = shown
        if written:
            self._write("".join(written))
        return len(written)

    def forget(self) -> None:
        """Clear the screen, so that every line is drawn again."""
        self._drawn = []
        self._write("\x1b[2J")

    def _render(self, text: Text) -> str:
        parts: list[str] = []
        for content, style, _ in text.render(self._console):
            before, after = self._codes(style)
            parts += before, content, after
        return "".join(parts)

    def _codes(self, style: Style | None) -> tuple[str, str]:
        """Return the escape sequences before and after a styled text, rendered once per style."""
        if style not in self._style_codes:
            with self._console.capture() as capture:
                self._console.print(Text("x", style or "", end=""), end="")
            before, _, after = capture.get().partition("x")
            self._style_codes[style] = before, after
        return self._style_codes[style]

    def _enter(self) -> None:
        tty.setcbreak(self._keys)
        self._write(_ENTER)
        self._drawn = []

    def _restore(self) -> None:
        with suppress(OSError):
            self._write(_LEAVE)
        with suppress(termios.error):
            termios.tcsetattr(self._keys, termios.TCSADRAIN, self._before)

    def _write(self, text: str) -> None:
        content = text.encode("utf-8", "replace")
        while content:
            try:
                content = content[os.write(self._out, content) :]
            except BlockingIOError:  # a slow connection; wait until it accepts more
                select.select([], [self._out], [], 1.0)

    def _on_end(self, number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        """On Ctrl-Z, restore the terminal, stop, and take it over again when continued."""
        self._restore()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._on_stop)
        self._enter()
        self.wake()
