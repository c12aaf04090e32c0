"""The harness: OpenCL kernels built, checked, timed and tuned on this computer's devices."""
