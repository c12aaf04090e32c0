"""The process that runs a lab: its lock, starting it in the background, and stopping it.

The lock on the lab's folder decides whether a lab runs: the kernel releases it with the process
that holds it, however that ends. The file with the process id only identifies the process to stop,
so a stale one does no harm.
"""

import fcntl
import os
import pwd
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from orchestrator.app.app_errors import InvalidState, TimedOut
from orchestrator.supervisor.process import open_private
from workloads.lab.settings import Lab
from workloads.protocol.faults import FarmTrouble

PID_FILE = "lab.pid"
LOG_NAME = "up"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 120.0  # an agent restores every phone before it ends
POLL_INTERVAL_S = 0.1


@contextmanager
def lab_lock(lab: Lab) -> Iterator[None]:
    """Lock the lab folder: only one set of services may use it. What they write is private."""
    before = os.umask(0o077)
    lab.root.mkdir(parents=True, exist_ok=True)
    folder = os.open(lab.root, os.O_RDONLY)
    pid_file = lab.root / PID_FILE
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        pid_file.write_text(f"{os.getpid()}\n")
        try:
            yield
        finally:
            pid_file.unlink(missing_ok=True)
    except BlockingIOError:
        raise InvalidState(
            f"the lab in {lab.root} is already running; stop it with: farm down"
        ) from None
    finally:
        os.close(folder)
        os.umask(before)


def is_running(lab: Lab) -> bool:
    """Return whether a process holds the lock of the lab."""
    try:
        folder = os.open(lab.root, os.O_RDONLY)
    except FileNotFoundError:
        return False
    except PermissionError:
        raise InvalidState(f"the lab in {lab.root} belongs to {_owner(lab.root)}") from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(folder)
    return False


def refuse_if_running(lab: Lab) -> None:
    """Raise InvalidState if a process runs the lab."""
    if is_running(lab):
        raise InvalidState(f"the lab in {lab.root} is already running; stop it with: farm down")


def start_in_background(
    lab: Lab, command: Sequence[str], missing: Callable[[], Sequence[str]]
) -> tuple[int, Path]:
    """Start the process of a lab in its own session, and wait until no service is missing.

    Return its process id and its log file. If it ends instead, FarmTrouble has its last output.
    """
    refuse_if_running(lab)
    log_file = lab.log_file(LOG_NAME)
    log_file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(log_file, "ab", opener=open_private) as output:
        start = output.tell()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    deadline = time.monotonic() + START_TIMEOUT_S
    while names := missing():
        if process.poll() is not None:
            words = log_file.read_bytes()[start:].decode(errors="replace").strip().splitlines()
            raise FarmTrouble(words[-1].removeprefix("farm: ") if words else "it ended at once")
        if time.monotonic() > deadline:
            raise TimedOut(
                f"these do not answer after {START_TIMEOUT_S:.0f} s: {', '.join(names)}; see "
                f"{log_file.parent}, and stop the lab with: farm down"
            )
        time.sleep(POLL_INTERVAL_S)
    return process.pid, log_file


def stop_lab(lab: Lab) -> bool:
    """Stop the process that runs a lab and wait for its end; False if none runs."""
    if not is_running(lab):
        with suppress(OSError):  # left by a process that was killed
            (lab.root / PID_FILE).unlink(missing_ok=True)
        return False
    try:
        pid = int((lab.root / PID_FILE).read_text())
        os.kill(pid, signal.SIGTERM)
    except PermissionError:
        raise InvalidState(
            f"the lab in {lab.root} is run by {_owner(lab.root / PID_FILE)}, who can stop it"
        ) from None
    except (OSError, ValueError):
        raise InvalidState(
            f"the lab in {lab.root} runs, but {PID_FILE} does not name its process; stop it where "
            "it was started"
        ) from None
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while is_running(lab):
        if time.monotonic() > deadline:
            raise TimedOut(
                f"process {pid} did not stop within {STOP_TIMEOUT_S:.0f} s; see "
                f"{lab.log_file(LOG_NAME)}"
            )
        time.sleep(POLL_INTERVAL_S)
    return True


def _owner(path: Path) -> str:
    """Return the name of the user that a file belongs to."""
    try:
        return pwd.getpwuid(path.stat().st_uid).pw_name
    except (OSError, KeyError):
        return "another user"
