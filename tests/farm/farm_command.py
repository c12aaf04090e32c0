"""Runs farm commands through main() in the process of the tests, which is much faster."""

import io
import sys
from contextlib import redirect_stderr, redirect_stdout

import pytest

from orchestrator.cli import main


def run_in_process(*words: str) -> tuple[int, str, str]:
    """Run a command through main() in this process; return exit code, stdout and stderr."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    argv, sys.argv = sys.argv, ["farm", *words]
    try:
        with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as exited:
            main()
    finally:
        sys.argv = argv
    return int(exited.value.code or 0), written_to(out), written_to(err)


def written_to(stream: io.TextIOWrapper) -> str:
    """Return what was written to a stream."""
    stream.seek(0)
    return stream.read()
