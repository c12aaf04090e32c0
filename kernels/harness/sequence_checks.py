"""Checks of the kernels for sequences: embedding, LSTM, attention and softmax.

The products between these kernels are variants of sgemm_common.cl, which matmul_check.py checks.
"""

from collections.abc import Iterator

import numpy as np

from kernels.harness.kernel_check import Array, KernelCheck, draw

SAMPLES, STEPS, UNITS = 3, 5, 7


def sequence_checks(generator: np.random.Generator) -> Iterator[KernelCheck]:
    """Yield checks of every kernel that works on time steps, tokens or rows."""
    for family in (_embedding, _lstm, _attention, _softmax, _time_steps):
        yield from family(generator)


def _embedding(generator: np.random.Generator) -> Iterator[KernelCheck]:
    rows, width = 6, 19
    tokens = np.array([0, 5, 3, 3, -1, 6, 1, 3], np.int32)  # two of them are not in the table
    known = (tokens >= 0) & (tokens < rows)
    table, dy = draw(generator, rows, width), draw(generator, len(tokens), width)
    y = np.where(known[:, None], table[np.where(known, tokens, 0)], 0.0)
    dtable = np.zeros((rows, width))
    np.add.at(dtable, tokens[known], dy[known].astype(np.float64))
    shape = (len(tokens), rows, width)
    grid = (width, len(tokens))
    yield KernelCheck("embedding_forward", grid, shape, (tokens, table), (y,))
    zeros = np.zeros((rows, width), np.float32)
    inputs = (tokens, dy, zeros)
    yield KernelCheck("embedding_gradient", (width,), shape, inputs, (dtable,), in_place=(2,))


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _lstm(generator: np.random.Generator) -> Iterator[KernelCheck]:
    grid = (UNITS, SAMPLES)
    gates, cells = (
        draw(generator, SAMPLES, STEPS, 4 * UNITS),
        draw(generator, SAMPLES, STEPS, UNITS),
    )
    y, bias = draw(generator, SAMPLES, STEPS, UNITS), draw(generator, 4 * UNITS)
    state = draw(generator, SAMPLES, 4 * UNITS)
    for t in (0, 2):
        raw = gates[:, t].astype(np.float64) + bias + (state if t else 0)
        into, forget, fresh, out = np.split(raw, 4, axis=1)
        into, forget, fresh, out = _sigmoid(into), _sigmoid(forget), np.tanh(fresh), _sigmoid(out)
        after_y, after_gates, after_cells = (v.astype(np.float64) for v in (y, gates, cells))
        after_cells[:, t] = into * fresh + (forget * cells[:, t - 1] if t else 0)
        after_gates[:, t] = np.concatenate([into, forget, fresh, out], axis=1)
        after_y[:, t] = out * np.tanh(after_cells[:, t])
        yield KernelCheck(
            "lstm_step",
            grid,
            (SAMPLES, STEPS, UNITS, t),
            (bias, state, y, gates, cells),
            (after_y, after_gates, after_cells),
            in_place=(2, 3, 4),
        )
    yield from _lstm_gradient(generator)
    previous = np.concatenate([np.zeros_like(y[:, :1]), y[:, :-1]], axis=1)
    scalars = (y.size, STEPS, UNITS)
    yield KernelCheck("previous_states", (y.size,), scalars, (y,), (previous,))


def _lstm_gradient(generator: np.random.Generator) -> Iterator[KernelCheck]:
    gates = _sigmoid(draw(generator, SAMPLES, STEPS, 4 * UNITS)).astype(np.float32)
    cells, dy = (draw(generator, SAMPLES, STEPS, UNITS) for _ in range(2))
    dh, dc = (draw(generator, SAMPLES, UNITS) for _ in range(2))
    dgates = draw(generator, SAMPLES, STEPS, 4 * UNITS)
    for t in (0, 2, STEPS - 1):
        into, forget, fresh, out = np.split(gates[:, t].astype(np.float64), 4, axis=1)
        bent, last = np.tanh(cells[:, t].astype(np.float64)), t == STEPS - 1
        h = dy[:, t] + (0 if last else dh.astype(np.float64))
        c = h * out * (1 - bent * bent) + (0 if last else dc)
        before = cells[:, t - 1] if t else np.zeros_like(dc)
        parts = (
            c * fresh * into * (1 - into),
            c * before * forget * (1 - forget),
            c * into * (1 - fresh * fresh),
            h * bent * out * (1 - out),
        )
        expected = dgates.astype(np.float64)
        expected[:, t] = np.concatenate(parts, axis=1)
        yield KernelCheck(
            "lstm_gradient_step",
            (UNITS, SAMPLES),
            (SAMPLES, STEPS, UNITS, t),
            (dy, gates, cells, dh, dc, dgates),
            (c * forget, expected),
            in_place=(4, 5),
        )


def _attention(generator: np.random.Generator) -> Iterator[KernelCheck]:
    scores, scale = draw(generator, 2, 3, STEPS, STEPS), 0.4
    size = (scores.size,)
    for causal in (0, 1):
        hidden = np.triu(np.ones((STEPS, STEPS), bool), 1) & bool(causal)
        scalars = (scores.size, STEPS, causal, scale)
        # The error is relative to the largest value, which is that of a masked score.
        visible = np.where(hidden, -1e30, scores.astype(np.float64) * scale)
        yield KernelCheck("mask_scores", size, scalars, (scores,), (visible,), in_place=(0,))
        masked = np.where(hidden, 0.0, scores.astype(np.float64) * scale)
        yield KernelCheck("mask_scores_gradient", size, scalars, (scores,), (masked,))


def _softmax(generator: np.random.Generator) -> Iterator[KernelCheck]:
    for shape in ((5, 9, 1), (3, 6, 4)):
        x, dy = 4 * draw(generator, *shape), draw(generator, *shape)
        powers = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
        y = powers / powers.sum(1, keepdims=True)
        dx = y * (dy - (y * dy).sum(1, keepdims=True))
        size = (shape[0] * shape[2],)
        yield KernelCheck("softmax_forward", size, shape, (x,), (y,))
        inputs = (y.astype(np.float32), dy)
        yield KernelCheck("softmax_gradient", size, shape, inputs, (dx,))


def _time_steps(generator: np.random.Generator) -> Iterator[KernelCheck]:
    x, dy = draw(generator, SAMPLES, UNITS), draw(generator, SAMPLES, STEPS, UNITS)
    repeated = np.broadcast_to(x[:, None], dy.shape).astype(np.float64)
    scalars = (dy.size, STEPS, UNITS)
    yield KernelCheck("repeat_moment", (dy.size,), scalars, (x,), (repeated,))
    total, scalars = dy.sum(1, dtype=np.float64), (x.size, STEPS, UNITS)
    yield KernelCheck("repeat_moment_gradient", (x.size,), scalars, (dy,), (total,))
