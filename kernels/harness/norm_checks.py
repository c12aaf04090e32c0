"""Checks of batch and layer normalization, and of their gradients."""

from collections.abc import Iterator, Sequence

import numpy as np

from kernels.harness.kernel_check import GROUP, Array, KernelCheck, draw
from kernels.harness.opencl_device import Floats


def norm_checks(generator: np.random.Generator) -> Iterator[KernelCheck]:
    """Yield checks of every kernel of norms.cl."""
    yield from _batch_norm(generator)
    yield from _layer_norm(generator)


def _batch_norm(generator: np.random.Generator) -> Iterator[KernelCheck]:
    x, dy = 2 + draw(generator, 3, 5, 7, 9), draw(generator, 3, 5, 7, 9)
    scale, shift, rmean = (draw(generator, 5) for _ in range(3))
    rvar = np.abs(draw(generator, 5))
    x64 = x.astype(np.float64)
    mean, var, count = x64.mean((0, 2, 3)), x64.var((0, 2, 3)), 3 * 7 * 9
    rstd = 1 / np.sqrt(var + 1e-5)

    def wide(row: Sequence[float] | Array | Floats) -> Array:
        return np.asarray(row, np.float64)[:, None, None]

    value = (x64 - wide(mean)) * wide(rstd)
    dscale, dshift = (dy * value).sum((0, 2, 3)), dy.sum((0, 2, 3), dtype=np.float64)
    dx = wide(scale * rstd) * (dy - wide(dshift) / count - value * wide(dscale) / count)
    running_mean = 0.9 * rmean + 0.1 * mean
    running_var = 0.9 * rvar + 0.1 * var * count / (count - 1)
    zeros = [np.zeros(5, np.float32) for _ in range(2)]
    shape = (3, 5, 63)
    y = value * wide(scale) + wide(shift)
    yield KernelCheck(
        "batch_norm_forward",
        (5 * GROUP,),
        (*shape, 0.9, 1e-5),
        (x, scale, shift, np.zeros_like(x), *zeros, rmean, rvar),
        (y, mean, rstd, running_mean, running_var),
        (GROUP,),
        in_place=(3, 4, 5, 6, 7),
    )
    yield KernelCheck(
        "batch_norm_gradient",
        (5 * GROUP,),
        shape,
        (x, dy, scale, shift, mean.astype(np.float32), rstd.astype(np.float32)),
        (dscale, dshift, dx),
        (GROUP,),
    )
    statistics = (mean.astype(np.float32), rstd.astype(np.float32))
    yield KernelCheck(
        "batch_norm_weight_gradient",
        (5 * GROUP,),
        shape,
        (x, dy, *statistics),
        (dscale, dshift),
        (GROUP,),
    )
    known = (dscale.astype(np.float32), dshift.astype(np.float32))
    yield KernelCheck(
        "batch_norm_input_gradient",
        (x.size,),
        (x.size, 5, 63, 3),
        (x, dy, scale, *statistics, *known),
        (dx,),
    )
    normalised = (x64 - wide(rmean)) / np.sqrt(wide(rvar) + 1e-5) * wide(scale) + wide(shift)
    yield KernelCheck(
        "batch_norm_inference",
        (x.size,),
        (x.size, 5, 63, 1e-5),
        (x, scale, shift, rmean, rvar),
        (normalised,),
    )


def _layer_norm(generator: np.random.Generator) -> Iterator[KernelCheck]:
    rows, length = 4, 77  # more than one value per work item of a group
    x, dy = 2 + draw(generator, rows, length), draw(generator, rows, length)
    scale, shift = draw(generator, length), draw(generator, length)
    x64 = x.astype(np.float64)
    mean, rstd = x64.mean(1), 1 / np.sqrt(x64.var(1) + 1e-5)
    value = (x64 - mean[:, None]) * rstd[:, None]
    groups, statistics = (rows * GROUP,), (mean.astype(np.float32), rstd.astype(np.float32))
    yield KernelCheck(
        "layer_norm_forward",
        groups,
        (length, 1e-5),
        (x, scale, shift),
        (value * scale + shift, mean, rstd),
        (GROUP,),
    )
    yield KernelCheck(
        "layer_norm_weight_gradient",
        (length,),
        (rows, length),
        (x, dy, *statistics),
        ((dy * value).sum(0), dy.sum(0, dtype=np.float64)),
    )
    grad = dy.astype(np.float64) * scale
    dx = grad - grad.mean(1, keepdims=True) - value * (grad * value).mean(1, keepdims=True)
    inputs = (x, dy, scale, *statistics)
    yield KernelCheck(
        "layer_norm_input_gradient", groups, (length,), inputs, (dx * rstd[:, None],), (GROUP,)
    )
