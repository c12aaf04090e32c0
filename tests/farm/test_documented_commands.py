"""Runs every command in the documents, in the setting that the second word of a block names.

sh          in a folder with the examples
sh lab      in a folder where `farm up --virtual` runs and the sweep `smoke` has finished
sh slow     like sh, in the slow suite
Other settings are in other files: demo in test_demo.py, study in test_study.py, results in
tests/export/test_exports.py.
"""

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.documents import Block, blocks, commands
from tests.farm.conftest import ROOT, Farm, wait_for
from tests.farm.farm_command import run_in_process
from tests.farm.terminal import check_nothing_left, processes_of, start
from workloads.lab.settings import Lab
from workloads.protocol.faults import BrokerDown, StoreDown

SETTINGS = {"", "lab", "slow", "demo", "study", "results"}
SLOW_S = 900


def in_setting(setting: str) -> list[Block]:
    """Return the shell and Python blocks of one setting."""
    return [block for block in blocks("sh", "python") if block.setting == setting]


def prepare(folder: Path) -> Path:
    """Copy the examples into a folder and add a launcher, as in a checkout."""
    shutil.copytree(ROOT / "examples", folder / "examples")
    launcher = folder / "farm"
    command = f'PYTHONPATH={ROOT} exec {sys.executable} -m orchestrator "$@"'
    launcher.write_text(f"#!/bin/sh\n{command}\n")
    launcher.chmod(0o755)
    return folder


def write_files(folder: Path, document: str) -> None:
    """Write the sweep files of a document into a folder."""
    for block in blocks("yaml"):
        if block.document == document and block.setting:
            (folder / block.setting).write_text(block.text)


def run(words: list[str], folder: Path, where: str) -> None:
    """Run one command, which must succeed and print something."""
    if words[:2] == ["virtual", "up"]:
        out = first_line_of(words, folder)
    else:
        code, out, err = run_in_process(*words)
        assert code == 0, f"{where}: {err}"
    assert out, where
    if words[:2] == ["sweep", "submit"]:
        assert "left=0" in run_in_process("watch", out.split()[0])[1], where


def first_line_of(words: list[str], folder: Path) -> str:
    """Start virtual phones, read the address of the first one, and stop them."""
    process = start(folder, *words)
    assert process.stdout is not None
    line = process.stdout.readline()
    process.terminate()
    process.communicate(timeout=300)
    assert re.search(r"127\.0\.0\.1:\d+", line), words
    return line


@pytest.fixture(scope="module")
def running_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in which a lab of virtual phones runs and has finished the sweep `smoke`."""
    folder = prepare(tmp_path_factory.mktemp("docs"))
    up = start(folder, "up", "--virtual", "--speed", "200")
    try:
        wait_for_six_phones(folder)
        lab = ("--lab", str(folder / "lab"))
        for words in (("sweep", "submit", str(ROOT / "examples/smoke.yaml")), ("watch", "smoke")):
            code, _, err = run_in_process(*words, *lab)
            assert code == 0, err
        yield folder
    finally:
        up.send_signal(signal.SIGINT)
        _, err = up.communicate(timeout=300)
    assert (up.returncode, "Traceback" in err) == (0, False), err
    check_nothing_left(folder)


def wait_for_six_phones(folder: Path) -> None:
    """Wait until the lab in a folder is up and has six idle phones."""
    lab = Lab.read(folder / "lab", {})

    def all_idle() -> bool:
        try:
            return len(Farm(lab, []).idle_phones()) == 6
        except (BrokerDown, StoreDown):
            return False

    wait_for(all_idle, "six phones are idle")


def test_every_block_is_run_somewhere() -> None:
    unknown = [str(block) for block in blocks("sh") if block.setting not in SETTINGS]
    assert not unknown


@pytest.mark.parametrize("block", in_setting("lab"), ids=str)
def test_commands_in_a_lab_work(
    block: Block, running_lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(running_lab)
    write_files(running_lab, block.document)
    if block.language == "python":
        subprocess.run([sys.executable, "-c", block.text], check=True, timeout=600)
        return
    for words in commands(block):
        if words[1] != "up":  # the fixture has started it
            run(words[1:], running_lab, f"{block}: {words}")


@pytest.mark.parametrize("block", [b for b in in_setting("") if b.language == "sh"], ids=str)
def test_commands_without_a_lab_work(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(prepare(tmp_path))
    for words in commands(block):
        run(words[1:], tmp_path, f"{block}: {words}")
    assert not processes_of(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("block", in_setting("slow"), ids=str)
def test_slow_commands_work(block: Block, tmp_path: Path) -> None:
    for words in commands(block):
        process = start(prepare(tmp_path), *words[1:])
        out, err = process.communicate(timeout=SLOW_S)
        assert (process.returncode, bool(out)) == (0, True), f"{words}: {err}"


@pytest.mark.slow
def test_a_lab_survives_a_restart(tmp_path: Path) -> None:
    for _ in range(2):
        up = start(tmp_path, "up", "--virtual", "--speed", "200")
        wait_for_six_phones(tmp_path)
        up.send_signal(signal.SIGTERM)
        assert up.wait(timeout=300) == 0
    assert count_stored_phones(tmp_path) == 6
    check_nothing_left(tmp_path)


def count_stored_phones(folder: Path) -> int:
    """Count the phones in the store of a lab."""
    from orchestrator.store.database import Database
    from orchestrator.store.phone_queries import known_phones

    return len(known_phones(Database(f"sqlite:///{folder / 'lab' / 'farm.db'}")))
