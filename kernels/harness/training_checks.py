"""Checks of all training kernels: small, ragged operands, with results from numpy.

A check draws operands, names the kernel to launch, and has the expected results in double
precision.
"""

from collections.abc import Callable, Iterator
from math import erf

import numpy as np
from numpy.typing import NDArray

from kernels.harness.device_perceptron import GRAD_ROWS, MR, tile_grid
from kernels.harness.kernel_check import GROUP, Array, KernelCheck, draw
from kernels.harness.loss_checks import loss_checks
from kernels.harness.norm_checks import norm_checks
from kernels.harness.sequence_checks import sequence_checks
from kernels.harness.window_checks import conv_checks, pooling_checks


def training_checks(seed: int) -> Iterator[KernelCheck]:
    """Yield checks of every training kernel, with shapes that are not multiples of a tile."""
    generator = np.random.default_rng(seed)
    own = (_activations, _updates, _clipped_updates, _reductions, _shape_ops, _loads, _dense)
    for family in (*own, loss_checks, conv_checks, pooling_checks, norm_checks, sequence_checks):
        yield from family(generator)


# ---- values and rows ----


_FUNCTIONS: dict[str, tuple[Callable[[Array], Array], Callable[[Array, Array], Array]]] = {
    "RELU": (lambda x: np.maximum(x, 0), lambda x, y: (y > 0) * 1.0),
    "RELU6": (lambda x: np.clip(x, 0, 6), lambda x, y: ((y > 0) & (y < 6)) * 1.0),
    "LEAKY": (lambda x: np.where(x > 0, x, 0.2 * x), lambda x, y: np.where(y > 0, 1, 0.2)),
    "TANH": (np.tanh, lambda x, y: 1 - y * y),
    "SIGMOID": (lambda x: 1 / (1 + np.exp(-x)), lambda x, y: y * (1 - y)),
    "GELU": (
        lambda x: x * _normal_cdf(x),
        lambda x, y: _normal_cdf(x) + x * np.exp(-x * x / 2) / np.sqrt(2 * np.pi),
    ),
}


def _normal_cdf(x: Array) -> Array:
    return np.array([0.5 * (1 + erf(value / 2**0.5)) for value in x.flat]).reshape(x.shape)


def _activations(generator: np.random.Generator) -> Iterator[KernelCheck]:
    x, dy = 3 * draw(generator, 5, 7, 11), draw(generator, 5, 7, 11)
    for name, (function, derivative) in _FUNCTIONS.items():
        defines = (f"ACTIVATION={name}",)
        y = function(x.astype(np.float64))
        forward = x if name == "GELU" else y.astype(np.float32)
        grad = derivative(x.astype(np.float64), y) * dy
        size, scalars = (x.size,), (x.size, 0.2)
        yield KernelCheck("activation_forward", size, scalars, (x,), (y,), defines=defines)
        yield KernelCheck(
            "activation_gradient", size, scalars, (forward, dy), (grad,), defines=defines
        )
    mask = (generator.random(x.shape) < 0.5).astype(np.uint8)
    yield KernelCheck("apply_mask", (x.size,), (x.size, 2.0), (mask, x), (2.0 * mask * x,))


def _loads(generator: np.random.Generator) -> Iterator[KernelCheck]:
    """Yield checks of a batch of 5 of 7 samples that begins at sample 4 and wraps around."""
    pixels = generator.integers(0, 256, (7, 11)).astype(np.uint8)
    rows, order, size = draw(generator, 7, 11), [4, 5, 6, 0, 1], (55,)
    scaled = pixels[order].astype(np.float64) / 128 - 1
    scalars = (55, 11, 7, 4)
    scaling = (1 / 128, -1.0)
    yield KernelCheck("load_bytes", size, (*scalars, *scaling), (pixels,), (scaled,))
    yield KernelCheck("load_words", size, scalars, (rows,), (rows[order],))


def _updates(generator: np.random.Generator) -> Iterator[KernelCheck]:
    p, g, m = (draw(generator, 77) for _ in range(3))
    v = np.abs(draw(generator, 77))
    p64, g64, m64, v64 = (values.astype(np.float64) for values in (p, g, m, v))
    stepped = p64 - 0.1 * (g64 + 0.01 * p64)
    yield KernelCheck("sgd", (77,), (77, 0.1, 0.01), (p, g), (stepped,), in_place=(0,))
    velocity = 0.9 * m64 + g64 + 0.01 * p64
    yield KernelCheck(
        "momentum",
        (77,),
        (77, 0.1, 0.9, 0.01),
        (p, g, m),
        (p64 - 0.1 * velocity, velocity),
        in_place=(0, 2),
    )
    first, second = 0.9 * m64 + 0.1 * g64, 0.999 * v64 + 0.001 * g64**2
    updated = p64 - 0.1 * 2.0 * first / (np.sqrt(3.0 * second) + 1e-8)
    yield KernelCheck(
        "adam",
        (77,),
        (77, 0.1, 0.9, 0.999, 1e-8, 2.0, 3.0),
        (p, g, m, v),
        (updated, first, second),
        in_place=(0, 2, 3),
    )


def _clipped_updates(generator: np.random.Generator) -> Iterator[KernelCheck]:
    p, g, m = (draw(generator, 77) for _ in range(3))
    v = np.abs(draw(generator, 77))
    total = np.array([400.0], np.float32)
    p64, g64, m64, v64 = (value.astype(np.float64) for value in (p, g, m, v))
    limited = g64 * 0.5 * min(1.0, 3.0 / (0.5 * 20.0 + 1e-6))
    first, second = 0.9 * m64 + 0.1 * limited, 0.999 * v64 + 0.001 * limited**2
    updated = p64 * (1 - 0.1 * 0.2) - 0.1 * 2.0 * first / (np.sqrt(3.0 * second) + 1e-8)
    yield KernelCheck(
        "adamw",
        (77,),
        (77, 0.1, 0.9, 0.999, 1e-8, 2.0, 3.0, 0.2, 3.0, 0.5),
        (p, g, m, v, total),
        (updated, first, second),
        in_place=(0, 2, 3),
    )
    values = draw(generator, 1000)
    item = np.arange(1000) % (4 * GROUP)  # which work item adds a value
    parts = np.bincount(item // GROUP, values.astype(np.float64) ** 2, 4)
    yield KernelCheck("squared_norm_parts", (4 * GROUP,), (1000,), (values,), (parts,), (GROUP,))
    before = np.array([2.0], np.float32)
    sums = parts.astype(np.float32)
    yield KernelCheck(
        "squared_norm_total",
        (1,),
        (4, 1),
        (sums, before),
        (sums.sum(dtype=np.float64, keepdims=True) + 2.0,),
    )


def _reductions(generator: np.random.Generator) -> Iterator[KernelCheck]:
    rows, images = draw(generator, 19, 23), draw(generator, 3, 5, 9, 11)
    yield KernelCheck("row_bias_gradient", (23,), (19, 23), (rows,), (rows.sum(0, np.float64),))
    yield KernelCheck(
        "channel_bias_gradient",
        (5 * GROUP,),
        (3, 5, 99),
        (images,),
        (images.sum((0, 2, 3), np.float64),),
        (GROUP,),
    )


def _shape_ops(generator: np.random.Generator) -> Iterator[KernelCheck]:
    x, z, bias = draw(generator, 5, 7, 11), draw(generator, 5, 7, 11), draw(generator, 7)
    size = (x.size,)
    yield KernelCheck("add", size, (x.size,), (x, z), (x.astype(np.float64) + z,))
    for accumulates, sum_ in ((0, x), (1, z + x)):
        yield KernelCheck("accumulate", size, (x.size, accumulates), (x, z), (sum_,), in_place=(1,))
    yield KernelCheck("fill", size, (x.size, 0.5), (), (np.full(x.shape, 0.5),))
    yield KernelCheck("copy_scaled", size, (x.size, 0.5), (x,), (x * 0.5,))
    large = x.repeat(3, 1).repeat(3, 2)  # x as 5 x 7 rows of 11 pixels
    scalars: tuple[int, ...] = (large.size, 11, 3)
    yield KernelCheck("upsample_forward", (large.size,), scalars, (x,), (large,))
    wide = draw(generator, *large.shape)
    sums = wide.astype(np.float64).reshape(5, 7, 3, 11, 3).sum((2, 4))
    yield KernelCheck("upsample_gradient", size, (x.size, 11, 3), (wide,), (sums,))
    biased = x + bias[:, None]
    yield KernelCheck("add_bias", size, (x.size, 7, 11), (bias, x), (biased,), in_place=(1,))
    joined = draw(generator, 5, 20, 11)  # x is its piece from channel 4 on
    filled = joined.copy()
    filled[:, 4:11] = x
    piece = (x.size, 77, 220, 44)
    yield KernelCheck("concat_piece", size, piece, (x, joined), (filled,), in_place=(1,))
    yield KernelCheck("split_piece", size, piece, (joined,), (joined[:, 4:11],))
    key, threshold = np.uint64(0x123456789ABCDEF1), 0x4000
    bits = _mix_bits(key + np.arange(x.size, dtype=np.uint64) // 4 * np.uint64(0x9E3779B97F4A7C15))
    shift = np.arange(x.size, dtype=np.uint64) % 4 * 16
    kept = ((bits >> shift) & np.uint64(0xFFFF) >= threshold).reshape(x.shape)
    inputs = (x, np.zeros_like(x), np.zeros(x.shape, np.uint8))
    dropping = (x.size, 4 / 3, threshold, key)
    yield KernelCheck("dropout_forward", size, dropping, inputs, (x * kept * 4 / 3,), in_place=(1,))


def _mix_bits(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    for _ in range(2):
        x = (x ^ (x >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return x ^ (x >> np.uint64(32))


def _dense(generator: np.random.Generator) -> Iterator[KernelCheck]:
    """Yield checks of layers narrower and wider than a tile, over rows 2.. of x."""
    rows, into, rate = 7, 21, 0.1
    for out in (5, 37):
        x, w, bias = (
            draw(generator, 2 + rows, into),
            draw(generator, into, out),
            draw(generator, out),
        )
        batch, dz = x[2:], draw(generator, rows, out)
        dz64 = dz.astype(np.float64)
        y = batch @ w.astype(np.float64) + bias
        shape, inputs = (rows, into, out), (x, w, bias)
        grid = tile_grid(out, rows)
        yield KernelCheck("dense_forward", grid, (*shape, 1, 2), inputs, (np.maximum(y, 0),))
        yield KernelCheck("dense_forward", grid, (*shape, 0, 2), inputs, (y,))
        dx = (dz64 @ w.T) * (batch > 0)
        size = (-(-into // MR), -(-rows // GRAD_ROWS))
        yield KernelCheck("dense_input_gradient", size, shape, (batch, dz, w), (dx,))
        updated = (w - rate * batch.T @ dz64, bias - rate * dz64.sum(0))
        scalars, size = (*shape, rate, 2), tile_grid(out, into)
        yield KernelCheck("dense_update", size, scalars, (x, dz, w, bias), updated, in_place=(2, 3))
        fused_inputs, expected = (batch, dz, w, bias), (*updated, dx)
        size = (-(-into // MR), 1)
        yield KernelCheck(
            "dense_backward", size, (*shape, rate), fused_inputs, expected, in_place=(2, 3)
        )
        z, labels = (
            4 * draw(generator, rows, out),
            generator.integers(0, out, 2 + rows).astype(np.int32),
        )
        powers = np.exp(z.astype(np.float64) - z.max(1, keepdims=True))
        probs = powers / powers.sum(1, keepdims=True)
        one_hot = np.eye(out)[labels[2:]]
        loss = -np.log((probs * one_hot).sum(1))
        grad = (probs - one_hot) / rows
        yield KernelCheck("dense_loss", (rows,), (rows, out, 2), (z, labels), (grad, loss))
