"""PoCL from PyPI for processes that are not Python, or the reason to skip."""

import shutil
from pathlib import Path

import pytest

from agent.virtual.native.opencl_library import pocl_environment


def need_pocl() -> dict[str, str]:
    """Return the environment in which a process finds PoCL; skip where PoCL cannot build."""
    if shutil.which("ld") is None:
        pytest.skip("PoCL builds kernels with the system's linker, and there is no 'ld' on PATH")
    found = pocl_environment()
    if found is None:
        pytest.skip("PoCL is not installed (pip install pyopencl[pocl])")
    return found


def pocl_in(cache: Path) -> dict[str, str]:
    """Return a complete environment, with a cache folder for built kernels."""
    return {**need_pocl(), "POCL_CACHE_DIR": str(cache), "PATH": "/usr/bin:/bin"}


def shared_pocl(factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return an environment whose cache all test files share, because builds take long."""
    cache = factory.getbasetemp() / "pocl-cache"
    cache.mkdir(exist_ok=True)
    return pocl_in(cache)
