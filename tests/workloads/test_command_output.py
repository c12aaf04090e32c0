"""Texts name commands as the reader types them, and long waits say what they wait for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from workloads.command_output import VARIABLE, as_typed, show_wait

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("start it with 'farm up'", "start it with './farm up'"),
        ("see: farm phone list", "see: ./farm phone list"),
        ("run `farm doctor`, then farm up", "run `./farm doctor`, then farm up"),
        ("    farm watch smoke", "    ./farm watch smoke"),
        ("undo: farm sweep resume s1", "undo: ./farm sweep resume s1"),
        # for another computer, in a checkout already, or no command at all
        ("FARM_TOKEN=x farm host join URL", "FARM_TOKEN=x farm host join URL"),
        ("./farm up", "./farm up"),
        ("a farm of phones", "a farm of phones"),
        ("farm: 1", "farm: 1"),
    ],
)
def test_a_text_names_the_command_of_a_checkout(
    text: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert as_typed(text) == text
    monkeypatch.setenv(VARIABLE, "./farm")
    assert as_typed(text) == expected
    assert as_typed(as_typed(text)) == expected


def run(*words: str, called: str) -> subprocess.CompletedProcess[str]:
    """Run the command as if it had been called by this name."""
    command = [sys.executable, "-m", "orchestrator", *words]
    variables = {**os.environ, VARIABLE: called}
    return subprocess.run(
        command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("called", ["./farm", "farm"])
def test_helps_and_errors_name_the_command_as_it_was_called(called: str, tmp_path: Path) -> None:
    shown = run("phone", "connect", "--help", called=called).stdout
    assert f"Usage: {called} phone connect" in shown
    assert f"  {called} phone connect 192.168.1.23\n" in shown
    assert f"'{called} phone connect --off'" in " ".join(shown.split())
    refused = run("sweep", "list", "--lab", str(tmp_path / "none"), called=called)
    assert refused.returncode
    assert f"'{called} up" in refused.stderr
    renamed = run("agent", "list", called=called)
    assert f"is now '{called} host list'" in renamed.stderr


WAITING = """if True:
    import sys
    from workloads.command_output import show_wait

    awaited = iter(["the broker", "the broker", *["phones: 2 connected"] * 1000])
    read = lambda: next(awaited)
    with show_wait(read, silent_s=0):
        sys.stdin.readline()
    with show_wait("nothing", silent_s=60):
        pass
"""


def test_a_long_wait_says_what_it_waits_for_and_when_that_changes() -> None:
    screen, terminal = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", WAITING], cwd=ROOT, stdin=subprocess.PIPE, stderr=terminal
    ) as process:
        os.close(terminal)
        shown = b""
        while b"connected" not in shown:
            shown += os.read(screen, 1000)
        process.communicate(b"\n")
    os.close(screen)
    assert shown.decode().splitlines() == [
        *("waiting for the broker", "waiting for phones: 2 connected"),
    ]


def test_a_pipe_is_told_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with show_wait("anything", silent_s=0):
        pass
    assert capsys.readouterr().err == ""
