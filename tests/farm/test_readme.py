"""The README, done as it says: every command, in a lab of one's own."""

import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.farm.conftest import ROOT, Farm, wait_for
from tests.farm.terminal import nothing_left, processes_of, start
from workloads.fault import BrokerDown, StoreDown
from workloads.lab import Lab


@pytest.fixture
def own_lab(tmp_path: Path) -> Iterator[Path]:
    """A folder in which `farm up --virtual` runs."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    up = start(tmp_path, "up", "--virtual", "--speed", "200")
    try:
        six_phones(tmp_path)
        yield tmp_path
    finally:
        up.send_signal(signal.SIGINT)
        _, err = up.communicate(timeout=60)
    assert (0, False) == (up.returncode, "Traceback" in err), err
    nothing_left(tmp_path)


def six_phones(folder: Path) -> None:
    """Wait until the lab in a folder is up and has six idle phones."""
    lab = Lab.read(folder / "lab", {})

    def all_idle() -> bool:
        try:
            return len(Farm(lab, []).idle()) == 6
        except (BrokerDown, StoreDown):
            return False

    wait_for(all_idle, "six phones are idle")


def test_every_command_of_the_readme_works(own_lab: Path) -> None:
    blocks = re.findall(
        r"## (?:A real lab|The screen)\n.*?```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.S
    )
    assert 2 == len(blocks)
    for line in "".join(blocks).splitlines():
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


@pytest.mark.slow
def test_a_lab_survives_a_restart(tmp_path: Path) -> None:
    for _ in range(2):
        up = start(tmp_path, "up", "--virtual", "--speed", "200")
        six_phones(tmp_path)
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
