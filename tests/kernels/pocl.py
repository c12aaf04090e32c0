"""PoCL from PyPI for a process that knows nothing of Python, or the reason why there is none."""

import shutil
from pathlib import Path

import pytest

from agent.virtual.native.vendor import pocl_environment


def need_pocl() -> dict[str, str]:
    """What a process needs to find it; skips where it cannot build."""
    if shutil.which("ld") is None:
        pytest.skip("PoCL builds kernels with the system's linker, and there is no 'ld' on PATH")
    found = pocl_environment()
    if found is None:
        pytest.skip("PoCL is not installed (pip install pyopencl[pocl])")
    return found


def pocl_in(cache: Path) -> dict[str, str]:
    """A whole environment, with a folder for what it has built."""
    return {**need_pocl(), "POCL_CACHE_DIR": str(cache), "PATH": "/usr/bin:/bin"}
