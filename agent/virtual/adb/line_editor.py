"""A terminal of the simplest kind between a person and the shell: echo, backspace, ^C, ^D, history.

Only an interactive `adb shell` gets one; whatever is automated never sees it.
"""

from collections.abc import Callable

from agent.virtual.shell.streams import Pipe, Sink

_INTERRUPT, _END, _KILL_LINE = 0x03, 0x04, 0x15
_ESCAPE = 0x1B
_UP, _DOWN = b"\x1b[A", b"\x1b[B"
_HISTORY_MAX = 200
_BACKSPACE = (0x08, 0x7F)


class TerminalSink:
    """Turns newlines into what a raw terminal on the other side expects."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, chunk: bytes) -> None:
        self._sink.write(chunk.replace(b"\n", b"\r\n"))

    async def drain(self) -> None:
        await self._sink.drain()

    def hold(self) -> None:
        self._sink.hold()

    def release(self) -> None:
        self._sink.release()


class Keyboard:
    """Keys in, whole lines out."""

    def __init__(self, stdin: Pipe, echo: Sink, interrupt: Callable[[], None]) -> None:
        self._stdin = stdin
        self._echo = echo
        self._interrupt = interrupt
        self._line = bytearray()
        self._history: list[bytes] = []
        self._back = 0  # how far back in it the person has gone
        self._escape = b""  # an escape sequence in the making

    def type(self, keys: bytes) -> bool:
        """Take keys; False once the person has said goodbye."""
        for key in keys:
            if key == _END and not self._line:
                return False
            self._press(key)
        return True

    def _press(self, key: int) -> None:
        if self._escape or key == _ESCAPE:
            self._escaped(key)
        elif key in b"\r\n":
            self._echo.write(b"\n")
            self._stdin.write(bytes(self._line) + b"\n")
            if self._line.strip():
                self._history = [*self._history[-_HISTORY_MAX:], bytes(self._line)]
            self._line.clear()
            self._back = 0
        elif key in _BACKSPACE:
            if self._line:
                self._line.pop()
                self._echo.write(b"\b \b")
        elif key == _INTERRUPT:
            self._echo.write(b"^C\n")
            self._line.clear()
            self._interrupt()
        elif key == _KILL_LINE:
            self._replace(b"")
        elif key >= 0x20 or key == 0x09:
            self._line.append(key)
            self._echo.write(bytes([key]))

    def _escaped(self, key: int) -> None:
        """Cursor keys: up and down go through the history, the others do nothing."""
        self._escape += bytes([key])
        if self._escape in (b"\x1b", b"\x1b[", b"\x1bO") or not 0x40 <= key <= 0x7E:
            return
        sequence, self._escape = self._escape.replace(b"O", b"["), b""
        if sequence in (_UP, _DOWN):
            self._back += 1 if sequence == _UP else -1
            self._back = min(max(self._back, 0), len(self._history))
            self._replace(self._history[-self._back] if self._back else b"")

    def _replace(self, line: bytes) -> None:
        self._echo.write(b"\b \b" * len(self._line) + line)
        self._line[:] = line
