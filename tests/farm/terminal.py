"""The farm as a user starts it: commands in a folder, and what they leave running."""

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from orchestrator.cli import main
from tests.farm.conftest import ROOT, wait_for

MAIN = [sys.executable, "-m", "orchestrator"]


def start(folder: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    """Start a farm command in a folder, as a user in a terminal of their own would."""
    return subprocess.Popen(
        [*MAIN, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def in_this_process(*words: str) -> tuple[int, str, str]:
    """Run a command here, through its real front door: exit code, stdout, stderr."""
    out, err = io.StringIO(), io.StringIO()
    argv, sys.argv = sys.argv, ["farm", *words]
    try:
        with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
            main()
    finally:
        sys.argv = argv
    return int(ended.value.code or 0), out.getvalue(), err.getvalue()


def processes_of(folder: Path) -> list[str]:
    """Processes that have anything to do with a folder: by command, working folder or HOME."""
    return list(_processes_of(folder).values())


def pids_of(folder: Path, word: str) -> list[int]:
    """Those of them with a word in their command."""
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


def nothing_left(folder: Path) -> None:
    """No process and no lock outlives a lab."""
    wait_for(
        lambda: not processes_of(folder / "lab"), f"all gone: {processes_of(folder / 'lab')}", 5
    )
    assert not list(folder.rglob("*.sock"))
