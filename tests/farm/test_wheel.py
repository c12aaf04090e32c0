"""Wheel and source distribution, installed in clean environments, run the demo."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def find_pythons() -> list[str]:
    """Find every Python from 3.11 on, of the system and of pyenv, without the links of pyenv."""
    folders = [*(Path.home() / ".pyenv" / "versions").glob("*/bin")]
    folders += [Path(name) for name in os.environ["PATH"].split(":") if "shims" not in name]
    found: dict[int, str] = {}
    for minor in range(11, 20):
        for folder in folders:
            if (folder / f"python3.{minor}").exists():
                found.setdefault(minor, str(folder / f"python3.{minor}"))
    return list(found.values())


PYTHONS = find_pythons()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source distribution."""
    folder, sources = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("sources")
    copy = sources / "farmhand"
    ignored = shutil.ignore_patterns(".*", "*.egg-info", "__pycache__", "build")
    shutil.copytree(ROOT, copy, symlinks=True, ignore=ignored)
    build = "from setuptools.build_meta import build_sdist; build_sdist('..')"
    venv = sources / "venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    pip = [venv / "bin" / "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "setuptools==80.9.0"], check=True)
    subprocess.run([venv / "bin" / "python", "-c", build], cwd=copy, check=True)
    (source,) = sources.glob("farmhand-*.tar.gz")
    with tarfile.open(source) as archive:
        assert any(name.endswith("/constraints.txt") for name in archive.getnames())
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", folder, source], check=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.mark.slow
@pytest.mark.parametrize("python", PYTHONS)
def test_the_demo_runs_from_a_wheel(wheel: Path, tmp_path: Path, python: str) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if "dist-info" not in name} == {
        *("agent", "kernels", "orchestrator", "workloads")
    }
    engines = ROOT / "examples" / "external" / "engines"
    in_wheel = {
        name for name in names if name.startswith("orchestrator/examples/external/engines/")
    }
    assert {name.rpartition("/")[2] for name in in_wheel} == {
        path.name for path in engines.iterdir() if path.is_file()
    }
    venv = tmp_path / "venv"
    subprocess.run([python, "-m", "venv", venv], check=True)
    pip = [venv / "bin" / "pip", "--quiet", "--disable-pip-version-check", "install"]
    constraints = ROOT / "constraints.txt"
    install = [*pip, "--constraint", constraints, wheel]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if "No matching distribution" in done.stderr:
        pytest.skip(f"a package cannot be had for {python}: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    farm = venv / "bin" / "farm"
    demo = subprocess.run(
        [farm, "demo", "--dir", "demo-lab"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert demo.returncode == 0, demo.stderr
    assert (tmp_path / "demo-lab" / "report.html").exists()
    made = subprocess.run([farm, "lab", "init"], cwd=tmp_path, capture_output=True, check=False)
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "lab" / "sweeps" / "smoke.yaml").exists()
