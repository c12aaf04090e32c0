"""`runner wait` where the kernel refuses pidfd_open, as those before Linux 5.3 do."""

import ctypes
import errno
import os
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from kernels.runner_builds import runner_for
from tests.busy_computer import needs_x86

pytestmark = needs_x86
NOBODY = 65534
PIDFD_OPEN = 434
# A seccomp filter is a program: load the number of the call, compare it, return the verdict.
LOAD, IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, FAIL = 0x7FFF0000, 0x00050000
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, FILTER = 22, 38, 2

Start = Callable[..., subprocess.Popen[bytes]]


def refuse_pidfd_open(error: int) -> None:
    """Make pidfd_open fail with this error, in this process and in what it executes."""
    refused = [(LOAD, 0, 0, 0), (IF_EQUAL, 0, 1, PIDFD_OPEN), (RETURN, 0, 0, FAIL | error)]
    steps = [*refused, (RETURN, 0, 0, ALLOW)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    for words in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, FILTER, program, 0, 0)):
        if libc.prctl(*words) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


@pytest.fixture(params=[errno.ENOSYS, errno.EPERM], ids=["ENOSYS", "EPERM"])
def start_wait(request: pytest.FixtureRequest) -> Iterator[Start]:
    """Return how to start `runner wait` where pidfd_open fails."""
    started: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as folder:
        runner = Path(folder, "runner")
        runner.write_bytes(runner_for("x86_64").content)
        for path in (runner, runner.parent):  # pytest's folders are closed to other users
            path.chmod(0o755)

        def start(*words: object, user: int | None = None) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(
                [runner, "wait", *map(str, words)],
                stdout=subprocess.PIPE,
                user=user,
                preexec_fn=partial(refuse_pidfd_open, request.param),  # noqa: PLW1509
            )
            started.append(process)
            return process

        yield start
        for process in started:
            process.kill()
            process.communicate()


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()


def test_it_looks_until_the_process_is_reaped_or_a_zombie(
    start_wait: Start, sleeper: subprocess.Popen[bytes]
) -> None:
    wait = start_wait(sleeper.pid, "--seconds", 1000)
    assert is_alive_after(wait, 0.3)
    sleeper.kill()  # not reaped: a zombie
    assert (wait.communicate(timeout=300)[0], wait.returncode) == (b"", 0)
    sleeper.wait()
    assert start_wait(sleeper.pid, "--seconds", 1000).wait(300) == 0


def test_it_ends_after_the_seconds(start_wait: Start, sleeper: subprocess.Popen[bytes]) -> None:
    began = time.monotonic()
    assert start_wait(sleeper.pid, "--seconds", 0.3).wait(300) == 0
    assert time.monotonic() - began >= 0.3
    assert sleeper.poll() is None


@pytest.mark.skipif(os.getuid() != 0, reason="only root can start a program of another user")
def test_a_process_of_another_user_is_alive(
    start_wait: Start, sleeper: subprocess.Popen[bytes]
) -> None:
    wait = start_wait(sleeper.pid, "--seconds", 1000, user=NOBODY)
    assert is_alive_after(wait, 0.3)


def is_alive_after(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return True
    return False
