"""Child processes that never outlive their parent: not after Ctrl-C, not after kill -9."""

import ctypes
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

log = logging.getLogger("farm.lab")

STOP_S = 10.0
_PR_SET_PDEATHSIG = 1
# Found beforehand: between fork and exec nothing may be looked for, others may hold its locks.
_PRCTL = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


@contextmanager
def _signals_held() -> Iterator[None]:
    """Let signals wait: one that comes while Python forks would be swallowed by its fork hooks."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _die_with_parent() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if _PRCTL is not None:
        _PRCTL(_PR_SET_PDEATHSIG, signal.SIGTERM)


class ServiceProcess:
    """A service in a process of its own, its words in a file."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log_file: Path,
        cwd: Path | None = None,
        stop_s: float = STOP_S,
    ) -> None:
        self.name = name
        self.stop_s = stop_s
        self.log_file = log_file
        self._command = [str(part) for part in command]
        self._cwd = cwd
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it. Its own session, so that Ctrl-C reaches the parent alone, which stops it."""
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("ab") as output, _signals_held():
            self._process = subprocess.Popen(
                self._command,
                cwd=self._cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - two calls into the kernel
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def failed(self) -> bool:
        """Whether it gave up by itself; one that somebody ended did not."""
        code = self._process.poll() if self._process else None
        return code is not None and code > 0

    def last_words(self) -> str:
        """How it ended: the signal that killed it, or the last line it wrote."""
        code = self._process.poll() if self._process else None
        if code is not None and code < 0:
            return f"killed by {signal.Signals(-code).name}"
        lines = self.log_file.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def ask_to_stop(self) -> None:
        """Ask it to end."""
        if self._process is not None and self.alive:
            self._process.terminate()

    def wait(self, deadline: float) -> None:
        """Wait for its end until the (monotonic) deadline, then make it end."""
        if self._process is None:
            return
        try:
            self._process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            log.warning("%s did not stop and is killed", self.name)
            self._process.kill()
            self._process.wait()


def stop_on_signals() -> None:
    """Let both signals end this process in an orderly way, also where SIGINT came in ignored."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)


def stop_all(children: Sequence[ServiceProcess]) -> None:
    """Stop children in reverse order of their start: who depends on others goes first."""
    for child in reversed(children):
        child.ask_to_stop()
        child.wait(time.monotonic() + child.stop_s)


def service_command(*arguments: str | Path) -> list[str]:
    """How a farm service is started: this Python, this farm."""
    return [sys.executable, "-m", "orchestrator", *map(str, arguments)]
