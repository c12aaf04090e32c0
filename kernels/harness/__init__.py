"""Builds, checks, times and tunes the OpenCL kernels on a device of this computer."""

from kernels.pocl import keep_out_of_home

keep_out_of_home()  # before pyopencl is imported
