"""The OpenCL library that a native phone finds as its vendor's: the one that FARM_OPENCL names.

By default a native phone has no OpenCL: building kernels takes seconds, which a lab without OpenCL
should not spend. The value `pocl` names the library of `pyopencl[pocl]`.
"""

import os
from importlib.util import find_spec
from pathlib import Path

from kernels.pocl import linker_folder

LIBRARY_VARIABLE = "FARM_OPENCL"
POCL = "pocl"
LINKER_VARIABLE = "FARM_LINKER"  # a folder that a native phone adds to its PATH
_INHERITED_VARIABLES = (LIBRARY_VARIABLE, "LD_LIBRARY_PATH", "OCL_ICD_VENDORS", "PYOPENCL_HOME")


def opencl_environment() -> dict[str, str]:
    """Return what the processes of a native phone get besides their own environment."""
    library = os.environ.get(LIBRARY_VARIABLE)
    if not library:
        return {}
    if library == POCL:
        return pocl_environment() or {}
    return {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ}


def pocl_environment() -> dict[str, str] | None:
    """Return what a process needs to find PyPI's PoCL; None if it is not installed."""
    spec = find_spec("pyopencl")
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).parent
    loaders = sorted(package.glob(".libs/libOpenCL*"))
    if not loaders or not list(package.glob(".libs/libpocl*")):
        return None
    return {
        LIBRARY_VARIABLE: str(loaders[0]),
        "LD_LIBRARY_PATH": str(package / ".libs"),
        "PYOPENCL_HOME": str(package),
        LINKER_VARIABLE: linker_folder() or "",
    }
