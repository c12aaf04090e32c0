"""OpenCL in the default install: pyopencl always, a driver for the processor only on request."""

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_pyopencl_is_a_dependency_and_pocl_an_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "pyopencl" in project["dependencies"]
    assert project["optional-dependencies"]["kernels"] == ["pyopencl[pocl]", "ziglang"]
    assert not any("pocl" in name for name in project["dependencies"] if name != "pyopencl")


def test_help_does_not_import_it() -> None:
    words = [sys.executable, "-X", "importtime", "-m", "orchestrator", "--help"]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines()}
    assert "click" in imported
    assert not {name for name in imported if name.startswith(("pyopencl", "numpy"))}
