"""The phone's own runner, which obeys kernels/runner/runner.h with model time for time."""
