"""The phone's runner: obeys kernels/runner/runner.h, with model time instead of real time."""
