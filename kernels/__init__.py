"""What runs on the phone: the runner, its training engine, and the OpenCL kernels."""
