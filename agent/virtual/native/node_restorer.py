"""The restorer: a process that gives the nodes their old values when the phone's process has ended.

It starts before the first change. Whatever ends the phone's process, SIGKILL included, closes the
restorer's stdin; then it writes the old values and exits. This file imports nothing of this
project, so that it runs alone.
"""

import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

_CHANGED, _RESTORED = "changed", "restored"
_EXIT_TIMEOUT_S = 5.0


class NodeRestorer:
    """The restorer as the phone's process sees it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._old_values: dict[Path, str] = {}

    def record_change(self, path: Path, old: str) -> None:
        """Hand over the old value of a node, before it is changed; OSError if that fails."""
        if path in self._old_values:
            return
        self._old_values[path] = old
        try:
            self._send(f"{_CHANGED}\t{path}\t{old}\n")
        except OSError:
            self._start()  # there is none yet, or it was killed

    def record_restored(self, path: Path) -> None:
        """Hand over that a node has its old value again."""
        if self._old_values.pop(path, None) is not None:
            with suppress(OSError):
                self._send(f"{_RESTORED}\t{path}\n")

    def close(self) -> None:
        """Let it restore what is still changed, and wait until it has exited."""
        process, self._process = self._process, None
        self._old_values.clear()
        if process is not None and process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_EXIT_TIMEOUT_S)

    def _send(self, line: str) -> None:
        if self._process is None or self._process.stdin is None:
            raise BrokenPipeError
        self._process.stdin.write(line.encode())
        self._process.stdin.flush()

    def _start(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        command = [sys.executable, "-I", __file__]
        # In its own session, a Ctrl-C in the terminal does not reach it.
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        for path, old in self._old_values.items():
            self._send(f"{_CHANGED}\t{path}\t{old}\n")


def restore_at_end_of_input() -> None:
    """Follow the changes on stdin; at its end restore what is changed, the last change first."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    changed: dict[str, str] = {}
    for line in sys.stdin:
        event, path, *old = line.rstrip("\n").split("\t")
        if event == _CHANGED and old:
            changed.setdefault(path, old[0])
        elif event == _RESTORED:
            changed.pop(path, None)
    for path, old_value in reversed(changed.items()):
        with suppress(OSError):
            Path(path).write_text(f"{old_value}\n", encoding="ascii")


if __name__ == "__main__":
    restore_at_end_of_input()
