"""The engine's operations once more, in numpy and double precision: what a dump is held against.

It reads the text of a plan's body, shares no code with what writes or executes it, and takes from
the dump only what chance decides: first values, loaded batches and dropout's masks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Array = NDArray[np.float64]
BYTES = {"float": 4, "index": 4, "byte": 1}
NUMPY = {"float": "<f4", "index": "<i4", "byte": "u1"}


@dataclass(frozen=True)
class Tensor:
    """One `tensor` line."""

    type: str
    arena: str
    offset: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Op:
    """One `op` line."""

    phase: str
    entry: int
    kind: str
    ins: tuple[int | None, ...]
    outs: tuple[int | None, ...]
    ints: tuple[int, ...]
    floats: tuple[float, ...]


@dataclass
class Plan:
    """A body as it is written."""

    tensors: list[Tensor] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    loss: int = -1


def parse(text: str) -> Plan:
    """Read a body."""
    plan = Plan()
    for line in text.splitlines():
        words = line.split(" ")
        if words[0] == "tensor":
            rank = int(words[5])
            shape = tuple(map(int, words[6 : 6 + rank]))
            plan.tensors.append(Tensor(words[2], words[3], int(words[4]), shape))
        elif words[0] == "op":
            ins, outs, ints, floats = _groups(words[4:])
            plan.ops.append(
                Op(
                    words[1],
                    int(words[2]),
                    words[3],
                    tuple(None if word == "-" else int(word) for word in ins),
                    tuple(None if word == "-" else int(word) for word in outs),
                    tuple(map(int, ints)),
                    tuple(map(float, floats)),
                )
            )
        elif words[0] == "loss":
            plan.loss = int(words[1])
    return plan


def _groups(words: Sequence[str]) -> list[list[str]]:
    groups: list[list[str]] = [[]]
    for word in words:
        if word == ":":
            groups.append([])
        elif word:
            groups[-1].append(word)
    return groups


def read_dump(content: bytes, plan: Plan) -> list[list[Array]]:
    """Every tensor at every moment of a dump, in the precision that it has."""
    size = 8 + sum(BYTES[each.type] * int(np.prod(each.shape)) for each in plan.tensors)
    assert len(content) % size == 0, f"{len(content)} bytes are not moments of {size} bytes"
    moments: list[list[Array]] = []
    for moment in range(len(content) // size):
        at = moment * size
        assert moment == int.from_bytes(content[at : at + 8], "little")
        at += 8
        values: list[Array] = []
        for each in plan.tensors:
            count = int(np.prod(each.shape))
            flat = np.frombuffer(content, NUMPY[each.type], count, at)
            values.append(flat.reshape(each.shape))
            at += flat.nbytes
        moments.append(values)
    return moments


class Machine:
    """A plan in execution; it needs one in which no two tensors share memory but as views."""

    def __init__(self, plan: Plan, values: Sequence[Array]) -> None:
        self.plan = plan
        self.steps = 0
        self._memory: dict[tuple[str, int], Array] = {}
        for number, value in enumerate(values):
            self[number] = value

    def __getitem__(self, number: int) -> Array:
        tensor = self.plan.tensors[number]
        return self._memory[tensor.arena, tensor.offset].reshape(tensor.shape)

    def __setitem__(self, number: int, value: Array) -> None:
        tensor = self.plan.tensors[number]
        assert value.shape == tensor.shape, f"{number}: {value.shape} for {tensor.shape}"
        self._memory[tensor.arena, tensor.offset] = value.ravel().astype(np.float64)

    def step(self, seen: Sequence[Array], phases: Sequence[str] = ()) -> None:
        """One step; what was loaded and dropped is taken from what the engine saw."""
        for op in self.plan.ops:
            if phases and op.phase not in phases:
                continue
            if op.kind == "load":
                assert op.outs[0] is not None
                self[op.outs[0]] = seen[op.outs[0]]
                continue
            ins = [None if number is None else self[number] for number in op.ins]
            if op.kind == "dropout_forward":
                assert op.outs[1] is not None
                ins.append(seen[op.outs[1]].astype(np.float64))
            call = Call(op, ins, [self._shape(number) for number in op.outs], self.steps)
            for number, value in zip(op.outs, KINDS[op.kind](call), strict=True):
                if number is not None:
                    assert value is not None
                    self[number] = value
        self.steps += 1

    def _shape(self, number: int | None) -> tuple[int, ...]:
        return () if number is None else self.plan.tensors[number].shape


@dataclass
class Call:
    """One operation with its operands."""

    op: Op
    given: list[Array | None]
    shapes: list[tuple[int, ...]]
    step: int

    def __getitem__(self, index: int) -> Array:
        value = self.given[index]
        assert value is not None
        return value

    @property
    def labels(self) -> NDArray[np.int64]:
        """The second operand as indices."""
        return self[1].astype(np.int64)


Results = tuple[Array | None, ...]
KINDS: dict[str, Callable[[Call], Results]] = {}


def kind(*names: str) -> Callable[[Callable[[Call], Results]], Callable[[Call], Results]]:
    """Mark the function of an operation."""

    def mark(function: Callable[[Call], Results]) -> Callable[[Call], Results]:
        KINDS.update(dict.fromkeys(names, function))
        return function

    return mark


# --- windows ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Window:
    """A window over images of one size, with so many positions."""

    size: tuple[int, int]
    positions: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    before: tuple[int, int]

    @classmethod
    def of(cls, ints: Sequence[int], x: Sequence[int], y: Sequence[int]) -> "Window":
        """From the whole numbers of an operation and the shapes on both sides."""
        kh, kw, sh, sw, top, left = ints
        return cls((x[2], x[3]), (y[2], y[3]), (kh, kw), (sh, sw), (top, left))

    @property
    def padded(self) -> tuple[int, int]:
        """The size of an image that all positions lie in."""
        return (self._padded(0), self._padded(1))

    def _padded(self, axis: int) -> int:
        reach = (self.positions[axis] - 1) * self.stride[axis] + self.kernel[axis]
        return max(reach, self.before[axis] + self.size[axis])

    def pad(self, x: Array, value: float = 0.0) -> Array:
        """An image with its border."""
        height, width = self.padded
        full = np.full((*x.shape[:2], height, width), value)
        full[self.inside] = x
        return full

    @property
    def inside(self) -> tuple[slice, ...]:
        """Where in the padded image the image lies."""
        (top, left), (height, width) = self.before, self.size
        return (slice(None), slice(None), slice(top, top + height), slice(left, left + width))

    def views(self, x: Array, value: float = 0.0) -> Array:
        """Every position's window: (N, C, OH, OW, KH, KW)."""
        seen = sliding_window_view(self.pad(x, value), self.kernel, axis=(2, 3))
        seen = seen[:, :, :: self.stride[0], :: self.stride[1]]
        return seen[:, :, : self.positions[0], : self.positions[1]]

    def spread(self, parts: Array, channels: int) -> Array:
        """The reverse: every window's values added up where they came from."""
        full = np.zeros((parts.shape[0], channels, *self.padded))
        (oh, ow), (sh, sw) = self.positions, self.stride
        for row in range(self.kernel[0]):
            for column in range(self.kernel[1]):
                at = (
                    slice(row, row + oh * sh - sh + 1, sh),
                    slice(column, column + ow * sw - sw + 1, sw),
                )
                full[:, :, at[0], at[1]] += parts[..., row, column]
        return full[self.inside]


def _grouped(x: Array, groups: int) -> Array:
    return x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])


def _weights(w: Array, groups: int) -> Array:
    return w.reshape(groups, w.shape[0] // groups, *w.shape[1:])


@kind("conv_forward")
def conv_forward(call: Call) -> Results:
    x, w, bias = call[0], call[1], call.given[2]
    groups, *ints = call.op.ints
    window = Window.of(ints, x.shape, call.shapes[0])
    seen = _grouped(window.views(x), groups)
    y = np.einsum("ngcyxhw,gochw->ngoyx", seen, _weights(w, groups), optimize=True)
    y = y.reshape(call.shapes[0])
    return (y if bias is None else y + bias[:, None, None],)


@kind("conv_weight_gradient")
def conv_weight_gradient(call: Call) -> Results:
    x, dy = call[0], call[1]
    groups, *ints = call.op.ints
    seen = _grouped(Window.of(ints, x.shape, dy.shape).views(x), groups)
    dw = np.einsum("ngcyxhw,ngoyx->gochw", seen, _grouped(dy, groups), optimize=True)
    return (dw.reshape(call.shapes[0]),)


@kind("conv_input_gradient")
def conv_input_gradient(call: Call) -> Results:
    w, dy = call[0], call[1]
    groups, *ints = call.op.ints
    window = Window.of(ints, call.shapes[0], dy.shape)
    sent, weights = _grouped(dy, groups), _weights(w, groups)
    parts = np.einsum("ngoyx,gochw->ngcyxhw", sent, weights, optimize=True)
    channels = call.shapes[0][1]
    return (window.spread(parts.reshape(dy.shape[0], channels, *parts.shape[3:]), channels),)


@kind("channel_bias")
def channel_bias(call: Call) -> Results:
    return (call[0] + call[1][:, None, None],)


@kind("channel_bias_gradient")
def channel_bias_gradient(call: Call) -> Results:
    return (call[0].sum(axis=(0, 2, 3)),)


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


# --- products --------------------------------------------------------------------------------


@kind("linear_forward")
def linear_forward(call: Call) -> Results:
    y = call[0] @ call[1].T
    bias = call.given[2]
    return (y if bias is None else y + bias,)


@kind("linear_weight_gradient")
def linear_weight_gradient(call: Call) -> Results:
    return (_rows(call[1]).T @ _rows(call[0]),)


@kind("linear_input_gradient")
def linear_input_gradient(call: Call) -> Results:
    return (call[1] @ call[0],)


@kind("row_bias_gradient")
def row_bias_gradient(call: Call) -> Results:
    return (_rows(call[0]).sum(axis=0),)


@kind("sgemm")
def sgemm(call: Call) -> Results:
    first, second = call.op.ints
    return ((call[0].T if first else call[0]) @ (call[1].T if second else call[1]),)


def _rows(x: Array) -> Array:
    return x.reshape(-1, x.shape[-1])


# --- activations -----------------------------------------------------------------------------


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _erf(x: Array) -> Array:
    from math import erf

    return np.asarray(np.vectorize(erf)(x))


@kind("relu_forward", "relu6_forward", "leaky_forward", "tanh_forward", "sigmoid_forward")
def activation(call: Call) -> Results:
    x, name = call[0], call.op.kind
    if name == "leaky_forward":
        return (np.where(x > 0, x, call.op.floats[0] * x),)
    if name == "tanh_forward":
        return (np.tanh(x),)
    if name == "sigmoid_forward":
        return (_sigmoid(x),)
    return (np.clip(x, 0, 6 if name == "relu6_forward" else None),)


@kind("relu_gradient", "relu6_gradient", "leaky_gradient", "tanh_gradient", "sigmoid_gradient")
def activation_gradient(call: Call) -> Results:
    y, dy, name = call[0], call[1], call.op.kind
    if name == "leaky_gradient":
        return (np.where(y > 0, dy, call.op.floats[0] * dy),)
    if name == "tanh_gradient":
        return (dy * (1 - y * y),)
    if name == "sigmoid_gradient":
        return (dy * y * (1 - y),)
    inside = (y > 0) & (y < 6) if name == "relu6_gradient" else y > 0
    return (np.where(inside, dy, 0.0),)


@kind("gelu_forward")
def gelu_forward(call: Call) -> Results:
    x = call[0]
    return (x * 0.5 * (1 + _erf(x / np.sqrt(2))),)


@kind("gelu_gradient")
def gelu_gradient(call: Call) -> Results:
    x, dy = call[0], call[1]
    slope = 0.5 * (1 + _erf(x / np.sqrt(2))) + x * np.exp(-x * x / 2) / np.sqrt(2 * np.pi)
    return (dy * slope,)


@kind("dropout_forward")
def dropout_forward(call: Call) -> Results:
    x, mask = call[0], call[1]
    return np.where(mask != 0, x / (1 - call.op.floats[0]), 0.0), mask


@kind("dropout_gradient")
def dropout_gradient(call: Call) -> Results:
    mask, dy = call[0], call[1]
    return (np.where(mask != 0, dy / (1 - call.op.floats[0]), 0.0),)


def _shares(x: Array, axis: int) -> Array:
    exponents = np.exp(x - x.max(axis=axis, keepdims=True))
    return np.asarray(exponents / exponents.sum(axis=axis, keepdims=True))


@kind("softmax_forward")
def softmax_forward(call: Call) -> Results:
    return (_shares(call[0].reshape(call.op.ints), 1).reshape(call.shapes[0]),)


@kind("softmax_gradient")
def softmax_gradient(call: Call) -> Results:
    y, dy = (value.reshape(call.op.ints) for value in (call[0], call[1]))
    mean = (y * dy).sum(axis=1, keepdims=True)
    return ((y * (dy - mean)).reshape(call.shapes[0]),)


# --- norms -----------------------------------------------------------------------------------


def _of_channel(values: Array) -> Array:
    return values.reshape(1, -1, 1, 1)


def _bent(name: str, y: Array) -> Array:
    """What the function behind a norm makes of it."""
    return np.clip(y, 0, 6 if "_relu6" in name else None) if "_relu" in name else y


@kind("batch_norm_forward", "batch_norm_relu_forward", "batch_norm_relu6_forward")
def batch_norm_forward(call: Call) -> Results:
    x, scale, shift, running_mean, running_variance = (call[index] for index in range(5))
    momentum, epsilon = call.op.floats
    mean, variance = x.mean(axis=(0, 2, 3)), x.var(axis=(0, 2, 3))
    count = x.size / x.shape[1]
    rstd = 1 / np.sqrt(variance + epsilon)
    y = (x - _of_channel(mean)) * _of_channel(rstd * scale) + _of_channel(shift)
    unbiased = variance * count / max(count - 1, 1)
    return (
        _bent(call.op.kind, y),
        mean,
        rstd,
        momentum * running_mean + (1 - momentum) * mean,
        momentum * running_variance + (1 - momentum) * unbiased,
    )


@kind("batch_norm_weight_gradient")
def batch_norm_weight_gradient(call: Call) -> Results:
    x, dy, mean, rstd = (call[index] for index in range(4))
    normal = (x - _of_channel(mean)) * _of_channel(rstd)
    return (dy * normal).sum(axis=(0, 2, 3)), dy.sum(axis=(0, 2, 3))


@kind("batch_norm_input_gradient")
def batch_norm_input_gradient(call: Call) -> Results:
    x, dy, scale, mean, rstd, dscale, dshift = (call[index] for index in range(7))
    count = x.size / x.shape[1]
    normal = (x - _of_channel(mean)) * _of_channel(rstd)
    less = _of_channel(dshift / count) + normal * _of_channel(dscale / count)
    return (_of_channel(scale * rstd) * (dy - less),)


@kind("batch_norm_gradient", "batch_norm_relu_gradient", "batch_norm_relu6_gradient")
def batch_norm_gradient(call: Call) -> Results:
    x, dy, scale, shift, mean, rstd = (call[index] for index in range(6))
    count = x.size / x.shape[1]
    normal = (x - _of_channel(mean)) * _of_channel(rstd)
    y = normal * _of_channel(scale) + _of_channel(shift)
    dy = np.where(_bent(call.op.kind, y) == y, dy, 0.0)
    dscale, dshift = (dy * normal).sum(axis=(0, 2, 3)), dy.sum(axis=(0, 2, 3))
    less = _of_channel(dshift / count) + normal * _of_channel(dscale / count)
    return dscale, dshift, _of_channel(scale * rstd) * (dy - less)


@kind("batch_norm_inference", "batch_norm_relu_inference", "batch_norm_relu6_inference")
def batch_norm_inference(call: Call) -> Results:
    x, scale, shift, mean, variance = (call[index] for index in range(5))
    rstd = 1 / np.sqrt(variance + call.op.floats[0])
    y = (x - _of_channel(mean)) * _of_channel(rstd * scale) + _of_channel(shift)
    return (_bent(call.op.kind, y),)


@kind("layer_norm_forward")
def layer_norm_forward(call: Call) -> Results:
    x, scale, shift = (call[index] for index in range(3))
    mean = x.mean(axis=-1)
    rstd = 1 / np.sqrt(x.var(axis=-1) + call.op.floats[0])
    y = (x - mean[..., None]) * rstd[..., None] * scale + shift
    return y, mean, rstd


@kind("layer_norm_weight_gradient")
def layer_norm_weight_gradient(call: Call) -> Results:
    x, dy, mean, rstd = (call[index] for index in range(4))
    normal = (x - mean[..., None]) * rstd[..., None]
    return _rows(dy * normal).sum(axis=0), _rows(dy).sum(axis=0)


@kind("layer_norm_input_gradient")
def layer_norm_input_gradient(call: Call) -> Results:
    x, dy, scale, mean, rstd = (call[index] for index in range(5))
    normal = (x - mean[..., None]) * rstd[..., None]
    inner = dy * scale
    along = (inner * normal).mean(axis=-1, keepdims=True)
    return (rstd[..., None] * (inner - inner.mean(axis=-1, keepdims=True) - normal * along),)


# --- plumbing --------------------------------------------------------------------------------


@kind("add")
def add(call: Call) -> Results:
    return (np.sum([call[index] for index in range(len(call.given))], axis=0),)


@kind("concat")
def concat(call: Call) -> Results:
    parts = [call[index] for index in range(len(call.given))]
    return (np.concatenate(parts, axis=call.op.ints[0]),)


@kind("split")
def split(call: Call) -> Results:
    axis = call.op.ints[0]
    ends = np.cumsum([shape[axis] for shape in call.shapes])[:-1]
    return tuple(np.split(call[0], ends, axis=axis))


@kind("copy")
def copy(call: Call) -> Results:
    return (call[0].reshape(call.shapes[0]),)


@kind("copy_scaled")
def copy_scaled(call: Call) -> Results:
    return (call[0] * call.op.floats[0],)


@kind("position_add")
def position_add(call: Call) -> Results:
    return (call[0] + call[1],)


@kind("position_gradient")
def position_gradient(call: Call) -> Results:
    return (call[0].sum(axis=0),)


@kind("last_moment")
def last_moment(call: Call) -> Results:
    return (call[0][:, -1],)


@kind("last_moment_gradient")
def last_moment_gradient(call: Call) -> Results:
    dx = np.zeros(call.shapes[0])
    dx[:, -1] = call[0]
    return (dx,)


@kind("repeat_moment")
def repeat_moment(call: Call) -> Results:
    return (np.repeat(call[0][:, None], call.shapes[0][1], axis=1),)


@kind("repeat_moment_gradient")
def repeat_moment_gradient(call: Call) -> Results:
    return (call[0].sum(axis=1),)


@kind("upsample")
def upsample(call: Call) -> Results:
    factor = call.op.ints[0]
    return (call[0].repeat(factor, axis=2).repeat(factor, axis=3),)


@kind("upsample_gradient")
def upsample_gradient(call: Call) -> Results:
    n, c, height, width = call.shapes[0]
    factor = call.op.ints[0]
    return (call[0].reshape(n, c, height, factor, width, factor).sum(axis=(3, 5)),)


@kind("td_target")
def td_target(call: Call) -> Results:
    q, following, action, reward = (call[index] for index in range(4))
    goal = q.copy()
    best = reward + call.op.floats[0] * following.max(axis=-1)
    goal[np.arange(len(goal)), action.astype(np.int64)] = best
    return (goal,)


# --- sequences -------------------------------------------------------------------------------


@kind("embedding_forward")
def embedding_forward(call: Call) -> Results:
    return (call[1][call[0].astype(np.int64)],)


@kind("embedding_gradient")
def embedding_gradient(call: Call) -> Results:
    table = np.zeros(call.shapes[0])
    np.add.at(table, call[0].astype(np.int64), call[1])
    return (table,)


@kind("lstm_forward")
def lstm_forward(call: Call) -> Results:
    x, wi, ws, bias = (call[index] for index in range(4))
    batch, time, features = call.shapes[0]
    y, cells = np.zeros(call.shapes[0]), np.zeros(call.shapes[2])
    gates = np.zeros(call.shapes[1])
    state, cell = np.zeros((batch, features)), np.zeros((batch, features))
    for at in range(time):
        raw = x[:, at] @ wi.T + state @ ws.T + bias
        i, f, c, o = np.split(raw, 4, axis=1)
        i, f, c, o = _sigmoid(i), _sigmoid(f), np.tanh(c), _sigmoid(o)
        cell = f * cell + i * c
        state = o * np.tanh(cell)
        y[:, at], cells[:, at] = state, cell
        gates[:, at] = np.concatenate([i, f, c, o], axis=1)
    return y, gates, cells


@kind("lstm_gradient")
def lstm_gradient(call: Call) -> Results:
    dy, gates, cells, ws = (call[index] for index in range(4))
    batch, time, features = dy.shape
    dgates = np.zeros(call.shapes[0])
    dstate, dcell = np.zeros((batch, features)), np.zeros((batch, features))
    for at in reversed(range(time)):
        i, f, c, o = np.split(gates[:, at], 4, axis=1)
        before = cells[:, at - 1] if at else np.zeros((batch, features))
        bent = np.tanh(cells[:, at])
        dh = dy[:, at] + dstate
        dc = dcell + dh * o * (1 - bent * bent)
        parts = [
            dc * c * i * (1 - i),
            dc * before * f * (1 - f),
            dc * i * (1 - c * c),
            dh * bent * o * (1 - o),
        ]
        dgates[:, at] = np.concatenate(parts, axis=1)
        dcell = dc * f
        dstate = dgates[:, at] @ ws
    return (dgates,)


@kind("lstm_weight_gradient")
def lstm_weight_gradient(call: Call) -> Results:
    x, y, dgates = (call[index] for index in range(3))
    before = np.concatenate([np.zeros_like(y[:, :1]), y[:, :-1]], axis=1)
    return _rows(dgates).T @ _rows(x), _rows(dgates).T @ _rows(before)


def _heads(x: Array, heads: int) -> Array:
    batch, time, features = x.shape
    return x.reshape(batch, time, heads, features // heads).transpose(0, 2, 1, 3)


def _joined(x: Array) -> Array:
    batch, heads, time, features = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, time, heads * features)


@kind("attention_scores")
def attention_scores(call: Call) -> Results:
    heads, causal = call.op.ints
    q, k, _ = (_heads(part, heads) for part in np.split(call[0], 3, axis=-1))
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(q.shape[-1])
    hidden = np.triu(np.ones(scores.shape[-2:], bool), 1) & bool(causal)
    return (np.where(hidden, -1e30, scores),)


@kind("attention_values")
def attention_values(call: Call) -> Results:
    value = _heads(np.split(call[0], 3, axis=-1)[2], call.op.ints[0])
    return (_joined(call[1] @ value),)


@kind("attention_values_gradient")
def attention_values_gradient(call: Call) -> Results:
    qkv, shares = call[0], call[1]
    dout = _heads(call[2], call.op.ints[0])
    value = _heads(np.split(qkv, 3, axis=-1)[2], call.op.ints[0])
    dqkv = np.zeros_like(qkv)
    dqkv[..., 2 * call[2].shape[-1] :] = _joined(shares.transpose(0, 1, 3, 2) @ dout)
    return dout @ value.transpose(0, 1, 3, 2), dqkv


@kind("attention_scores_gradient")
def attention_scores_gradient(call: Call) -> Results:
    heads, causal = call.op.ints
    q, k, _ = (_heads(part, heads) for part in np.split(call[0], 3, axis=-1))
    hidden = np.triu(np.ones(call[1].shape[-2:], bool), 1) & bool(causal)
    dscores = np.where(hidden, 0.0, call[1]) / np.sqrt(q.shape[-1])
    dqkv, features = call[2].copy(), call[0].shape[-1] // 3
    dqkv[..., :features] = _joined(dscores @ k)
    dqkv[..., features : 2 * features] = _joined(dscores.transpose(0, 1, 3, 2) @ q)
    return (dqkv,)


# --- losses ----------------------------------------------------------------------------------


def _one_hot(call: Call) -> Array:
    hot = np.zeros(call[0].shape)
    np.put_along_axis(hot, call.labels[..., None], 1.0, axis=-1)
    return hot


@kind("softmax_cross_entropy")
def softmax_cross_entropy(call: Call) -> Results:
    x = call[0] - call[0].max(axis=-1, keepdims=True)
    logarithms = x - np.log(np.exp(x).sum(axis=-1, keepdims=True))
    loss = -(logarithms * _one_hot(call)).sum() / call.labels.size
    return np.exp(logarithms), np.array([loss])


@kind("softmax_cross_entropy_gradient")
def softmax_cross_entropy_gradient(call: Call) -> Results:
    return ((call[0] - _one_hot(call)) / call.labels.size,)


@kind("cross_entropy")
def cross_entropy(call: Call) -> Results:
    right = np.take_along_axis(call[0], call.labels[..., None], axis=-1)
    return (np.array([-np.log(np.maximum(right, 1e-12)).mean()]),)


@kind("cross_entropy_gradient")
def cross_entropy_gradient(call: Call) -> Results:
    return (-_one_hot(call) / np.maximum(call[0], 1e-12) / call.labels.size,)


@kind("mean_squared_error")
def mean_squared_error(call: Call) -> Results:
    return (np.array([((call[0] - call[1]) ** 2).mean()]),)


@kind("mean_squared_error_gradient")
def mean_squared_error_gradient(call: Call) -> Results:
    return (2 * (call[0] - call[1]) / call[0].size,)


@kind("binary_cross_entropy")
def binary_cross_entropy(call: Call) -> Results:
    x, target = call[0], call[1]
    costs = np.maximum(x, 0) - x * target + np.log1p(np.exp(-np.abs(x)))
    return (np.array([costs.mean()]),)


@kind("binary_cross_entropy_gradient")
def binary_cross_entropy_gradient(call: Call) -> Results:
    return ((_sigmoid(call[0]) - call[1]) / call[0].size,)


@kind("accuracy")
def accuracy(call: Call) -> Results:
    return (np.array([(call[0].argmax(axis=-1) == call.labels).mean()]),)


# --- updates ---------------------------------------------------------------------------------


@kind("sgd")
def sgd(call: Call) -> Results:
    rate, decay = call.op.floats
    return (call[0] - rate * (call[1] + decay * call[0]),)


@kind("momentum")
def momentum(call: Call) -> Results:
    rate, share, decay = call.op.floats
    velocity = share * call[2] + call[1] + decay * call[0]
    return call[0] - rate * velocity, velocity


@kind("adam")
def adam(call: Call) -> Results:
    rate, first, second, epsilon = call.op.floats
    m = first * call[2] + (1 - first) * call[1]
    v = second * call[3] + (1 - second) * call[1] ** 2
    count = call.step + 1
    step = m / (1 - first**count) / (np.sqrt(v / (1 - second**count)) + epsilon)
    return call[0] - rate * step, m, v
