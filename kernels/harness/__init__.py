"""Builds, checks, times and tunes the OpenCL kernels on a device of this computer."""
