"""A lab in the background: starting and stopping it, and its logs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.app.app_errors import InvalidState
from orchestrator.commands.logs import LogTail, find_logs
from orchestrator.supervisor.lab_process import (
    PID_FILE,
    is_running,
    lab_lock,
    start_in_background,
    stop_lab,
)
from tests.farm.terminal import check_nothing_left, start
from workloads.lab.settings import Lab
from workloads.protocol.faults import FarmTrouble, InvalidRequest

HOLDER = """
import pathlib, signal, sys, time
from orchestrator.supervisor.lab_process import lab_lock
from orchestrator.supervisor.process import stop_on_signals
from workloads.lab.settings import Lab
stop_on_signals()
try:
    with lab_lock(Lab.read(pathlib.Path(sys.argv[1]), {})):
        time.sleep(60)
except KeyboardInterrupt:
    pass
"""


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """A lab that does not run."""
    return Lab.read(tmp_path / "lab", {})


def test_a_lab_in_the_background_is_started_once_and_stopped_once(lab: Lab) -> None:
    command = [sys.executable, "-c", HOLDER, str(lab.root)]
    pid, _ = start_in_background(lab, command, lambda: () if is_running(lab) else ("lock",))
    with pytest.raises(InvalidState, match="is already running; stop it with: farm down"):
        start_in_background(lab, command, lambda: ())
    assert int((lab.root / PID_FILE).read_text()) == pid
    assert stop_lab(lab)
    assert not (lab.root / PID_FILE).exists()
    assert not stop_lab(lab)
    os.waitpid(pid, 0)


def test_a_stale_process_id_stops_nothing(lab: Lab) -> None:
    lab.root.mkdir()
    other = subprocess.Popen(["sleep", "60"])
    try:
        (lab.root / PID_FILE).write_text(f"{other.pid}\n")  # as after kill -9 and a reboot
        assert not stop_lab(lab)
        assert other.poll() is None
        assert not (lab.root / PID_FILE).exists()
    finally:
        other.kill()
        other.wait()


def test_a_lock_without_a_process_id_is_one_sentence(lab: Lab) -> None:
    with lab_lock(lab):
        (lab.root / PID_FILE).write_text("nonsense")
        with pytest.raises(InvalidState, match="stop it where it was started"):
            stop_lab(lab)


def test_a_lab_that_ends_at_once_gives_the_reason(lab: Lab) -> None:
    command = [sys.executable, "-c", "raise SystemExit('farm: the store is locked')"]
    with pytest.raises(FarmTrouble, match="^the store is locked$"):
        start_in_background(lab, command, lambda: ("scheduler",))


def test_a_log_is_followed_also_after_it_was_replaced(tmp_path: Path) -> None:
    file = tmp_path / "agent-a.log"
    file.write_text("one\ntwo\nthr")
    tail = LogTail(file, lines=1)
    assert list(tail.read()) == ["two"]
    with file.open("a") as stream:
        stream.write("ee\n")
    assert list(tail.read()) == ["three"]
    file.unlink()
    assert list(tail.read()) == []
    file.write_text("new\n")
    assert list(tail.read()) == ["new"]


def test_a_log_is_found_by_the_name_of_its_service(tmp_path: Path) -> None:
    for name in ("agent-a", "agent-b", "scheduler"):
        (tmp_path / f"{name}.log").touch()
    assert [file.stem for file in find_logs(tmp_path, "agent")] == ["agent-a", "agent-b"]
    assert len(find_logs(tmp_path, "")) == 3
    with pytest.raises(InvalidRequest, match="choose from agent-a, agent-b, scheduler"):
        find_logs(tmp_path, "nosuch")


@pytest.mark.slow
def test_farm_up_d_runs_a_lab_until_farm_down(tmp_path: Path) -> None:
    def farm(*words: str, code: int = 0) -> str:
        command = start(tmp_path, *words, "--lab", str(tmp_path / "lab"))
        out, err = command.communicate(timeout=300)
        assert command.returncode == code, err
        return out + err

    assert "is not running" in farm("down", code=6)
    said = farm("up", "-d", "--virtual", "--speed", "50")
    try:
        assert "6 phones connected." in said
        assert "stop it with: farm down" in said
        phones = json.loads(farm("phone", "list", "--json"))  # at once, without waiting
        assert [phone["status"]["state"] for phone in phones] == ["idle"] * 6
        assert "is already running" in farm("up", "-d", code=7)
        assert "agent started" in farm("logs", "agent")
    finally:
        assert "queued runs stay queued" in farm("down")
    logs = [file.read_text() for file in (tmp_path / "lab" / "logs").glob("*.log")]
    assert len(logs) > 4
    assert not any("shutdown (MainProcess)" in text for text in logs)  # Celery's own line
    check_nothing_left(tmp_path)
