"""Runs farm commands through main() in the process of the tests, which is much faster."""

import io
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from unittest.mock import patch

import pytest

from orchestrator.cli import main


class Terminal(io.TextIOWrapper):
    """A stream that looks like a terminal."""

    def isatty(self) -> bool:
        """Whether people look at it."""
        return True


def run_in_process(*words: str, columns: int = 0) -> tuple[int, str, str]:
    """Run a command through main() in this process; return exit code, stdout and stderr.

    With columns, it runs as if at a terminal of that width.
    """
    kind = Terminal if columns else io.TextIOWrapper
    out, err = (kind(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    argv, sys.argv = sys.argv, ["farm", *words]
    changed = {"COLUMNS": str(columns), "NO_COLOR": "1", "TERM": "xterm"} if columns else {}
    try:
        with (
            patch.dict(os.environ, changed),
            redirect_stdout(out),
            redirect_stderr(err),
            pytest.raises(SystemExit) as exited,
        ):
            main()
    finally:
        sys.argv = argv
    return int(exited.value.code or 0), written_to(out), written_to(err)


def written_to(stream: io.TextIOWrapper) -> str:
    """Return what was written to a stream."""
    stream.seek(0)
    return stream.read()
