"""PoCL, the OpenCL driver of the extra `kernels`: a linker for it, a processor, a place for files.

PoCL builds kernels with the program `ld`. If the system has none, that of the package `ziglang` is
used. Built kernels are kept in the system's folder of temporary files, not in the user's home.
"""

import os
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

from kernels.pocl_processor import name_processor

LIBRARY_VARIABLE = "FARM_OPENCL"  # the library that a runner loads; or POCL
POCL = "pocl"  # the library of `pyopencl[pocl]`
LINKER_VARIABLE = "FARM_LINKER"  # a folder that a native phone adds to its PATH


def pocl_environment() -> dict[str, str] | None:
    """Return what a process needs to find PyPI's PoCL; None if it is not installed."""
    library = find_library()
    loaders = sorted(library.parent.glob("libOpenCL*")) if library else []
    if library is None or not loaders:
        return None
    name_processor(library)
    return {
        LIBRARY_VARIABLE: str(loaders[0]),
        "LD_LIBRARY_PATH": str(library.parent),
        "PYOPENCL_HOME": str(library.parents[1]),
        LINKER_VARIABLE: linker_folder() or "",
    }


def find_library() -> Path | None:
    """Return PyPI's PoCL; None if it is not installed."""
    spec = find_spec("pyopencl")
    if spec is None or spec.origin is None:
        return None
    return next(iter(sorted(Path(spec.origin).parent.glob(".libs/libpocl*.so"))), None)


def runner_environment() -> dict[str, str]:
    """Return the environment in which a runner of this computer finds an OpenCL library."""
    library = os.environ.get(LIBRARY_VARIABLE, POCL)
    found = (pocl_environment() or {}) if library == POCL else {}
    folders = [os.environ.get("PATH", ""), found.pop(LINKER_VARIABLE, "")]
    return {**os.environ, **found, "PATH": ":".join(filter(None, folders))}


def linker_folder() -> str | None:
    """Return a folder for PATH in which PoCL finds `ld`, or None without a linker."""
    found = shutil.which("ld")
    if found is not None:
        return str(Path(found).parent)
    spec = find_spec("ziglang")
    if spec is None or spec.origin is None:
        return None
    script = private_folder() / "bin" / "ld"
    text = f'#!/bin/sh\nexec "{Path(spec.origin).parent / "zig"}" ld.lld "$@"\n'
    if not script.is_file() or script.read_text() != text:
        script.parent.mkdir(exist_ok=True)
        written = script.with_name(f"ld.{os.getpid()}")
        written.write_text(text)
        written.chmod(0o700)
        written.replace(script)
    return str(script.parent)


def private_folder() -> Path:
    """Return this user's folder for files of OpenCL drivers, which may be deleted at any time."""
    folder = Path(tempfile.gettempdir()) / f"farmhand-opencl-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.lstat().st_uid != os.getuid() or folder.is_symlink():
        return Path(tempfile.mkdtemp(prefix="farmhand-opencl-"))  # of another user: use another
    return folder


def prepare_pocl() -> None:
    """Let PoCL build for this processor, and keep it and pyopencl out of the user's home.

    Both read their settings when they are imported.
    """
    os.environ.setdefault("POCL_CACHE_DIR", str(private_folder()))
    os.environ.setdefault("PYOPENCL_NO_CACHE", "1")
    if library := find_library():
        name_processor(library)


def add_linker_to_path() -> bool:
    """Let PoCL in this process find a linker; return whether there is one."""
    folder = linker_folder()
    if folder is not None and shutil.which("ld") is None:
        os.environ["PATH"] = f"{os.environ.get('PATH', '')}:{folder}"
    return folder is not None
