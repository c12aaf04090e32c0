"""Builds, checks, times and tunes the OpenCL kernels on a device of this computer."""

import os

from kernels.pocl import private_folder

# Read when pyopencl is imported: neither PoCL nor pyopencl leaves files in the user's home.
os.environ.setdefault("POCL_CACHE_DIR", str(private_folder()))
os.environ.setdefault("PYOPENCL_NO_CACHE", "1")
