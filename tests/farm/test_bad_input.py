"""Bad input: one line of text, the documented exit code, no traceback, and nothing is stored."""

import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.commands.common import print_json
from orchestrator.store.sweep_queries import sweep_summaries
from orchestrator.supervisor.lab_process import lab_lock
from orchestrator.supervisor.services import services
from tests.farm.conftest import Farm, run_farm, wait_for
from workloads.lab.settings import Lab

GOOD = "farm: 1\nname: good\nworkload: noop\nphones: all\nrepeat: 1\n"


def check_no_traceback(text: str) -> None:
    """Check that an output has neither a traceback nor the message of an internal error."""
    assert "Traceback" not in text
    assert "this is a bug" not in text


def stored_sweeps(farm: Farm) -> set[str]:
    """Return the names of the sweeps in the store."""
    return {summary.name.lower() for summary in sweep_summaries(farm.db)}


def test_a_malformed_sweep_is_refused_with_every_mistake_and_not_stored(
    farm: Farm, tmp_path: Path
) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("farm: 1\nname: Bad\nworkload: noop\nphone: all\nrepeat: 1\nrepeat: 2\n")
    for arguments in (
        ("sweep", "validate", file),
        ("sweep", "submit", file, "--lab", farm.lab.root),
    ):
        result = run_farm(*arguments)
        assert result.returncode == 3
        for where in (f"{file}:2:7:", f"{file}:4:1:", f"{file}:6:1:"):
            assert where in result.stderr
        assert ("Nothing was submitted." in result.stderr) == ("submit" in arguments)
        check_no_traceback(result.stderr)
    assert "bad" not in stored_sweeps(farm)


def test_a_sweep_without_matching_phones_gives_the_reason_per_phone(
    farm: Farm, tmp_path: Path
) -> None:
    file = tmp_path / "unmatched.yaml"
    file.write_text(GOOD.replace("phones: all", "phones: [pixel*]").replace("good", "unmatched"))
    result = farm.command("sweep", "submit", file)
    assert result.returncode == 6
    for serial in farm.idle_phones():
        assert f"  {serial}: " in result.stderr
    check_no_traceback(result.stderr)
    assert "unmatched" not in stored_sweeps(farm)


def test_a_broker_that_does_not_answer_is_one_line(lab: Lab, tmp_path: Path) -> None:
    file = tmp_path / "good.yaml"
    file.write_text(GOOD)
    with services(lab) as processes:
        farm = Farm(lab, processes)
        broker = farm.processes["broker"]
        os.kill(broker.pid, signal.SIGKILL)
        wait_for(lambda: not broker.alive, "the broker is dead")
        for arguments in (("status",), ("phone", "list"), ("watch",), ("sweep", "submit", file)):
            result = farm.command(*arguments)
            assert result.returncode == 4, arguments
            assert "its broker does not answer; start the lab with 'farm up" in result.stderr
            assert "--lab or FARM_LAB" in result.stderr
            assert result.stderr.strip().count("\n") + 1 == 1
            check_no_traceback(result.stderr)
        assert not stored_sweeps(farm)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("status",), 4, "has no store yet"),  # there is no lab
        (("sweep", "submit", "FILE"), 4, "is not up"),  # a good file, but no lab
        (("export", "sw-1"), 4, "has no store yet"),
        (("sweep", "validate", "missing.yaml"), 2, "missing.yaml cannot be read"),
        (("sweep", "frobnicate"), 2, "No such command"),
        (("frobnicate",), 2, "No such command"),
    ],
)
def test_a_wrong_command_is_refused(
    tmp_path: Path, arguments: tuple[str, ...], code: int, text: str
) -> None:
    file = tmp_path / "good.yaml"
    file.write_text(GOOD)
    words = [str(file) if word == "FILE" else word for word in arguments]
    takes_lab = words[0] in ("status", "export") or words[:2] == ["sweep", "submit"]
    result = run_farm(*words, *(("--lab", tmp_path / "none") if takes_lab else ()))
    assert (result.returncode, text in result.stderr) == (code, True), result.stderr
    assert ("--lab or FARM_LAB" in result.stderr) == takes_lab
    check_no_traceback(result.stderr)
    assert not (tmp_path / "none").exists()


def test_two_agents_of_one_name_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "agents" / "host-a"
    folder.mkdir(parents=True)
    lock = os.open(folder, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    result = run_farm("service", "agent", "--lab", tmp_path, "--host", "host-a")
    os.close(lock)
    assert (result.returncode, "already runs in" in result.stderr) == (4, True)


@pytest.mark.parametrize("name", ["LabPC", "../x", "a b"])
def test_a_bad_host_name_is_refused(tmp_path: Path, name: str) -> None:
    for command in (("service", "agent"), ("up",)):
        result = run_farm(*command, "--lab", tmp_path / "lab", "--host", name)
        assert (result.returncode, "is not a valid host name" in result.stderr) == (2, True), (
            result.stderr
        )


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ('[store]\nurl = "nonsense"', 2),  # not a URL
        ('[store]\nurl = "postgresql+psycopg://u:secret@127.0.0.1:1/x"', 4),  # no server
        ('[broker]\nurl = "redis://u:secret@127.0.0.1:1/0"', 4),
    ],
)
def test_the_error_of_an_unreachable_service_hides_its_password(
    tmp_path: Path, settings: str, code: int
) -> None:
    (tmp_path / "lab.toml").write_text(settings + "\n")
    command = ("status",) if "broker" in settings else ("sweep", "list")
    result = run_farm(*command, "--lab", tmp_path)
    assert result.returncode == code, result.stderr
    assert "secret" not in result.stderr
    check_no_traceback(result.stderr)


def test_the_error_of_bad_settings_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "lab.toml").write_text("[scheduler]\nlease_timeout_s = -1\n")
    result = run_farm("status", "--lab", tmp_path)
    assert result.returncode == 3
    assert "lab.toml: scheduler.lease_timeout_s" in result.stderr


def test_two_labs_in_one_folder_are_refused(lab: Lab) -> None:
    with lab_lock(lab):
        result = run_farm("up", "--lab", lab.root)
    assert (result.returncode, "is already running" in result.stderr) == (7, True)


def test_an_unknown_sweep_is_refused(farm: Farm) -> None:
    result = farm.command("sweep", "show", "nothing")
    assert (result.returncode, "there is no sweep 'nothing'" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("sweep", "validate", "FIFO"), 2, "it is not an ordinary file"),
        (("sweep", "validate", "/dev/zero"), 2, "it is not an ordinary file"),
        (("import", "FIFO", "--lab", "EMPTY"), 2, "it is not an ordinary file"),
        (("status", "--lab", "DEEP"), 3, "it is nested too deeply"),
        (("up", "--lab", "/proc/farm-lab"), 4, "no such file or directory: /proc/farm-lab"),
    ],
)
def test_input_without_end_and_places_without_rights_are_one_sentence(
    tmp_path: Path, arguments: tuple[str, ...], code: int, text: str
) -> None:
    os.mkfifo(tmp_path / "FIFO")
    for name in ("DEEP", "EMPTY"):
        (tmp_path / name).mkdir()
    (tmp_path / "DEEP" / "lab.toml").write_text(f"a = {'[' * 5000}{']' * 5000}\n")
    words = [str(tmp_path / word) if word.isupper() else word for word in arguments]
    result = run_farm(*words)
    assert (result.returncode, text in result.stderr) == (code, True), result.stderr
    assert result.stderr.count("\n") == 1
    check_no_traceback(result.stderr)


def test_ctrl_c_during_the_imports_is_not_a_traceback() -> None:
    # A job in the background of a script inherits that the signal is ignored.
    code = (
        "import os, signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "import orchestrator.__main__; os.kill(os.getpid(), signal.SIGINT); print('not ended')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")


@pytest.mark.parametrize("words", [("help", "metrics"), ("help", "metrics", "--json")])
def test_an_output_without_unicode_is_not_a_bug(words: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "orchestrator", *words]
    variables = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(command, capture_output=True, env=variables, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    if "--json" in words:
        shown = subprocess.run(command, capture_output=True, check=True, encoding="utf-8").stdout
        assert json.loads(done.stdout) == json.loads(shown)


def test_a_full_disk_behind_the_output_is_one_sentence() -> None:
    command = [sys.executable, "-m", "orchestrator", "help", "metrics", "--json"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (4, "farm: no space left on device\n")


def test_a_password_on_the_command_line_is_refused() -> None:
    result = run_farm("service", "agent", "--broker", "redis://user:secret@127.0.0.1:1/0")
    assert (result.returncode, "set FARM_BROKER instead" in result.stderr) == (2, True)


def test_json_cannot_change_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    content = {"model": "\x1b[2J\x9b2J\u202eevil\u2028\ufeff °C"}
    print_json(content)
    printed = capsys.readouterr().out
    assert json.loads(printed) == content
    assert not set("\x1b\x9b\u202e\u2028\ufeff") & set(printed)
    assert "°C" in printed
