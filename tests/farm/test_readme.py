"""The README, done as it says: the demo, and a lab of one's own."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

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


def processes_of(folder: Path) -> list[str]:
    """Processes that have anything to do with a folder: by command, working folder or HOME."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (
                process.joinpath("cmdline").read_bytes() + process.joinpath("environ").read_bytes()
            )
            where = bytes(process.joinpath("cwd").readlink())
        except OSError:
            continue
        if int(process.name) != os.getpid() and os.fsencode(folder) in words + where:
            found.append(process.joinpath("cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


def nothing_left(folder: Path) -> None:
    """No process and no lock outlives a lab."""
    wait_for(
        lambda: not processes_of(folder / "lab"), f"all gone: {processes_of(folder / 'lab')}", 5
    )
    assert not list(folder.rglob("*.sock"))


def test_the_demo_answers_three_questions_and_leaves_nothing_behind(tmp_path: Path) -> None:
    demo = start(tmp_path, "demo", "--dir", "lab", HOME=str(tmp_path / "home"))
    out, err = demo.communicate(timeout=180)
    assert 0 == demo.returncode, err
    for phone in ("Redmi Note 9 Pro", "MI 9", "Mate 30", "Meizu 16T", "S8+", "Honor 8"):
        assert phone in out
    sentences = [line for line in out.splitlines() if line.startswith("- ")]
    assert 3 == len(sentences)
    assert all("imulated" in sentence for sentence in sentences)
    assert "Plug in a real phone" in out
    page = (tmp_path / "lab" / "report.html").read_text()
    assert "simulat" in page
    assert "://" not in page, "the page works offline"
    assert "simulated" in (tmp_path / "lab" / "comparison.csv").read_text()
    assert ["lab"] == sorted(path.name for path in tmp_path.iterdir()), "nothing beside the folder"
    nothing_left(tmp_path)


@pytest.mark.parametrize(
    "sign",
    [
        "lab/logs/virtual.log",  # the phones are being started
        "lab/farm.db",  # the services are being started
        "lab/agents/host-b/lanes",  # runs are under way
    ],
)
def test_the_demo_leaves_nothing_behind_after_ctrl_c(tmp_path: Path, sign: str) -> None:
    demo = start(tmp_path, "demo", "--dir", "lab")
    wait_for((tmp_path / sign).exists, sign)
    os.kill(demo.pid, signal.SIGINT)
    _, err = demo.communicate(timeout=60)
    assert 130 == demo.returncode
    assert "Traceback" not in err
    nothing_left(tmp_path)


def test_the_demo_leaves_nothing_behind_even_when_it_is_killed(tmp_path: Path) -> None:
    demo = start(tmp_path, "demo", "--dir", "lab")
    wait_for((tmp_path / "lab" / "farm.db").exists, "the lab comes up")
    demo.kill()
    demo.communicate(timeout=60)
    wait_for(lambda: not processes_of(tmp_path / "lab"), "all gone", 30)


@pytest.fixture
def own_lab(tmp_path: Path) -> Iterator[Path]:
    """A folder in which `farm up --virtual` runs."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    up = start(tmp_path, "up", "--virtual", "--speed", "200")
    try:
        wait_for(lambda: listed(tmp_path).count("\tidle\t") == 6, "six phones are idle")
        yield tmp_path
    finally:
        up.send_signal(signal.SIGINT)
        _, err = up.communicate(timeout=60)
    assert (0, False) == (up.returncode, "Traceback" in err), err
    nothing_left(tmp_path)


def listed(folder: Path) -> str:
    """What `farm phone list` prints."""
    return start(folder, "phone", "list").communicate(timeout=30)[0]


def test_every_command_of_the_readme_works(own_lab: Path) -> None:
    (block,) = re.findall(
        r"## A real lab\n\n```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.S
    )
    for line in block.splitlines():
        words = line.split("#")[0].split()[1:]
        if words in (["up"], ["watch"]):
            continue  # up is running; watch without a sweep never ends, and is tried below
        made = start(own_lab, *words)
        out, err = made.communicate(timeout=60)
        assert 0 == made.returncode, f"{line}: {err}"
        assert out
        if words[:2] == ["sweep", "submit"]:
            watched = start(own_lab, "watch", "smoke")
            assert "left=0" in watched.communicate(timeout=60)[0]
    assert (own_lab / "smoke.simulated.csv").exists()


def test_a_lab_survives_a_restart(tmp_path: Path) -> None:
    for round_ in (1, 2):
        up = start(tmp_path, "up", "--virtual", "--speed", "200")
        wait_for(lambda: listed(tmp_path).count("\tidle\t") == 6, f"six phones, round {round_}")
        up.send_signal(signal.SIGTERM)
        assert 0 == up.wait(timeout=60)
    assert 6 == listed_in_store(tmp_path)
    nothing_left(tmp_path)


def listed_in_store(folder: Path) -> int:
    """How many phones the store of a lab has met."""
    from orchestrator.store.database import Database
    from orchestrator.store.queries import known_phones

    return len(known_phones(Database(f"sqlite:///{folder / 'lab' / 'farm.db'}")))


def test_every_command_about_virtual_phones_works(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    readme = (ROOT / "README.md").read_text()
    (block,) = re.findall(r"## Phones that are not there\n.*?```sh\n(.*?)```", readme, re.S)
    for line in block.splitlines():
        words = line.split("#")[0].split()[1:]
        made = start(tmp_path, *words)
        first = ""
        if words[:2] == ["virtual", "up"]:
            assert made.stdout is not None
            first = made.stdout.readline()
            assert re.search(r"127\.0\.0\.1:\d+", first), line
            made.terminate()
        out, err = made.communicate(timeout=120)
        assert 0 == made.returncode, f"{line}: {err}"
        assert first + out, line
    assert not processes_of(tmp_path)


def test_every_command_about_what_is_trained_works(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    (block,) = re.findall(r"## What is trained\n.*?```sh\n(.*?)```", readme, re.S)
    for line in block.splitlines():
        out, err = start(tmp_path, *line.split("#")[0].split()[1:]).communicate(timeout=60)
        assert out, f"{line}: {err}"
