"""The phone's runner: obeys kernels/runner/runner.h, with phone time instead of real time."""
