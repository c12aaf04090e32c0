"""The kernels of training: each launched on small, ragged operands, beside what numpy says.

An operation here is a trial: it draws operands, launches one entry point and answers what should
have come out, in double precision.
"""

from collections.abc import Callable, Iterator, Sequence
from math import erf

import numpy as np
from numpy.typing import NDArray

from kernels.harness.device import Floats
from kernels.harness.perceptron import BACK, MR, tiles
from kernels.harness.trial import GROUP, Array, Trial, draw
from kernels.harness.window_trials import convolutions, pools


def trials(seed: int) -> Iterator[Trial]:
    """Every kernel of training, on shapes that fit no tile."""
    dice = np.random.default_rng(seed)
    families = (_activations, _losses, _updates, _reductions, _plumbing, _dense)
    for family in (*families, convolutions, pools, _norms):
        yield from family(dice)


# -- values and rows


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
    x, dy, bias = 3 * draw(dice, 5, 7, 11), draw(dice, 5, 7, 11), draw(dice, 7)
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
    x, labels = 4 * draw(dice, 13, 10), dice.integers(0, 10, 13).astype(np.int32)
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
    target = draw(dice, 13, 10)
    away = x.astype(np.float64) - target
    yield Trial("losses.cl", "squared_error", (130,), (130,), (x, target), (away**2,))
    yield Trial(
        "losses.cl", "squared_error_gradient", (130,), (130,), (x, target), (2 * away / 130,)
    )
    rows = loss.astype(np.float32)
    yield Trial("losses.cl", "mean_loss", (1,), (13,), (rows,), (np.array([loss.mean()]),))
    share = np.array([(x.argmax(1) == labels).mean()])
    yield Trial("losses.cl", "accuracy", (1,), (13, 10), (x, labels), (share,))


def _updates(dice: np.random.Generator) -> Iterator[Trial]:
    p, g, m = (draw(dice, 77) for _ in range(3))
    v = np.abs(draw(dice, 77))
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
    rows, images = draw(dice, 19, 23), draw(dice, 3, 5, 9, 11)
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


def _plumbing(dice: np.random.Generator) -> Iterator[Trial]:
    x, z, bias = draw(dice, 5, 7, 11), draw(dice, 5, 7, 11), draw(dice, 7)
    size, file = (x.size,), "plumbing.cl"
    yield Trial(file, "add_two", size, (x.size,), (x, z), (x.astype(np.float64) + z,))
    for first, sum_ in ((1, x), (0, z + x)):
        yield Trial(file, "add_one", size, (x.size, first), (x, z), (sum_,), changed=(1,))
    biased = x + bias[:, None]
    yield Trial(file, "add_bias", size, (x.size, 7, 11), (bias, x), (biased,), changed=(1,))
    whole = draw(dice, 5, 20, 11)  # of which x is the part from channel 4 on
    filled = whole.copy()
    filled[:, 4:11] = x
    part = (x.size, 77, 220, 44)
    yield Trial(file, "to_part", size, part, (x, whole), (filled,), changed=(1,))
    yield Trial(file, "from_part", size, part, (whole,), (whole[:, 4:11],))
    key, dropped = np.uint64(0x123456789ABCDEF1), 0x4000
    bits = _stirred(key + np.arange(x.size, dtype=np.uint64) // 4 * np.uint64(0x9E3779B97F4A7C15))
    turn = np.arange(x.size, dtype=np.uint64) % 4 * 16
    stays = ((bits >> turn) & np.uint64(0xFFFF) >= dropped).reshape(x.shape)
    given = (x, np.zeros_like(x), np.zeros(x.shape, np.uint8))
    numbers = (x.size, 4 / 3, dropped, key)
    yield Trial(file, "dropout", size, numbers, given, (x * stays * 4 / 3,), changed=(1,))


def _stirred(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    for _ in range(2):
        x = (x ^ (x >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return x ^ (x >> np.uint64(32))


def _dense(dice: np.random.Generator) -> Iterator[Trial]:
    """A layer over the rows behind the first two of x, narrower and wider than a tile."""
    file, rows, into, rate = "dense.cl", 7, 21, 0.1
    for out in (5, 37):
        x, w, bias = draw(dice, 2 + rows, into), draw(dice, into, out), draw(dice, out)
        batch, dz = x[2:], draw(dice, rows, out)
        slopes = dz.astype(np.float64)
        y = batch @ w.astype(np.float64) + bias
        shape, given = (rows, into, out), (x, w, bias)
        across = tiles(out, rows)
        yield Trial(file, "dense_forward", across, (*shape, 1, 2), given, (np.maximum(y, 0),))
        yield Trial(file, "dense_forward", across, (*shape, 0, 2), given, (y,))
        back = (slopes @ w.T) * (batch > 0)
        size = (-(-into // MR), -(-rows // BACK))
        yield Trial(file, "dense_input_gradient", size, shape, (batch, dz, w), (back,))
        learned = (w - rate * batch.T @ slopes, bias - rate * slopes.sum(0))
        numbers, size = (*shape, rate, 2), tiles(out, into)
        yield Trial(file, "dense_update", size, numbers, (x, dz, w, bias), learned, changed=(2, 3))
        given_back, expected = (batch, dz, w, bias), (*learned, back)
        size = (-(-into // MR), 1)
        yield Trial(file, "dense_back", size, (*shape, rate), given_back, expected, changed=(2, 3))
        z, labels = 4 * draw(dice, rows, out), dice.integers(0, out, 2 + rows).astype(np.int32)
        raised = np.exp(z.astype(np.float64) - z.max(1, keepdims=True))
        shares = raised / raised.sum(1, keepdims=True)
        right = np.eye(out)[labels[2:]]
        lost = -np.log((shares * right).sum(1))
        slope = (shares - right) / rows
        yield Trial(file, "dense_loss", (rows,), (rows, out, 2), (z, labels), (slope, lost))


def _norms(dice: np.random.Generator) -> Iterator[Trial]:
    x, dy = 2 + draw(dice, 3, 5, 7, 9), draw(dice, 3, 5, 7, 9)
    scale, shift, rmean = (draw(dice, 5) for _ in range(3))
    rvar = np.abs(draw(dice, 5))
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
