"""A whole network's training step on a device: the plan of a model, operation by operation.

The plan is the one that the native runner gets (workloads/lowering); each kind of operation has one
line here that says which entry points do it. Everything stays on the device; a batch is written
before its step. A kind that has no kernel is refused by name, never done elsewhere.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.harness import convolutions
from kernels.harness.device import Device, Launch
from kernels.harness.products import WAYS, Bench
from kernels.tuning import Shape
from workloads.fault import Refused
from workloads.lowering.body import Body, BodyOp, Tensor

Array = NDArray[Any]
TYPES = {"float": np.float32, "index": np.int32, "byte": np.uint8}
GROUP = 64  # of reduce.cl
_SMALL = 192**3  # products below are not worth packing


class Network:
    """A body's tensors on a device, and its step as launches, by phase."""

    def __init__(self, device: Device, body: Body) -> None:
        self.device, self.body = device, body
        self._memory: dict[int, Any] = {}
        self._scratch: dict[str, tuple[int, Any]] = {}
        for tensor in body.tensors:
            if tensor.base is None:
                self._memory[tensor.number] = device.empty(tensor.bytes)
        self.phases: dict[str, list[Launch]] = {}
        for op in body.ops:
            if op.kind != "load" and op.phase != "evaluate":
                self.phases.setdefault(op.phase, []).extend(_launches(self, op))

    def buffer(self, tensor: Tensor | None) -> Any:
        """Where a tensor's values are; an operand that is left out is any memory, unread."""
        if tensor is None:
            return next(iter(self._memory.values()))
        return self._memory[tensor.root.number]

    def scratch(self, name: str, size_bytes: int) -> Any:
        """Memory for in between: what follows in the step may write over it."""
        if size_bytes > self._scratch.get(name, (0, None))[0]:
            self._scratch[name] = (size_bytes, self.device.empty(size_bytes))
        return self._scratch[name][1]

    def write(self, tensor: Tensor, values: Array) -> None:
        """Put values into a tensor."""
        self.device.write(self.buffer(tensor), np.ascontiguousarray(values)).wait()

    def read(self, tensor: Tensor) -> Array:
        """A tensor's values."""
        values = np.empty(tensor.shape, TYPES[tensor.type])
        self.device.read_into(values, self.buffer(tensor))
        return values

    def step(self) -> list[Any]:
        """Enqueue forward, backward and update; answer their events."""
        return [launch() for launches in self.phases.values() for launch in launches]

    def entry(
        self, file: str, name: str, size: Sequence[int], *words: object, **more: Any
    ) -> Launch:
        """One entry point; tensors travel as memory. `more`: group, and numbers to build with."""
        group = more.pop("group", None)
        program = self.device.program(file, [f"-D{key}={value}" for key, value in more.items()])
        passed = [
            self.buffer(word) if word is None or isinstance(word, Tensor) else word
            for word in words
        ]
        return program.bind(name, tuple(size), group, *passed)


Kind = Callable[[Network, BodyOp], list[Launch]]
KINDS: dict[str, Kind] = {}


def kind(*names: str) -> Callable[[Kind], Kind]:
    """Mark how these kinds of operation are launched."""

    def mark(function: Kind) -> Kind:
        KINDS.update(dict.fromkeys(names, function))
        return function

    return mark


def _launches(net: Network, op: BodyOp) -> list[Launch]:
    if op.kind not in KINDS:
        raise Refused(f"no kernel in kernels/opencl does '{op.kind}' yet")
    return KINDS[op.kind](net, op)


def product(net: Network, shape: Shape, a: Tensor, b: Tensor, c: Tensor) -> list[Launch]:
    """C = op(A) op(B), by the way that fits its size."""
    if shape.m * shape.n * shape.k > _SMALL:
        way = WAYS["packed"]
    else:
        way = WAYS["dots" if shape.transposed_b else "direct"]
    bench = Bench(net.device, shape, way, net.buffer(a), net.buffer(b), net.buffer(c))
    return list(way.prepare(bench))


def _rows(tensor: Tensor) -> tuple[int, int]:
    return prod(tensor.shape[:-1]), tensor.shape[-1]


def _given(op: BodyOp) -> list[Any]:
    return [*op.ins, *op.outs]


@kind("linear_forward")
def linear_forward(net: Network, op: BodyOp) -> list[Launch]:
    x, w, bias, y = _given(op)
    (rows, into), out = _rows(x), w.shape[0]
    made = product(net, Shape(rows, out, into, transposed_b=True), x, w, y)
    if bias is not None:
        count = rows * out
        made.append(net.entry("plumbing.cl", "add_bias", (count,), count, out, 1, bias, y))
    return made


@kind("linear_weight_gradient")
def linear_weight_gradient(net: Network, op: BodyOp) -> list[Launch]:
    x, dy, dw = _given(op)
    (rows, into), out = _rows(x), dy.shape[-1]
    return product(net, Shape(out, into, rows, transposed_a=True), dy, x, dw)


@kind("linear_input_gradient")
def linear_input_gradient(net: Network, op: BodyOp) -> list[Launch]:
    w, dy, dx = _given(op)
    rows, out = _rows(dy)
    return product(net, Shape(rows, w.shape[1], out), dy, w, dx)


@kind("row_bias_gradient")
def row_bias_gradient(net: Network, op: BodyOp) -> list[Launch]:
    dy, db = _given(op)
    rows, columns = _rows(dy)
    return [net.entry("reduce.cl", "row_bias_gradient", (columns,), rows, columns, dy, db)]


@kind("channel_bias_gradient")
def channel_bias_gradient(net: Network, op: BodyOp) -> list[Launch]:
    dy, db = _given(op)
    images, channels, *pixels = dy.shape
    words = (images, channels, prod(pixels), dy, db)
    size = (channels * GROUP,)
    return [net.entry("reduce.cl", "channel_bias_gradient", size, *words, group=(GROUP,))]


kind("conv_forward")(convolutions.forward)
kind("conv_input_gradient")(convolutions.input_gradient)
kind("conv_weight_gradient")(convolutions.weight_gradient)


@kind("relu_forward", "tanh_forward", "sigmoid_forward", "relu6_forward")
def activation_forward(net: Network, op: BodyOp) -> list[Launch]:
    x, y = _given(op)
    return [_bend(net, op, "activation_forward", x, y)]


@kind("relu_gradient", "tanh_gradient", "sigmoid_gradient", "relu6_gradient")
def activation_gradient(net: Network, op: BodyOp) -> list[Launch]:
    y, dy, dx = _given(op)
    return [_bend(net, op, "activation_gradient", y, dy, dx)]


def _bend(net: Network, op: BodyOp, name: str, *memory: Tensor) -> Launch:
    count, function = prod(memory[0].shape), op.kind.split("_")[0].upper()
    words = (count, 0.0, *memory)
    return net.entry("activations.cl", name, (count,), *words, ACTIVATION=function)


def _pool_shape(x: Tensor, y: Tensor, window: Sequence[int]) -> tuple[int, ...]:
    return (x.shape[0] * x.shape[1], *x.shape[2:], *y.shape[2:], *window)


@kind("max_pool_forward", "avg_pool_forward")
def pool_forward(net: Network, op: BodyOp) -> list[Launch]:
    x, y, *where = _given(op)
    size = (y.shape[3], y.shape[2], y.shape[0] * y.shape[1])
    words = (*_pool_shape(x, y, op.ints), x, y, *where)
    return [net.entry("pooling.cl", op.kind, size, *words)]


@kind("max_pool_gradient", "avg_pool_gradient")
def pool_gradient(net: Network, op: BodyOp) -> list[Launch]:
    *given, dx = _given(op)
    size = (dx.shape[3], dx.shape[2], dx.shape[0] * dx.shape[1])
    words = (*_pool_shape(dx, given[-1], op.ints), *given, dx)
    return [net.entry("pooling.cl", op.kind, size, *words)]


@kind("global_avg_pool_forward")
def global_avg_pool_forward(net: Network, op: BodyOp) -> list[Launch]:
    x, y = _given(op)
    planes, pixels = x.shape[0] * x.shape[1], prod(x.shape[2:])
    return [net.entry("pooling.cl", op.kind, (planes,), planes, pixels, x, y)]


@kind("global_avg_pool_gradient")
def global_avg_pool_gradient(net: Network, op: BodyOp) -> list[Launch]:
    dy, dx = _given(op)
    planes, pixels = dx.shape[0] * dx.shape[1], prod(dx.shape[2:])
    return [net.entry("pooling.cl", op.kind, (pixels, planes), planes, pixels, dy, dx)]


@kind("dropout_forward", "dropout_gradient")
def dropout(net: Network, op: BodyOp) -> list[Launch]:
    """The mask is written by whoever feeds the step, so that every backend drops the same."""
    given, (share,) = _given(op), op.floats
    x, y, mask = given if op.kind == "dropout_forward" else (given[1], given[2], given[0])
    count = prod(x.shape)
    words = (count, 1.0 / (1.0 - share), mask, x, y)
    return [net.entry("activations.cl", "masked", (count,), *words)]


@kind("concat", "split")
def parts(net: Network, op: BodyOp) -> list[Launch]:
    joins, axis = op.kind == "concat", op.ints[0]
    (whole,), pieces = (op.outs, op.ins) if joins else (op.ins, op.outs)
    made, offset = [], 0
    for piece in pieces:
        if piece is None or whole is None:
            continue
        length, count = prod(piece.shape[axis:]), prod(piece.shape)
        memory = (piece, whole) if joins else (whole, piece)
        words = (count, length, prod(whole.shape[axis:]), offset, *memory)
        made.append(net.entry("plumbing.cl", "to_part" if joins else "from_part", (count,), *words))
        offset += length
    return made


@kind("add")
def add(net: Network, op: BodyOp) -> list[Launch]:
    y = op.outs[0]
    return [
        net.entry("plumbing.cl", "add_one", (prod(x.shape),), prod(x.shape), int(at == 0), x, y)
        for at, x in enumerate(op.ins)
        if x is not None
    ]


@kind("softmax_cross_entropy")
def softmax_cross_entropy(net: Network, op: BodyOp) -> list[Launch]:
    x, labels, shares, loss = _given(op)
    rows, classes = _rows(x)
    of_rows = net.device.empty(4 * rows)
    return [
        net.entry("losses.cl", op.kind, (rows,), rows, classes, x, labels, shares, of_rows),
        net.entry("losses.cl", "mean_loss", (1,), rows, of_rows, loss),
    ]


@kind("softmax_cross_entropy_gradient")
def softmax_cross_entropy_gradient(net: Network, op: BodyOp) -> list[Launch]:
    shares, labels, dx = _given(op)
    rows, classes = _rows(shares)
    words = (rows, classes, shares, labels, dx)
    return [net.entry("losses.cl", op.kind, (rows, classes), *words)]


@kind("sgd", "momentum")
def update(net: Network, op: BodyOp) -> list[Launch]:
    count = prod(op.ins[0].shape) if op.ins[0] else 0
    return [net.entry("updates.cl", op.kind, (count,), count, *op.floats, *op.ins)]
