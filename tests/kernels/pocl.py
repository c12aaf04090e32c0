"""PoCL from PyPI for a process that knows nothing of Python: where it is, and what it needs."""

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest


def pocl_environment(cache: Path) -> dict[str, str]:
    """What a runner's environment needs for PoCL; skips where there is none, or no linker."""
    if shutil.which("ld") is None:
        pytest.skip("PoCL builds kernels with the system's linker, and there is no 'ld' on PATH")
    found = find_spec("pyopencl")
    if found is None or found.origin is None:
        pytest.skip("pyopencl is not installed (pip install farmhand[kernels])")
    home = Path(found.origin).parent
    loaders = sorted(home.glob(".libs/libOpenCL*"))
    if not loaders or not list(home.glob(".libs/libpocl*")):
        pytest.skip("this pyopencl brings no PoCL (pip install pyopencl[pocl])")
    return {
        "FARMHAND_OPENCL": str(loaders[0]),
        "PYOPENCL_HOME": str(home),
        "LD_LIBRARY_PATH": str(home / ".libs"),
        "POCL_CACHE_DIR": str(cache),
        "PATH": "/usr/bin:/bin",
        "HOME": str(cache),
    }
