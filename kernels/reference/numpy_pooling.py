"""Maximum and mean pooling."""

import numpy as np

from kernels.reference.machine import Array, Call, Results, kind
from kernels.reference.numpy_window import Window


@kind("max_pool_forward")
def max_pool_forward(call: Call) -> Results:
    x = call[0]
    window = Window.of(call.op.ints, x.shape, call.shapes[0])
    seen = window.views(x, -np.inf)
    flat = seen.reshape(*seen.shape[:4], -1)
    best = flat.argmax(axis=-1)
    rows, columns = np.indices(window.positions)
    row = rows * window.stride[0] - window.before[0] + best // window.kernel[1]
    column = columns * window.stride[1] - window.before[1] + best % window.kernel[1]
    return flat.max(axis=-1), (row * x.shape[3] + column).astype(np.float64)


@kind("max_pool_gradient")
def max_pool_gradient(call: Call) -> Results:
    where, dy = call[0].astype(np.int64), call[1]
    n, c, height, width = call.shapes[0]
    dx = np.zeros((n * c, height * width))
    rows = np.arange(n * c)[:, None]
    np.add.at(dx, (rows, where.reshape(n * c, -1)), dy.reshape(n * c, -1))
    return (dx.reshape(call.shapes[0]),)


def _counts(window: Window) -> Array:
    ones = np.ones((1, 1, *window.size))
    return np.asarray(window.views(ones).sum(axis=(-1, -2)))


@kind("avg_pool_forward")
def avg_pool_forward(call: Call) -> Results:
    window = Window.of(call.op.ints, call[0].shape, call.shapes[0])
    return (window.views(call[0]).sum(axis=(-1, -2)) / _counts(window),)


@kind("avg_pool_gradient")
def avg_pool_gradient(call: Call) -> Results:
    dy, shape = call[0], call.shapes[0]
    window = Window.of(call.op.ints, shape, dy.shape)
    parts = np.broadcast_to((dy / _counts(window))[..., None, None], (*dy.shape, *window.kernel))
    return (window.spread(parts, shape[1]),)


@kind("global_avg_pool_forward")
def global_avg_pool_forward(call: Call) -> Results:
    return (call[0].mean(axis=(2, 3)).reshape(call.shapes[0]),)


@kind("global_avg_pool_gradient")
def global_avg_pool_gradient(call: Call) -> Results:
    n, c, height, width = call.shapes[0]
    each = call[0].reshape(n, c, 1, 1) / (height * width)
    return (np.broadcast_to(each, call.shapes[0]).copy(),)
