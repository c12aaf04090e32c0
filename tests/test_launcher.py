"""The launcher `farm`: its errors where Python is missing, and its speed once installed."""

import os
import re
import subprocess
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with only the files that the launcher reads."""
    for name in ("farm", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / "farm").chmod(0o755)
    return tmp_path


def make_environment(folder: Path, **programs: str) -> dict[str, str]:
    """Build an environment whose PATH has the shell's tools and these programs, but not Python."""
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
    """Run the launcher."""
    return subprocess.run(
        [checkout / "farm", "--help"], env=environment, capture_output=True, text=True, check=False
    )


def test_without_python_the_error_names_the_package(checkout: Path) -> None:
    result = run(checkout, make_environment(checkout))
    assert result.returncode == 4
    assert "farm: Python 3.11 or newer not found; install it" in result.stderr


def test_an_old_and_a_broken_python_are_skipped(checkout: Path) -> None:
    result = run(checkout, make_environment(checkout, python3="exit 1", python="exit 127"))
    assert (result.returncode, result.stderr.count("Python 3.11 or newer not found")) == (4, 1)


def test_without_venv_the_error_names_the_package(checkout: Path) -> None:
    # Debian's python3 without python3-venv passes the version check and fails afterwards.
    python = 'case "$1" in -c) exit 0;; *) echo "No module named venv" >&2; exit 1;; esac'
    result = run(checkout, make_environment(checkout, python3=python))
    assert result.returncode == 4
    assert "apt install python3-venv" in result.stderr
    assert not (checkout / ".venv").exists(), "an incomplete environment is left"


@pytest.mark.skipif(not (ROOT / ".venv" / "installed-farm").exists(), reason="not run by ./farm")
def test_a_second_call_installs_nothing() -> None:
    environment = {**os.environ, "PATH": "/usr/bin:/bin"}
    result = subprocess.run(
        [ROOT / "farm", "--help"], env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0
    assert "installing" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "variables", "settings", "installed"),
    [
        (["status"], {}, "", []),
        (["status"], {}, '[store]\nurl = "postgresql+psycopg://lab"\n', ["postgres"]),
        (["status", "--lab", "other"], {}, '[store]\nurl = "postgresql://x"\n', []),
        (["status", "--lab", "here"], {}, "", ["postgres"]),
        (["status", "--lab=here"], {}, "", ["postgres"]),
        (["status"], {"FARM_LAB": "here"}, "", ["postgres"]),
        (["status", "--help"], {"FARM_LAB": "here"}, "", []),
        (["kernels", "list"], {}, "", ["kernels"]),
        (["kernels", "list", "--help"], {}, "", []),
        (["study", "run", "-h"], {}, "", []),
        (["status"], {"FARM_STORE": "postgresql+psycopg://lab"}, "", ["postgres"]),
    ],
)
def test_an_extra_is_installed_when_the_command_needs_it_but_not_for_its_help(
    checkout: Path,
    arguments: list[str],
    variables: dict[str, str],
    settings: str,
    installed: list[str],
) -> None:
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$@" >>"$HOME/calls"\n')
    python.chmod(0o755)
    for folder, content in (("lab", settings), ("here", '[store]\nurl="postgresql://h"\n')):
        (checkout / folder).mkdir()
        (checkout / folder / "lab.toml").write_text(content)
    subprocess.run(
        [checkout / "farm", *arguments],
        env=make_environment(checkout) | variables,
        cwd=checkout,
        capture_output=True,
        check=True,
    )
    calls = (checkout / "calls").read_text()
    assert [name for name in ("postgres", "kernels") if f"[{name}]" in calls] == installed
    assert calls.splitlines()[-1] == f"-m orchestrator {' '.join(arguments)}"


def needed(extra: str) -> set[str]:
    """Return the packages that an extra of Farmhand needs, directly or not."""
    found: set[str] = set()
    left, done = [("farmhand", frozenset({extra}))], set()
    while left:
        name, extras = left.pop()
        if (name, extras) in done:
            continue
        done.add((name, extras))
        try:
            lines = requires(name) or []
        except PackageNotFoundError:
            continue
        for each in map(Requirement, lines):
            if each.marker is None or any(each.marker.evaluate({"extra": e}) for e in extras):
                plain = re.sub(r"[._]", "-", each.name.lower())
                found.add(plain)
                left.append((plain, frozenset(each.extras or {""})))
    return found - {"farmhand"}


@pytest.mark.skipif(not (ROOT / ".venv" / "installed-test").exists(), reason="not run by ./farm")
def test_the_number_of_packages_that_the_launcher_prints_is_right() -> None:
    first = (ROOT / "constraints.txt").read_text().partition("\n\n")[0]
    stated = {name: int(count) for name, count in re.findall(r"(\w+)=(\d+)", first.split("==")[0])}
    base = needed("")
    counted = {name: len(needed(name) - base) for name in stated} | {"farm": len(base)}
    # another release of Python needs one or two packages more
    assert all(abs(counted[name] - stated[name]) <= 2 for name in stated), counted


def test_the_launcher_says_how_it_was_called(checkout: Path) -> None:
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "called as $FARM_COMMAND"\n')
    python.chmod(0o755)
    environment = make_environment(checkout)
    command = ["sh", "-c", "./farm --help"]
    result = subprocess.run(
        command, cwd=checkout, env=environment, capture_output=True, text=True, check=True
    )
    assert result.stdout.splitlines()[-1] == "called as ./farm"
    assert re.search(r"installing farm, once: \d+ packages", result.stderr)
