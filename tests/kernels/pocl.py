"""PoCL from PyPI for processes that are not Python, or the reason to skip."""

import os
from pathlib import Path

import pytest

from kernels.pocl import LIBRARY_VARIABLE, LINKER_VARIABLE, linker_folder, pocl_environment


def need_pocl() -> dict[str, str]:
    """Return the environment in which a process finds PoCL; skip where PoCL cannot build."""
    if linker_folder() is None:
        pytest.skip("PoCL builds kernels with 'ld', and neither the system nor ziglang has one")
    found = pocl_environment()
    if found is None:
        pytest.skip("PoCL is not installed (pip install pyopencl[pocl])")
    _open_folders(Path(found[LIBRARY_VARIABLE]))
    return found


def _open_folders(library: Path) -> None:
    """Let every user reach a library: a native phone of root runs programs as another user."""
    for folder in library.parents:
        if folder.owner() == "root" and os.geteuid() == 0:
            folder.chmod(folder.stat().st_mode | 0o005)


def pocl_in(cache: Path) -> dict[str, str]:
    """Return a complete environment, with a cache folder for built kernels."""
    found = need_pocl()
    path = f"/usr/bin:/bin:{found.pop(LINKER_VARIABLE)}"
    return {**found, "POCL_CACHE_DIR": str(cache), "PATH": path}


def shared_pocl(factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return an environment whose cache all test files share, because builds take long."""
    cache = factory.getbasetemp() / "pocl-cache"
    cache.mkdir(exist_ok=True)
    return pocl_in(cache)
