"""What must not be shown: passwords of URLs, and control characters in a log."""

import io
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.supervisor.process import service_command
from workloads.lab.connection_url import without_password
from workloads.lab.logging_setup import SafeFormatter


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:secret@host:6379/0",
        "redis://:sec/secret@host:6379/0",
        "redis://user:s@secret@host:6379/0",
        "rediss://user:sec?secret@host:6379/0",
        "redis://host:6379/0?password=secret&db=1",
        "redis://:secret#x@host:6379/0",
        "unix://user:secret@/run/broker.sock?username=secret",
    ],
)
def test_a_password_is_not_shown_whatever_it_contains(url: str) -> None:
    shown = without_password(url)
    assert "secret" not in shown
    assert shown.startswith(url.partition("//")[0])


def test_a_log_line_is_one_line_without_control_characters() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(SafeFormatter("%(levelname)s %(message)s"))
    log = logging.getLogger("test.lines")
    log.addHandler(handler)
    log.warning("host=%s", "a\x1b[2J\nERROR forged\u202e")
    assert stream.getvalue() == "WARNING host=a[2J ERROR forged\n"


def test_a_service_does_not_import_from_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "workloads.py").write_text("raise SystemExit('the wrong module')\n")
    command = service_command("--version")
    assert command[0] == sys.executable
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
