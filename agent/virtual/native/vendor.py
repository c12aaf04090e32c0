"""The OpenCL library that a native phone finds as its vendor's: whatever FARMHAND_OPENCL names.

A native phone has no OpenCL of its own accord: building kernels costs a host seconds, and a farm
that does not ask for it should not pay. `pocl` names the one that comes with `pyopencl[pocl]`.
"""

import os
from importlib.util import find_spec
from pathlib import Path

NAMED_BY = "FARMHAND_OPENCL"
POCL = "pocl"
_PASSED_ON = (NAMED_BY, "LD_LIBRARY_PATH", "OCL_ICD_VENDORS", "PYOPENCL_HOME")


def vendor_environment() -> dict[str, str]:
    """What the processes of a native phone get of this one's environment."""
    named = os.environ.get(NAMED_BY)
    if not named:
        return {}
    if named == POCL:
        return pocl_environment() or {}
    return {name: os.environ[name] for name in _PASSED_ON if name in os.environ}


def pocl_environment() -> dict[str, str] | None:
    """What a process needs to find PyPI's PoCL; None where it is not installed."""
    found = find_spec("pyopencl")
    if found is None or found.origin is None:
        return None
    home = Path(found.origin).parent
    loaders = sorted(home.glob(".libs/libOpenCL*"))
    if not loaders or not list(home.glob(".libs/libpocl*")):
        return None
    return {
        NAMED_BY: str(loaders[0]),
        "LD_LIBRARY_PATH": str(home / ".libs"),
        "PYOPENCL_HOME": str(home),
    }
