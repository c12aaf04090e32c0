"""Runs farm commands in a folder, and finds the processes that they leave running."""

import os
import subprocess
import sys
from pathlib import Path

from tests.farm.conftest import ROOT, wait_for

MAIN = [sys.executable, "-m", "orchestrator"]


def start(folder: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    """Start a farm command in a folder, in its own session."""
    return subprocess.Popen(
        [*MAIN, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def processes_of(folder: Path) -> list[str]:
    """Return the commands of processes that use a folder: by command, working folder or HOME."""
    return list(_processes_of(folder).values())


def pids_of(folder: Path, word: str) -> list[int]:
    """Return the ids of processes that use a folder and have a word in their command."""
    return [pid for pid, command in _processes_of(folder).items() if word in command]


def _processes_of(folder: Path) -> dict[int, str]:
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = process.joinpath("cmdline").read_bytes()
            words = command + process.joinpath("environ").read_bytes()
            where = bytes(process.joinpath("cwd").readlink())
        except OSError:
            continue
        if int(process.name) != os.getpid() and os.fsencode(folder) in words + where:
            found[int(process.name)] = command.replace(b"\0", b" ").decode()
    return found


def check_nothing_left(folder: Path) -> None:
    """Check that neither a process nor a socket of a lab is left."""
    wait_for(
        lambda: not processes_of(folder / "lab"),
        f"these processes end: {processes_of(folder / 'lab')}",
        60,
    )
    assert not list(folder.rglob("*.sock"))
