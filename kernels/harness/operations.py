"""The kernels of training: each launched on small, ragged operands, beside what numpy says.

An operation here is a trial: it draws operands, launches one entry point and answers what should
have come out, in double precision.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import erf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.harness.device import Device, Floats

Array = NDArray[Any]
GROUP = 64
TOLERANCE = 1e-5  # of the largest error, relative to the largest value


@dataclass(frozen=True)
class Trial:
    """What to launch, and what should come out of it, output by output."""

    file: str
    entry: str
    size: tuple[int, ...]
    numbers: tuple[int | float, ...]
    given: tuple[Array, ...]
    expected: tuple[Array, ...]
    group: tuple[int, ...] | None = None
    defines: tuple[str, ...] = ()
    changed: tuple[int, ...] = ()  # operands that are outputs as well, before the new ones

    @property
    def name(self) -> str:
        """The entry point, with what it was built for."""
        return " ".join((self.entry, *(word.split("=")[-1].lower() for word in self.defines)))


def run_trial(device: Device, trial: Trial) -> float:
    """Launch it, and answer the largest error, relative to the largest value of each output."""
    program = device.program(trial.file, [f"-D{word}" for word in trial.defines])
    memory = [device.buffer(operand) for operand in trial.given]
    fresh = trial.expected[len(trial.changed) :]
    made = [device.buffer(np.full(value.shape, np.nan, np.float32)) for value in fresh]
    program.bind(trial.entry, trial.size, trial.group, *trial.numbers, *memory, *made)()
    outputs = [memory[at] for at in trial.changed] + made
    worst = 0.0
    for output, expected in zip(outputs, trial.expected, strict=True):
        whole = expected.dtype == np.int32
        seen = device.read(output, expected.shape)
        error = np.abs((seen.view(np.int32) if whole else seen) - expected)
        worst = max(worst, float(np.max(error) / max(1.0, np.max(np.abs(expected)))))
        if np.isnan(error).any():
            return float("nan")
    return worst


def trials(seed: int) -> Iterator[Trial]:
    """Every kernel of training, on shapes that fit no tile."""
    dice = np.random.default_rng(seed)
    for family in (_activations, _losses, _updates, _reductions, _convolutions, _pools, _norms):
        yield from family(dice)


# -- values and rows


def _draw(dice: np.random.Generator, *shape: int) -> Floats:
    return dice.standard_normal(shape).astype(np.float32)


_FUNCTIONS: dict[str, tuple[Callable[[Array], Array], Callable[[Array, Array], Array]]] = {
    "RELU": (lambda x: np.maximum(x, 0), lambda x, y: (y > 0) * 1.0),
    "RELU6": (lambda x: np.clip(x, 0, 6), lambda x, y: ((y > 0) & (y < 6)) * 1.0),
    "LEAKY": (lambda x: np.where(x > 0, x, 0.2 * x), lambda x, y: np.where(y > 0, 1, 0.2)),
    "TANH": (np.tanh, lambda x, y: 1 - y * y),
    "SIGMOID": (lambda x: 1 / (1 + np.exp(-x)), lambda x, y: y * (1 - y)),
    "GELU": (
        lambda x: x * _below(x),
        lambda x, y: _below(x) + x * np.exp(-x * x / 2) / np.sqrt(2 * np.pi),
    ),
}


def _below(x: Array) -> Array:
    return np.array([0.5 * (1 + erf(value / 2**0.5)) for value in x.flat]).reshape(x.shape)


def _activations(dice: np.random.Generator) -> Iterator[Trial]:
    x, dy, bias = 3 * _draw(dice, 5, 7, 11), _draw(dice, 5, 7, 11), _draw(dice, 7)
    for name, (function, slope) in _FUNCTIONS.items():
        defines = (f"ACTIVATION={name}",)
        y = function(x.astype(np.float64))
        seen = x if name == "GELU" else y.astype(np.float32)
        back = slope(x.astype(np.float64), y) * dy
        size, numbers = (x.size,), (x.size, 0.2)
        yield Trial(
            "activations.cl", "activation_forward", size, numbers, (x,), (y,), defines=defines
        )
        yield Trial(
            "activations.cl",
            "activation_gradient",
            size,
            numbers,
            (seen, dy),
            (back,),
            defines=defines,
        )
        biased = function(x.astype(np.float64) + bias[None, :, None])
        yield Trial(
            "activations.cl",
            "bias_activation",
            size,
            (x.size, 7, 11, 0.2),
            (x, bias),
            (biased,),
            defines=defines,
        )
    mask = (dice.random(x.shape) < 0.5).astype(np.uint8)
    yield Trial("activations.cl", "masked", (x.size,), (x.size, 2.0), (mask, x), (2.0 * mask * x,))


def _losses(dice: np.random.Generator) -> Iterator[Trial]:
    x, labels = 4 * _draw(dice, 13, 10), dice.integers(0, 10, 13).astype(np.int32)
    raised = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    shares = raised / raised.sum(1, keepdims=True)
    right = np.eye(10)[labels]
    loss = -np.log((shares * right).sum(1))
    yield Trial("losses.cl", "softmax_cross_entropy", (13,), (13, 10), (x, labels), (shares, loss))
    yield Trial(
        "losses.cl",
        "softmax_cross_entropy_gradient",
        (13, 10),
        (13, 10),
        (shares.astype(np.float32), labels),
        ((shares - right) / 13,),
    )
    target = _draw(dice, 13, 10)
    away = x.astype(np.float64) - target
    yield Trial("losses.cl", "squared_error", (130,), (130,), (x, target), (away**2,))
    yield Trial(
        "losses.cl", "squared_error_gradient", (130,), (130,), (x, target), (2 * away / 130,)
    )
    rows = loss.astype(np.float32)
    yield Trial("losses.cl", "mean_loss", (1,), (13,), (rows,), (np.array([loss.mean()]),))


def _updates(dice: np.random.Generator) -> Iterator[Trial]:
    p, g, m = (_draw(dice, 77) for _ in range(3))
    v = np.abs(_draw(dice, 77))
    p64, g64, m64, v64 = (each.astype(np.float64) for each in (p, g, m, v))
    stepped = p64 - 0.1 * (g64 + 0.01 * p64)
    yield Trial("updates.cl", "sgd", (77,), (77, 0.1, 0.01), (p, g), (stepped,), changed=(0,))
    speed = 0.9 * m64 + g64 + 0.01 * p64
    yield Trial(
        "updates.cl",
        "momentum",
        (77,),
        (77, 0.1, 0.9, 0.01),
        (p, g, m),
        (p64 - 0.1 * speed, speed),
        changed=(0, 2),
    )
    first, second = 0.9 * m64 + 0.1 * g64, 0.999 * v64 + 0.001 * g64**2
    moved = p64 - 0.1 * 2.0 * first / (np.sqrt(3.0 * second) + 1e-8)
    yield Trial(
        "updates.cl",
        "adam",
        (77,),
        (77, 0.1, 0.9, 0.999, 1e-8, 2.0, 3.0),
        (p, g, m, v),
        (moved, first, second),
        changed=(0, 2, 3),
    )


def _reductions(dice: np.random.Generator) -> Iterator[Trial]:
    rows, images = _draw(dice, 19, 23), _draw(dice, 3, 5, 9, 11)
    yield Trial(
        "reduce.cl", "row_bias_gradient", (23,), (19, 23), (rows,), (rows.sum(0, np.float64),)
    )
    yield Trial(
        "reduce.cl",
        "channel_bias_gradient",
        (5 * GROUP,),
        (3, 5, 99),
        (images,),
        (images.sum((0, 2, 3), np.float64),),
        (GROUP,),
    )


# -- windows


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


# A plain one, a stride with padding on one side, groups, a window of one pixel, depthwise.
_CONVOLUTIONS = (
    (2, 3, 5, (9, 11), 1, _Window((3, 3), (1, 1), (0, 0), (7, 9))),
    (2, 4, 6, (10, 9), 2, _Window((5, 3), (2, 2), (1, 0), (4, 4))),
    (3, 5, 7, (6, 6), 1, _Window((1, 1), (1, 1), (0, 0), (6, 6))),
    (2, 6, 6, (8, 10), 6, _Window((3, 3), (2, 1), (1, 1), (4, 10))),
)


def _convolutions(dice: np.random.Generator) -> Iterator[Trial]:
    for images, into, out, (height, width), groups, window in _CONVOLUTIONS:
        x, bias = _draw(dice, images, into, height, width), _draw(dice, out)
        w = _draw(dice, out, into // groups, *window.kernel)
        dy = _draw(dice, images, out, *window.out)
        shape = (images, into, height, width, out, *window.out, groups, *window.numbers)
        y, dx, dw = _convolve(x, w, dy, groups, window)
        biased = y + bias[:, None, None]
        blocks = -(-(out // groups) // 4) * groups * images
        across = -(-window.out[1] // 4)
        yield Trial(
            "conv.cl",
            "conv_forward",
            (across, window.out[0], blocks),
            (*shape, 1),
            (x, w, bias),
            (biased,),
        )
        yield Trial(
            "conv.cl", "conv_input_gradient", (width, height, images * into), shape, (w, dy), (dx,)
        )
        taps = window.kernel[0] * window.kernel[1]
        yield Trial(
            "conv.cl", "conv_weight_gradient", (taps, into // groups, out), shape, (x, dy), (dw,)
        )
        if groups == into == out:
            planes = (images * into, into, height, width, *window.out, *window.numbers, 1)
            size = (across, window.out[0], images * into)
            yield Trial("depthwise.cl", "depthwise_forward", size, planes, (x, w, bias), (biased,))


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


def _pools(dice: np.random.Generator) -> Iterator[Trial]:
    for size, window in (
        ((8, 10), _Window((2, 2), (2, 2), (0, 0), (4, 5))),
        ((9, 7), _Window((3, 3), (2, 2), (1, 0), (5, 4))),
    ):
        x, dy = _draw(dice, 6, *size), _draw(dice, 6, *window.out)
        yield from _pool(x, dy, window)
    x, dy = _draw(dice, 6, 5, 7), _draw(dice, 6)
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


def _norms(dice: np.random.Generator) -> Iterator[Trial]:
    x, dy = 2 + _draw(dice, 3, 5, 7, 9), _draw(dice, 3, 5, 7, 9)
    scale, shift, rmean = (_draw(dice, 5) for _ in range(3))
    rvar = np.abs(_draw(dice, 5))
    x64 = x.astype(np.float64)
    mean, var, count = x64.mean((0, 2, 3)), x64.var((0, 2, 3)), 3 * 7 * 9
    rstd = 1 / np.sqrt(var + 1e-5)

    def wide(row: Sequence[float] | Array | Floats) -> Array:
        return np.asarray(row, np.float64)[:, None, None]

    value = (x64 - wide(mean)) * wide(rstd)
    along, straight = (dy * value).sum((0, 2, 3)), dy.sum((0, 2, 3), dtype=np.float64)
    dx = wide(scale * rstd) * (dy - wide(straight) / count - value * wide(along) / count)
    seen_mean = 0.9 * rmean + 0.1 * mean
    seen_var = 0.9 * rvar + 0.1 * var * count / (count - 1)
    nothing = [np.zeros(5, np.float32) for _ in range(2)]
    shape = (3, 5, 63)
    y = value * wide(scale) + wide(shift)
    yield Trial(
        "norms.cl",
        "batch_norm_forward",
        (5 * GROUP,),
        (*shape, 0.9, 1e-5),
        (x, scale, shift, np.zeros_like(x), *nothing, rmean, rvar),
        (y, mean, rstd, seen_mean, seen_var),
        (GROUP,),
        changed=(3, 4, 5, 6, 7),
    )
    yield Trial(
        "norms.cl",
        "batch_norm_gradient",
        (5 * GROUP,),
        shape,
        (x, dy, scale, shift, mean.astype(np.float32), rstd.astype(np.float32)),
        (along, straight, dx),
        (GROUP,),
    )
    known = (x64 - wide(rmean)) / np.sqrt(wide(rvar) + 1e-5) * wide(scale) + wide(shift)
    yield Trial(
        "norms.cl",
        "batch_norm_inference",
        (x.size,),
        (x.size, 5, 63, 1e-5),
        (x, scale, shift, rmean, rvar),
        (known,),
    )
