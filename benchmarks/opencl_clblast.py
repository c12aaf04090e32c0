"""CLBlast's product on the same device and queue, where pyclblast is installed."""

from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.harness.device import Device


def clblast_product(device: Device, a: np.ndarray, b: np.ndarray) -> Callable[[], None] | None:
    """A square product by CLBlast with the parameters it ships, checked once; None without it."""
    try:
        import pyclblast
        import pyopencl.array as arrays
    except ImportError:
        return None
    queue: Any = device._queue
    left, right = arrays.to_device(queue, a), arrays.to_device(queue, b)
    out = arrays.zeros(queue, (a.shape[0], b.shape[1]), np.float32)
    n = a.shape[0]

    def run() -> None:
        pyclblast.gemm(queue, n, n, n, left, right, out, a_ld=n, b_ld=n, c_ld=n)

    run()
    assert np.allclose(out.get(), a @ b, atol=1e-3), "CLBlast is wrong here"
    return run
