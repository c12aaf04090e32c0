"""A minimal terminal for interactive `adb shell`: echo, backspace, ^C, ^D and history.

Automated shells do not use it.
"""

from collections.abc import Callable

from agent.virtual.shell.byte_streams import BytePipe, ByteSink, FilteredSink

_INTERRUPT, _END, _KILL_LINE = 0x03, 0x04, 0x15
_ESCAPE = 0x1B
_UP, _DOWN = b"\x1b[A", b"\x1b[B"
_HISTORY_MAX = 200
_BACKSPACE = (0x08, 0x7F)


class TerminalSink(FilteredSink):
    """Turns newlines into CR LF, which a raw terminal expects."""

    def write(self, chunk: bytes) -> None:
        self._sink.write(chunk.replace(b"\n", b"\r\n"))


class LineEditor:
    """Turns keys into whole lines."""

    def __init__(self, stdin: BytePipe, echo: ByteSink, interrupt: Callable[[], None]) -> None:
        self._stdin = stdin
        self._echo = echo
        self._interrupt = interrupt
        self._line = bytearray()
        self._history: list[bytes] = []
        self._history_offset = 0  # how many entries back the user is in the history
        self._escape_sequence = b""  # the part of an escape sequence received so far

    def feed_keys(self, keys: bytes) -> bool:
        """Handle keys; return False after ^D on an empty line."""
        for key in keys:
            if key == _END and not self._line:
                return False
            self._handle_key(key)
        return True

    def _handle_key(self, key: int) -> None:
        if self._escape_sequence or key == _ESCAPE:
            self._handle_escape(key)
        elif key in b"\r\n":
            self._echo.write(b"\n")
            self._stdin.write(bytes(self._line) + b"\n")
            if self._line.strip():
                self._history = [*self._history[-_HISTORY_MAX:], bytes(self._line)]
            self._line.clear()
            self._history_offset = 0
        elif key in _BACKSPACE:
            if self._line:
                self._line.pop()
                self._echo.write(b"\b \b")
        elif key == _INTERRUPT:
            self._echo.write(b"^C\n")
            self._line.clear()
            self._interrupt()
        elif key == _KILL_LINE:
            self._replace_line(b"")
        elif key >= 0x20 or key == 0x09:
            self._line.append(key)
            self._echo.write(bytes([key]))

    def _handle_escape(self, key: int) -> None:
        """Handle cursor keys: up and down walk the history, the others do nothing."""
        self._escape_sequence += bytes([key])
        if self._escape_sequence in (b"\x1b", b"\x1b[", b"\x1bO") or not 0x40 <= key <= 0x7E:
            return
        sequence, self._escape_sequence = self._escape_sequence.replace(b"O", b"["), b""
        if sequence in (_UP, _DOWN):
            self._history_offset += 1 if sequence == _UP else -1
            self._history_offset = min(max(self._history_offset, 0), len(self._history))
            self._replace_line(
                self._history[-self._history_offset] if self._history_offset else b""
            )

    def _replace_line(self, line: bytes) -> None:
        self._echo.write(b"\b \b" * len(self._line) + line)
        self._line[:] = line
