"""Child processes that end with their parent, also after Ctrl-C and after kill -9."""

import ctypes
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

log = logging.getLogger("farm.lab")

STOP_TIMEOUT_S = 10.0
_PR_SET_PDEATHSIG = 1
# Looked up before the fork: between fork and exec the loader's locks may be held.
_PRCTL = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


@contextmanager
def block_signals() -> Iterator[None]:
    """Delay SIGINT and SIGTERM to the end of the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _die_with_parent() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if _PRCTL is not None:
        _PRCTL(_PR_SET_PDEATHSIG, signal.SIGTERM)


def open_private(path: str, flags: int) -> int:
    """Open a file that only its owner can read; an `opener` for open()."""
    return os.open(path, flags, 0o600)


class ServiceProcess:
    """A service in its own process, with its output in a log file."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log_file: Path,
        cwd: Path | None = None,
        stop_timeout_s: float = STOP_TIMEOUT_S,
    ) -> None:
        self.name = name
        self.stop_timeout_s = stop_timeout_s
        self.log_file = log_file
        self._command = [str(part) for part in command]
        self._cwd = cwd
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process in its own session: Ctrl-C reaches only the parent, which stops it."""
        self.log_file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # A signal that arrives during the fork would be lost in Python's fork hooks.
        with open(self.log_file, "ab", opener=open_private) as output, block_signals():
            self._process = subprocess.Popen(
                self._command,
                cwd=self._cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - only two system calls
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def failed(self) -> bool:
        """Whether the process ended with its own error, not by a signal."""
        code = self._process.poll() if self._process else None
        return code is not None and code > 0

    def end_reason(self) -> str:
        """Return how the process ended: the signal that killed it, or its last log line."""
        code = self._process.poll() if self._process else None
        if code is not None and code < 0:
            return f"killed by {signal.Signals(-code).name}"
        lines = self.log_file.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "no output"

    def rotate_log(self, bytes_max: int) -> None:
        """Start a new log file if the present one is too long; keep two older ones.

        The process keeps its open file, so the content is copied and the file emptied. It was
        opened for appending: what is written next begins at its start.
        """
        try:
            if self.log_file.stat().st_size <= bytes_max:
                return
            first, second = (Path(f"{self.log_file}.{age}") for age in (1, 2))
            if first.exists():
                first.replace(second)
            with open(first, "wb", opener=open_private) as copy, self.log_file.open("rb") as now:
                shutil.copyfileobj(now, copy)
            os.truncate(self.log_file, 0)
        except OSError as error:  # e.g. the disk is full
            log.warning("the log of %s cannot be rotated: %s", self.name, error)

    def terminate(self) -> None:
        """Send SIGTERM."""
        if self._process is not None and self.alive:
            self._process.terminate()

    def wait(self, deadline: float) -> None:
        """Wait for the end of the process until a (monotonic) deadline, then kill it."""
        if self._process is None:
            return
        try:
            self._process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            log.warning("%s did not stop in time and was killed", self.name)
            self._process.kill()
            self._process.wait()


def stop_on_signals() -> None:
    """Handle SIGINT and SIGTERM as KeyboardInterrupt, also if SIGINT was ignored."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)


def stop_all(processes: Sequence[ServiceProcess]) -> None:
    """Stop processes in reverse order of their start, dependent ones first; agents together."""
    for _, group in groupby(reversed(processes), lambda process: process.name.partition("-")[0]):
        together = list(group)
        for process in together:
            process.terminate()
        for process in together:
            process.wait(time.monotonic() + process.stop_timeout_s)


def service_command(*arguments: str | Path) -> list[str]:
    """Return the command that runs `farm` with this Python."""
    # -P: a file of the current folder, e.g. workloads.py, must not take the place of a module.
    return [sys.executable, "-P", "-m", "orchestrator", *map(str, arguments)]
