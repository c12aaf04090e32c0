"""Builds, checks, times and tunes the OpenCL kernels on a device of this computer."""

from kernels.pocl import prepare_pocl

prepare_pocl()  # before pyopencl is imported
