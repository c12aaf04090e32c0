"""Trials of what moves windows over images: convolutions and pools, beside what numpy says."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.harness.convolutions import BLOCK, INS, OUTS, WIDE, Sweep, layout, weight_shape
from kernels.harness.device import Floats
from kernels.harness.trial import Array, Trial, draw


@dataclass(frozen=True)
class _Window:
    kernel: tuple[int, int]
    stride: tuple[int, int]
    before: tuple[int, int]
    out: tuple[int, int]

    def taps(self, padded: Array) -> Iterator[tuple[int, int, Any]]:
        """Every tap of the window with the view of what it sees."""
        (kh, kw), (sh, sw), (oh, ow) = self.kernel, self.stride, self.out
        for ky in range(kh):
            for kx in range(kw):
                yield ky, kx, padded[..., ky : ky + sh * oh : sh, kx : kx + sw * ow : sw]

    def padded(self, x: Array | Floats, value: float = 0.0) -> Array:
        """The image with room on all sides."""
        height = self.stride[0] * self.out[0] + self.kernel[0]
        width = self.stride[1] * self.out[1] + self.kernel[1]
        room = np.full(
            (
                *x.shape[:-2],
                max(height, x.shape[-2] + self.before[0]) + 1,
                max(width, x.shape[-1] + self.before[1]) + 1,
            ),
            value,
        )
        top, left = self.before
        room[..., top : top + x.shape[-2], left : left + x.shape[-1]] = x
        return room

    @property
    def numbers(self) -> tuple[int, ...]:
        return (*self.kernel, *self.stride, *self.before)


# A plain one, a stride with padding on one side, groups, a window of one pixel over a long row and
# over a short one, a window of one pixel that leaves pixels out, depthwise.
_CONVOLUTIONS = (
    (2, 3, 9, (9, 21), 1, _Window((3, 3), (1, 1), (1, 1), (9, 21))),
    (2, 4, 6, (10, 9), 2, _Window((5, 3), (2, 2), (1, 0), (4, 4))),
    (3, 5, 7, (6, 6), 1, _Window((1, 1), (1, 1), (0, 0), (6, 6))),
    (2, 3, 5, (1, 3), 1, _Window((1, 1), (1, 1), (0, 0), (1, 3))),
    (2, 3, 5, (7, 8), 1, _Window((1, 1), (2, 3), (0, 0), (4, 3))),
    (2, 6, 6, (8, 10), 6, _Window((3, 3), (2, 1), (1, 1), (4, 10))),
)


def convolutions(dice: np.random.Generator) -> Iterator[Trial]:
    """Every launch of a convolution and of its gradients, each on what should come before it."""
    for images, into, out, (height, width), groups, window in _CONVOLUTIONS:
        x, bias = draw(dice, images, into, height, width), draw(dice, out)
        w = draw(dice, out, into // groups, *window.kernel)
        dy = draw(dice, images, out, *window.out)
        y, dx, dw = _convolve(x, w, dy, groups, window)
        biased = y + bias[:, None, None]
        sweep = Sweep.of(x.shape, dy.shape, (groups, *window.numbers))
        yield from _laying(sweep, x)
        yield from _laying(sweep.back, dy)
        yield from _sweeping(sweep, x, w, bias, biased, turned=False)
        yield from _sweeping(sweep.back, dy, w, np.zeros(into, np.float32), dx, turned=True)
        laid, back = _laid(sweep, x), _laid(sweep.gradient, dy)
        blocks = -(-(out // groups) // OUTS) * groups
        size = (window.kernel[0] * window.kernel[1], -(-(into // groups) // INS), blocks)
        yield Trial(
            "conv.cl", "conv_weight_gradient", size, weight_shape(sweep), (laid, back), (dw,)
        )
        if groups == into == out:
            planes = (images * into, into, height, width, *window.out, *window.numbers)
            across = (-(-window.out[1] // 4), window.out[0], images * into)
            pixels, taps = (width, height, images * into), (size[0], into)
            every: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[Floats, ...], Array]] = {
                "forward": (across, (*planes, 1), (x, w, bias), biased),
                "input_gradient": (pixels, planes, (w, dy), dx),
                "weight_gradient": (taps, planes, (x, dy), dw),
            }
            for name, (over, numbers, given, right) in every.items():
                yield Trial("depthwise.cl", f"depthwise_{name}", over, numbers, given, (right,))


def _laying(sweep: Sweep, x: Floats) -> Iterator[Trial]:
    if not sweep.flat:
        size, numbers = layout(sweep)
        yield Trial("conv.cl", "lay_out", size, numbers, (x,), (_laid(sweep, x),))


def _laid(sweep: Sweep, x: Floats) -> Floats:
    """An image as lay_out() should leave it."""
    if sweep.flat:
        return x
    phases, (top, left), (apart_y, apart_x) = sweep.stride[1], sweep.margins, sweep.apart
    canvas = np.zeros((*x.shape[:2], sweep.rows + 99, sweep.length * phases + 99), np.float32)
    below, behind = top + apart_y * x.shape[2], left + apart_x * x.shape[3]
    canvas[:, :, top:below:apart_y, left:behind:apart_x] = x
    rows = canvas[:, :, : sweep.rows, : sweep.length * phases]
    sorted_ = rows.reshape(*x.shape[:2], sweep.rows, sweep.length, phases).swapaxes(3, 4)
    return np.ascontiguousarray(sorted_)


def _sweeping(
    sweep: Sweep, x: Floats, w: Floats, bias: Floats, right: Array, turned: bool
) -> Iterator[Trial]:
    """The weights laid out, and the convolution itself."""
    outs, ins = sweep.outs // sweep.groups, sweep.ins // sweep.groups
    taps = sweep.kernel[0] * sweep.kernel[1]
    first, second = (ins, outs) if turned else (outs, ins)
    plain = w.reshape(sweep.groups, first, second, taps)
    plain = plain[..., ::-1].swapaxes(1, 2) if turned else plain
    filled = np.zeros((sweep.groups, -(-outs // BLOCK) * BLOCK, ins, taps), np.float32)
    filled[:, :outs] = plain
    blocks = filled.reshape(sweep.groups, -1, BLOCK, ins, taps).transpose(0, 1, 3, 4, 2)
    weights = np.ascontiguousarray(blocks)
    numbers = (sweep.groups, outs, ins, taps, int(turned))
    size = (ins * taps, sweep.blocks)
    yield Trial("conv.cl", "lay_out_weights", size, numbers, (w,), (weights,))
    over = (-(-sweep.out_width // WIDE), sweep.out_height, sweep.blocks * sweep.images)
    given = (_laid(sweep, x), weights, bias)
    yield Trial("conv.cl", "convolve", over, (*sweep.shape, 1), given, (right,))


def _convolve(
    x: Floats, w: Floats, dy: Floats, groups: int, window: _Window
) -> tuple[Array, Array, Array]:
    """Output, image gradient and weight gradient, tap by tap."""
    padded, back = window.padded(x), window.padded(np.zeros_like(x))
    y, dw = np.zeros(dy.shape), np.zeros(w.shape)
    depth, per_group = x.shape[1] // groups, w.shape[0] // groups
    for (ky, kx, seen), (_, _, sent) in zip(window.taps(padded), window.taps(back), strict=True):
        for group in range(groups):
            ins = slice(group * depth, (group + 1) * depth)
            outs = slice(group * per_group, (group + 1) * per_group)
            tap = w[outs, :, ky, kx].astype(np.float64)
            y[:, outs] += np.einsum("oc,nchw->nohw", tap, seen[:, ins])
            sent[:, ins] += np.einsum("oc,nohw->nchw", tap, dy[:, outs])
            dw[outs, :, ky, kx] = np.einsum("nohw,nchw->oc", dy[:, outs], seen[:, ins])
    top, left = window.before
    return y, back[..., top : top + x.shape[2], left : left + x.shape[3]], dw


def pools(dice: np.random.Generator) -> Iterator[Trial]:
    """Every pool and its way back."""
    for size, window in (
        ((8, 10), _Window((2, 2), (2, 2), (0, 0), (4, 5))),
        ((9, 7), _Window((3, 3), (2, 2), (1, 0), (5, 4))),
    ):
        x, dy = draw(dice, 6, *size), draw(dice, 6, *window.out)
        yield from _pool(x, dy, window)
    x, dy = draw(dice, 6, 5, 7), draw(dice, 6)
    spread = np.broadcast_to(dy[:, None, None] / 35.0, x.shape).astype(np.float64)
    yield Trial(
        "pooling.cl",
        "global_avg_pool_forward",
        (6,),
        (6, 35),
        (x,),
        (x.mean((1, 2), dtype=np.float64),),
    )
    yield Trial("pooling.cl", "global_avg_pool_gradient", (35, 6), (6, 35), (dy,), (spread,))


def _pool(x: Floats, dy: Floats, window: _Window) -> Iterator[Trial]:
    (planes, height, width), (oh, ow) = x.shape, window.out
    shape = (planes, height, width, oh, ow, *window.numbers)
    inside = window.padded(np.ones_like(x))
    seen = np.stack([view for *_, view in window.taps(window.padded(x, -np.inf))])
    there = np.stack([view for *_, view in window.taps(inside)])
    greatest, count = seen.max(0), there.sum(0)
    top, left = window.before
    pixel = np.full(inside.shape, -1.0)
    numbers = np.arange(height * width, dtype=np.float64).reshape(height, width)
    pixel[:, top : top + height, left : left + width] = numbers
    pixels = np.stack([view for *_, view in window.taps(pixel)])
    where = np.take_along_axis(pixels, seen.argmax(0)[None], 0)[0].astype(np.int32)
    means = np.where(there > 0, seen, 0).sum(0) / count
    chosen = np.zeros((planes, height * width))
    for plane in range(planes):
        np.add.at(chosen[plane], where[plane].ravel(), dy[plane].ravel())
    shared = np.zeros(inside.shape)
    for *_, view in window.taps(shared):
        np.add(view, dy / count, out=view)
    shared = shared[:, top : top + height, left : left + width]
    forward, back = (ow, oh, planes), (width, height, planes)
    yield Trial("pooling.cl", "max_pool_forward", forward, shape, (x,), (greatest, where))
    yield Trial(
        "pooling.cl", "max_pool_gradient", back, shape, (where, dy), (chosen.reshape(x.shape),)
    )
    yield Trial("pooling.cl", "avg_pool_forward", forward, shape, (x,), (means,))
    yield Trial("pooling.cl", "avg_pool_gradient", back, shape, (dy,), (shared,))
