"""The launcher: what it says where something is missing; that it installs, every test shows."""

import os
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The few files that the launcher reads, in a folder of their own."""
    for name in ("farm", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / "farm").chmod(0o755)
    return tmp_path


def a_path(folder: Path, **programs: str) -> dict[str, str]:
    """An environment whose PATH has the shell's tools and these programs, and no Python."""
    tools = folder / "bin"
    tools.mkdir()
    for name in ("sh", "dirname", "cat", "cksum", "rm", "grep", "sleep", "tail"):
        tools.joinpath(name).symlink_to(
            f"/bin/{name}" if Path(f"/bin/{name}").exists() else f"/usr/bin/{name}"
        )
    for name, text in programs.items():
        tools.joinpath(name).write_text(f"#!/bin/sh\n{text}\n")
        tools.joinpath(name).chmod(0o755)
    return {"PATH": str(tools), "HOME": str(folder)}


def run(checkout: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Call the launcher."""
    return subprocess.run(
        [checkout / "farm", "--help"], env=environment, capture_output=True, text=True, check=False
    )


def test_without_python_it_says_what_to_install(checkout: Path) -> None:
    made = run(checkout, a_path(checkout))
    assert made.returncode == 4
    assert "farm: Python 3.11 or newer not found; install it" in made.stderr


def test_an_old_python_and_a_broken_one_are_passed_over(checkout: Path) -> None:
    made = run(checkout, a_path(checkout, python3="exit 1", python="exit 127"))
    assert (made.returncode, made.stderr.count("Python 3.11 or newer not found")) == (4, 1)


def test_without_venv_it_says_what_to_install(checkout: Path) -> None:
    # answers the version question and fails at everything else, as Debian's python3 does
    python = 'case "$1" in -c) exit 0;; *) echo "No module named venv" >&2; exit 1;; esac'
    made = run(checkout, a_path(checkout, python3=python))
    assert made.returncode == 4
    assert "apt install python3-venv" in made.stderr
    assert not (checkout / ".venv").exists(), "nothing half made is left"


@pytest.mark.skipif(not (ROOT / ".venv" / "installed-farm").exists(), reason="not run by ./farm")
def test_a_second_call_starts_at_once() -> None:
    began = time.monotonic()
    environment = {**os.environ, "PATH": "/usr/bin:/bin"}
    made = subprocess.run(
        [ROOT / "farm", "--help"], env=environment, capture_output=True, check=False
    )
    assert made.returncode == 0
    assert time.monotonic() - began < 2.0
