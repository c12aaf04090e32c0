"""Wheel and sdist: `farm demo` from each, in clean environments of every Python that is found."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.two_computers import ROOT, run

PARTS = (
    *("pyproject.toml", "MANIFEST.in", "README.md", "CHANGELOG.md", "constraints.txt", "farm"),
    *("agent", "kernels", "orchestrator", "workloads", "examples"),
)

pytestmark = pytest.mark.slow


def found_pythons() -> dict[str, str]:
    """Return every Python from 3.11 on: this one, those on the path and those of pyenv."""
    own = f"3.{sys.version_info.minor}"
    found = {own: sys._base_executable or sys.executable}
    for minor in range(11, 20):
        name = f"3.{minor}"
        other = shutil.which(f"python{name}")
        installed = sorted(Path.home().glob(f".pyenv/versions/{name}.*/bin/python"))
        for program in (other, *map(str, installed)):
            if program is not None and name not in found:
                done = subprocess.run([program, "-c", "import venv"], check=False)
                found |= {name: program} if done.returncode == 0 else {}
    return dict(sorted(found.items()))


PYTHONS = found_pythons()


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Build both from a copy: a build leaves files in its folder."""
    folder = tmp_path_factory.mktemp("packages")
    copy, built = folder / "copy", folder / "built"
    copy.mkdir()
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            skipped = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, copy / part, ignore=skipped, symlinks=True)
        else:
            shutil.copy(source, copy / part)
    run(sys.executable, "-m", "venv", folder / "venv")
    python = folder / "venv/bin/python"
    run(python, "-m", "pip", "install", "--quiet", "build")
    run(python, "-m", "build", "--outdir", built, copy)  # the wheel is built from the sdist
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    return {"wheel": wheel, "sdist": sdist}


# The wheel is built from the sdist, so one Python is enough for the sdist.
@pytest.mark.parametrize(
    ("kind", "version"),
    [*(("wheel", version) for version in PYTHONS), ("sdist", list(PYTHONS)[-1])],
)
def test_the_demo_runs_from_a_package(
    packages: dict[str, Path], kind: str, version: str, tmp_path: Path
) -> None:
    run(PYTHONS[version], "-m", "venv", tmp_path / "venv")
    bin_folder = tmp_path / "venv/bin"
    constraints = ("--constraint", ROOT / "constraints.txt")
    pip = (bin_folder / "python", "-m", "pip", "install", "--quiet")
    run(*pip, *constraints, packages[kind])
    path = f"{bin_folder}:/usr/bin:/bin"
    environment = {"PATH": path, "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"}
    shown = run("farm", "demo", "--dir", "demo", cwd=tmp_path, env=environment)
    assert (tmp_path / "demo/report.html").exists(), shown
    assert "chosen" in shown
