"""The OpenCL library that a native phone finds as its vendor's: the one that FARM_OPENCL names.

By default a native phone has no OpenCL: building kernels takes seconds, which a lab without OpenCL
should not spend. The value `pocl` names the library of `pyopencl[pocl]`.
"""

import os

from kernels.pocl import LIBRARY_VARIABLE, POCL, pocl_environment

_INHERITED_VARIABLES = (LIBRARY_VARIABLE, "LD_LIBRARY_PATH", "OCL_ICD_VENDORS", "PYOPENCL_HOME")


def opencl_environment() -> dict[str, str]:
    """Return what the processes of a native phone get besides their own environment."""
    library = os.environ.get(LIBRARY_VARIABLE)
    if not library:
        return {}
    if library == POCL:
        return pocl_environment() or {}
    return {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ}
