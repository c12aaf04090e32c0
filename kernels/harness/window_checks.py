"""Checks of kernels over windows: convolutions and pooling, with results from numpy."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.harness.conv_layout import (
    GRAD_INS,
    GRAD_OUTS,
    OUT_BLOCK,
    WIDE,
    ConvLayout,
    pack_launch,
    weight_gradient_shape,
)
from kernels.harness.kernel_check import Array, KernelCheck, draw
from kernels.harness.opencl_device import Floats


@dataclass(frozen=True)
class _Window:
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    out: tuple[int, int]

    def taps(self, padded: Array) -> Iterator[tuple[int, int, Any]]:
        """Yield every tap of the window with the view of its inputs."""
        (kh, kw), (sh, sw), (oh, ow) = self.kernel, self.stride, self.out
        for ky in range(kh):
            for kx in range(kw):
                yield ky, kx, padded[..., ky : ky + sh * oh : sh, kx : kx + sw * ow : sw]

    def padded(self, x: Array | Floats, value: float = 0.0) -> Array:
        """Pad the image on all sides."""
        height = self.stride[0] * self.out[0] + self.kernel[0]
        width = self.stride[1] * self.out[1] + self.kernel[1]
        room = np.full(
            (
                *x.shape[:-2],
                max(height, x.shape[-2] + self.padding[0]) + 1,
                max(width, x.shape[-1] + self.padding[1]) + 1,
            ),
            value,
        )
        top, left = self.padding
        room[..., top : top + x.shape[-2], left : left + x.shape[-1]] = x
        return room

    @property
    def ints(self) -> tuple[int, ...]:
        return (*self.kernel, *self.stride, *self.padding)


# Plain, a stride with padding on one side and groups, pointwise over a long row and over a short
# one, 1x1 with a stride, depthwise.
_CONVOLUTIONS = (
    (2, 3, 9, (9, 21), 1, _Window((3, 3), (1, 1), (1, 1), (9, 21))),
    (2, 4, 6, (10, 9), 2, _Window((5, 3), (2, 2), (1, 0), (4, 4))),
    (3, 5, 7, (6, 6), 1, _Window((1, 1), (1, 1), (0, 0), (6, 6))),
    (2, 3, 5, (1, 3), 1, _Window((1, 1), (1, 1), (0, 0), (1, 3))),
    (2, 3, 5, (7, 8), 1, _Window((1, 1), (2, 3), (0, 0), (4, 3))),
    (2, 6, 6, (8, 10), 6, _Window((3, 3), (2, 1), (1, 1), (4, 10))),
)


def conv_checks(generator: np.random.Generator) -> Iterator[KernelCheck]:
    """Yield checks of every convolution kernel, each on the expected result of the one before."""
    for images, into, out, (height, width), groups, window in _CONVOLUTIONS:
        x, bias = draw(generator, images, into, height, width), draw(generator, out)
        w = draw(generator, out, into // groups, *window.kernel)
        dy = draw(generator, images, out, *window.out)
        y, dx, dw = _convolve(x, w, dy, groups, window)
        biased = y + bias[:, None, None]
        layout = ConvLayout.of(x.shape, dy.shape, (groups, *window.ints))
        yield from _pack_image_checks(layout, x)
        yield from _pack_image_checks(layout.backward, dy)
        yield from _conv_packed_checks(layout, x, w, bias, biased, transposed=False)
        no_bias = np.zeros(into, np.float32)
        yield from _conv_packed_checks(layout.backward, dy, w, no_bias, dx, transposed=True)
        packed = (_packed(layout, x), _packed(layout.gradient, dy))
        blocks = -(-(out // groups) // GRAD_OUTS) * groups
        size = (window.kernel[0] * window.kernel[1], -(-(into // groups) // GRAD_INS), blocks)
        scalars = weight_gradient_shape(layout)
        yield KernelCheck("conv_weight_gradient", size, scalars, packed, (dw,))
        if groups == into == out:
            planes = (images * into, into, height, width, *window.out, *window.ints)
            windows = (-(-window.out[1] // 4), window.out[0], images * into)
            pixels, taps = (width, height, images * into), (size[0], into)
            variants: dict[
                str, tuple[tuple[int, ...], tuple[int, ...], tuple[Floats, ...], Array]
            ] = {
                "forward": (windows, (*planes, 1), (x, w, bias), biased),
                "input_gradient": (pixels, planes, (w, dy), dx),
                "weight_gradient": (taps, planes, (x, dy), dw),
            }
            for name, (grid, scalars, inputs, expected) in variants.items():
                entry = f"depthwise_{name}"
                yield KernelCheck(entry, grid, scalars, inputs, (expected,))


def _pack_image_checks(layout: ConvLayout, x: Floats) -> Iterator[KernelCheck]:
    if not layout.pointwise:
        size, scalars = pack_launch(layout)
        yield KernelCheck("pack_image", size, scalars, (x,), (_packed(layout, x),))


def _packed(layout: ConvLayout, x: Floats) -> Floats:
    """Pack an image as the kernel pack_image should."""
    if layout.pointwise:
        return x
    phases, (top, left), (spread_y, spread_x) = layout.stride[1], layout.padding, layout.spread
    canvas = np.zeros((*x.shape[:2], layout.rows + 99, layout.length * phases + 99), np.float32)
    bottom, right = top + spread_y * x.shape[2], left + spread_x * x.shape[3]
    canvas[:, :, top:bottom:spread_y, left:right:spread_x] = x
    rows = canvas[:, :, : layout.rows, : layout.length * phases]
    by_phase = rows.reshape(*x.shape[:2], layout.rows, layout.length, phases).swapaxes(3, 4)
    return np.ascontiguousarray(by_phase)


def _conv_packed_checks(
    layout: ConvLayout, x: Floats, w: Floats, bias: Floats, expected: Array, transposed: bool
) -> Iterator[KernelCheck]:
    """Yield checks of packing the weights, and of the convolution itself."""
    outs, ins = layout.outs // layout.groups, layout.ins // layout.groups
    taps = layout.kernel[0] * layout.kernel[1]
    first, second = (ins, outs) if transposed else (outs, ins)
    plain = w.reshape(layout.groups, first, second, taps)
    plain = plain[..., ::-1].swapaxes(1, 2) if transposed else plain
    padded = np.zeros((layout.groups, -(-outs // OUT_BLOCK) * OUT_BLOCK, ins, taps), np.float32)
    padded[:, :outs] = plain
    blocks = padded.reshape(layout.groups, -1, OUT_BLOCK, ins, taps).transpose(0, 1, 3, 4, 2)
    weights = np.ascontiguousarray(blocks)
    scalars = (layout.groups, outs, ins, taps, int(transposed))
    size = (ins * taps, layout.blocks)
    yield KernelCheck("pack_weights", size, scalars, (w,), (weights,))
    grid = (-(-layout.out_width // WIDE), layout.out_height, layout.blocks * layout.images)
    inputs = (_packed(layout, x), weights, bias)
    yield KernelCheck("conv_packed", grid, (*layout.shape, 1), inputs, (expected,))


def _convolve(
    x: Floats, w: Floats, dy: Floats, groups: int, window: _Window
) -> tuple[Array, Array, Array]:
    """Compute output, input gradient and weight gradient, tap by tap."""
    padded, dx = window.padded(x), window.padded(np.zeros_like(x))
    y, dw = np.zeros(dy.shape), np.zeros(w.shape)
    depth, per_group = x.shape[1] // groups, w.shape[0] // groups
    for (ky, kx, inputs), (_, _, gradients) in zip(
        window.taps(padded), window.taps(dx), strict=True
    ):
        for group in range(groups):
            ins = slice(group * depth, (group + 1) * depth)
            outs = slice(group * per_group, (group + 1) * per_group)
            tap = w[outs, :, ky, kx].astype(np.float64)
            y[:, outs] += np.einsum("oc,nchw->nohw", tap, inputs[:, ins])
            gradients[:, ins] += np.einsum("oc,nohw->nchw", tap, dy[:, outs])
            dw[outs, :, ky, kx] = np.einsum("nohw,nchw->oc", dy[:, outs], inputs[:, ins])
    top, left = window.padding
    return y, dx[..., top : top + x.shape[2], left : left + x.shape[3]], dw


def pooling_checks(generator: np.random.Generator) -> Iterator[KernelCheck]:
    """Yield checks of every pooling kernel."""
    for size, window in (
        ((8, 10), _Window((2, 2), (2, 2), (0, 0), (4, 5))),
        ((9, 7), _Window((3, 3), (2, 2), (1, 0), (5, 4))),
    ):
        x, dy = draw(generator, 6, *size), draw(generator, 6, *window.out)
        yield from _pool(x, dy, window)
    x, dy = draw(generator, 6, 5, 7), draw(generator, 6)
    gradient = np.broadcast_to(dy[:, None, None] / 35.0, x.shape).astype(np.float64)
    yield KernelCheck(
        "global_avg_pool_forward", (6,), (6, 35), (x,), (x.mean((1, 2), dtype=np.float64),)
    )
    yield KernelCheck("global_avg_pool_gradient", (35, 6), (6, 35), (dy,), (gradient,))


def _pool(x: Floats, dy: Floats, window: _Window) -> Iterator[KernelCheck]:
    (planes, height, width), (oh, ow) = x.shape, window.out
    shape = (planes, height, width, oh, ow, *window.ints)
    inside = window.padded(np.ones_like(x))
    values = np.stack([view for *_, view in window.taps(window.padded(x, -np.inf))])
    covered = np.stack([view for *_, view in window.taps(inside)])
    maxima, count = values.max(0), covered.sum(0)
    top, left = window.padding
    pixel = np.full(inside.shape, -1.0)
    pixel_numbers = np.arange(height * width, dtype=np.float64).reshape(height, width)
    pixel[:, top : top + height, left : left + width] = pixel_numbers
    pixels = np.stack([view for *_, view in window.taps(pixel)])
    where = np.take_along_axis(pixels, values.argmax(0)[None], 0)[0].astype(np.int32)
    means = np.where(covered > 0, values, 0).sum(0) / count
    max_grad = np.zeros((planes, height * width))
    for plane in range(planes):
        np.add.at(max_grad[plane], where[plane].ravel(), dy[plane].ravel())
    avg_grad = np.zeros(inside.shape)
    for *_, view in window.taps(avg_grad):
        np.add(view, dy / count, out=view)
    avg_grad = avg_grad[:, top : top + height, left : left + width]
    forward, backward = (ow, oh, planes), (width, height, planes)
    yield KernelCheck("max_pool_forward", forward, shape, (x,), (maxima, where))
    yield KernelCheck(
        "max_pool_gradient", backward, shape, (where, dy), (max_grad.reshape(x.shape),)
    )
    yield KernelCheck("avg_pool_forward", forward, shape, (x,), (means,))
    yield KernelCheck("avg_pool_gradient", backward, shape, (dy,), (avg_grad,))
