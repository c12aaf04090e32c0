"""Bad input gets one clear sentence and the documented exit code; nothing is lost, no traceback."""

import fcntl
import os
import signal
from pathlib import Path

import pytest

from orchestrator.store.sweep_queries import sweep_summaries
from orchestrator.supervisor.services import lab_lock, services
from tests.farm.conftest import Farm, run_farm, wait_for
from workloads.lab_settings import Lab

GOOD = "farm: 1\nname: good\nworkload: noop\nphones: all\nrepeat: 1\n"


def no_traceback(text: str) -> None:
    """What every user must be spared."""
    assert "Traceback" not in text
    assert "this is a bug" not in text


def stored(farm: Farm) -> set[str]:
    """Names of the sweeps that a farm has."""
    return {summary.name.lower() for summary in sweep_summaries(farm.db)}


def test_a_malformed_sweep_is_refused_with_every_mistake_and_stored_nowhere(
    farm: Farm, tmp_path: Path
) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("farm: 1\nname: Bad\nworkload: noop\nphone: all\nrepeat: 1\nrepeat: 2\n")
    for arguments in (
        ("sweep", "validate", file),
        ("sweep", "submit", file, "--lab", farm.lab.root),
    ):
        made = run_farm(*arguments)
        assert made.returncode == 3
        for where in (f"{file}:2:7:", f"{file}:4:1:", f"{file}:6:1:"):
            assert where in made.stderr
        assert ("Nothing was submitted." in made.stderr) == ("submit" in arguments)
        no_traceback(made.stderr)
    assert "bad" not in stored(farm)


def test_a_sweep_that_no_phone_matches_says_why_of_each(farm: Farm, tmp_path: Path) -> None:
    file = tmp_path / "nobody.yaml"
    file.write_text(GOOD.replace("phones: all", "phones: [pixel*]").replace("good", "nobody"))
    made = farm.command("sweep", "submit", file)
    assert made.returncode == 6
    for serial in farm.idle():
        assert serial in made.stderr
    no_traceback(made.stderr)
    assert "nobody" not in stored(farm)


def test_a_broker_that_is_gone_is_one_sentence(lab: Lab, tmp_path: Path) -> None:
    file = tmp_path / "good.yaml"
    file.write_text(GOOD)
    with services(lab) as children:
        farm = Farm(lab, children)
        broker = farm.children["broker"]
        os.kill(broker.pid, signal.SIGKILL)
        wait_for(lambda: not broker.alive, "the broker is dead")
        for arguments in (("status",), ("phone", "list"), ("watch",), ("sweep", "submit", file)):
            made = farm.command(*arguments)
            assert made.returncode == 4, arguments
            assert "is not up: its broker does not answer; start it with 'farm up" in made.stderr
            assert made.stderr.strip().count("\n") + 1 == 1
            no_traceback(made.stderr)
        assert set() == stored(farm), "what was not accepted is not stored"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("status",), 4, "is not up"),  # no lab here
        (("sweep", "submit", "FILE"), 4, "has no store yet"),  # a good file, but no lab
        (("export", "sw-1"), 4, "has no store yet"),
        (("sweep", "validate", "missing.yaml"), 2, "missing.yaml cannot be read"),
        (("sweep", "frobnicate"), 2, "No such command"),
        (("frobnicate",), 2, "No such command"),
    ],
)
def test_a_wrong_command_is_one_sentence(
    tmp_path: Path, arguments: tuple[str, ...], code: int, says: str
) -> None:
    file = tmp_path / "good.yaml"
    file.write_text(GOOD)
    words = [str(file) if word == "FILE" else word for word in arguments]
    takes_lab = words[0] in ("status", "export") or words[:2] == ["sweep", "submit"]
    made = run_farm(*words, *(("--lab", tmp_path / "none") if takes_lab else ()))
    assert (code, True) == (made.returncode, says in made.stderr), made.stderr
    no_traceback(made.stderr)


def test_two_agents_of_one_name_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "agents" / "host-a"
    folder.mkdir(parents=True)
    held = os.open(folder, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    made = run_farm("agent", "run", "--lab", tmp_path, "--host", "host-a")
    os.close(held)
    assert (made.returncode, "already runs in" in made.stderr) == (4, True)


@pytest.mark.parametrize("name", ["LabPC", "../x", "a b"])
def test_a_bad_name_for_a_host_is_one_sentence(tmp_path: Path, name: str) -> None:
    for command in (("agent", "run"), ("up",)):
        made = run_farm(*command, "--lab", tmp_path / "lab", "--host", name)
        assert (made.returncode, "is not a valid host name" in made.stderr) == (2, True), (
            made.stderr
        )


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ('[store]\nurl = "nonsense"', 2),  # no URL at all
        ('[store]\nurl = "postgresql+psycopg://u:secret@127.0.0.1:1/x"', 4),  # nobody there
        ('[broker]\nurl = "redis://u:secret@127.0.0.1:1/0"', 4),
    ],
)
def test_services_that_cannot_be_used_are_one_sentence_without_a_password(
    tmp_path: Path, settings: str, code: int
) -> None:
    (tmp_path / "lab.toml").write_text(settings + "\n")
    command = ("status",) if "broker" in settings else ("sweep", "list")
    made = run_farm(*command, "--lab", tmp_path)
    assert code == made.returncode, made.stderr
    assert "secret" not in made.stderr
    no_traceback(made.stderr)


def test_bad_settings_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "lab.toml").write_text("[scheduler]\nlease_timeout_s = -1\n")
    made = run_farm("status", "--lab", tmp_path)
    assert made.returncode == 3
    assert "lab.toml: scheduler.lease_timeout_s" in made.stderr


def test_two_labs_in_one_folder_are_refused(lab: Lab) -> None:
    with lab_lock(lab):
        made = run_farm("up", "--lab", lab.root)
    assert (made.returncode, "already up" in made.stderr) == (7, True)


def test_a_sweep_that_does_not_exist_is_one_sentence(farm: Farm) -> None:
    made = farm.command("sweep", "show", "nothing")
    assert (made.returncode, "there is no sweep 'nothing'" in made.stderr) == (2, True)
