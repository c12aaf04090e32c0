"""A training step of a whole network on a device: the plan of a model, operation by operation.

The plan is the one that the runner gets (workloads/lowering); each kind of operation has a function
here that launches its kernels. Everything stays on the device; a batch is written before its step.
A kind without a kernel is refused by name, never executed elsewhere.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.autotuner import MatmulShape
from kernels.harness import conv_launches
from kernels.harness.matmul_variants import VARIANTS, MatmulSetup
from kernels.harness.opencl_device import Device, KernelLaunch
from workloads.lowering.plan_body import PlanBody, PlanOp, Tensor
from workloads.protocol.faults import InvalidRequest

Array = NDArray[Any]
TYPES = {"float": np.float32, "index": np.int32, "byte": np.uint8}
GROUP = 64  # work items per group of reductions.cl
_PACKING_PAYS = 192**3  # multiply-adds; smaller products are not packed


class DeviceNetwork:
    """The tensors of a plan body on a device, and its step as launches, by phase."""

    def __init__(self, device: Device, body: PlanBody) -> None:
        self.device, self.body = device, body
        self._memory: dict[int, Any] = {}
        self._scratch: dict[str, tuple[int, Any]] = {}
        for tensor in body.tensors:
            if tensor.base is None:
                self._memory[tensor.number] = device.empty(tensor.bytes)
        self.phases: dict[str, list[KernelLaunch]] = {}
        for op in body.ops:
            if op.kind != "load" and op.phase != "evaluate":
                self.phases.setdefault(op.phase, []).extend(_launches(self, op))

    def buffer(self, tensor: Tensor | None) -> Any:
        """Return the buffer of a tensor; for an operand that is left out, any buffer."""
        if tensor is None:
            return next(iter(self._memory.values()))
        return self._memory[tensor.root.number]

    def scratch(self, name: str, size_bytes: int) -> Any:
        """Return scratch memory, which later operations of the step may overwrite."""
        if size_bytes > self._scratch.get(name, (0, None))[0]:
            self._scratch[name] = (size_bytes, self.device.empty(size_bytes))
        return self._scratch[name][1]

    def write(self, tensor: Tensor, values: Array) -> None:
        """Write values into a tensor."""
        self.device.write(self.buffer(tensor), np.ascontiguousarray(values)).wait()

    def read(self, tensor: Tensor) -> Array:
        """Read the values of a tensor."""
        values = np.empty(tensor.shape, TYPES[tensor.type])
        self.device.read_into(values, self.buffer(tensor))
        return values

    def step(self) -> list[Any]:
        """Enqueue forward, backward and update; return their events."""
        return [launch() for launches in self.phases.values() for launch in launches]

    def launch(
        self, file: str, name: str, size: Sequence[int], *arguments: object, **options: Any
    ) -> KernelLaunch:
        """Prepare a kernel; tensors become buffers. `options`: group, and definitions."""
        group = options.pop("group", None)
        program = self.device.program(file, [f"-D{key}={value}" for key, value in options.items()])
        values = [
            self.buffer(value) if value is None or isinstance(value, Tensor) else value
            for value in arguments
        ]
        return program.bind(name, tuple(size), group, *values)


OpLauncher = Callable[[DeviceNetwork, PlanOp], list[KernelLaunch]]
LAUNCHERS: dict[str, OpLauncher] = {}


def launches(*kinds: str) -> Callable[[OpLauncher], OpLauncher]:
    """Register the function that launches these kinds of operation."""

    def register(function: OpLauncher) -> OpLauncher:
        LAUNCHERS.update(dict.fromkeys(kinds, function))
        return function

    return register


def _launches(net: DeviceNetwork, op: PlanOp) -> list[KernelLaunch]:
    if op.kind not in LAUNCHERS:
        raise InvalidRequest(f"kernels/opencl has no kernel for '{op.kind}' yet")
    return LAUNCHERS[op.kind](net, op)


def matmul(
    net: DeviceNetwork, shape: MatmulShape, a: Tensor, b: Tensor, c: Tensor
) -> list[KernelLaunch]:
    """Launch C = op(A) op(B) by the variant for its size."""
    if shape.m * shape.n * shape.k > _PACKING_PAYS:
        variant = VARIANTS["packed"]
    else:
        variant = VARIANTS["dots" if shape.transposed_b else "direct"]
    buffers = (net.buffer(a), net.buffer(b), net.buffer(c))
    return list(variant.prepare(MatmulSetup(net.device, shape, variant, *buffers)))


def _rows(tensor: Tensor) -> tuple[int, int]:
    return prod(tensor.shape[:-1]), tensor.shape[-1]


def _operands(op: PlanOp) -> list[Any]:
    return [*op.ins, *op.outs]


@launches("linear_forward")
def linear_forward(net: DeviceNetwork, op: PlanOp) -> list[KernelLaunch]:
    x, w, bias, y = _operands(op)
    (rows, into), out = _rows(x), w.shape[0]
    launched = matmul(net, MatmulShape(rows, out, into, transposed_b=True), x, w, y)
    if bias is not None:
        count = rows * out
        launched.append(net.launch("shape_ops.cl", "add_bias", (count,), count, out, 1, bias, y))
    return launched


@launches("linear_weight_gradient")
def linear_weight_gradient(net: DeviceNetwork, op: PlanOp) -> list[KernelLaunch]:
    x, dy, dw = _operands(op)
    (rows, into), out = _rows(x), dy.shape[-1]
    return matmul(net, MatmulShape(out, into, rows, transposed_a=True), dy, x, dw)


@launches("linear_input_gradient")
def linear_input_gradient(net: DeviceNetwork, op: PlanOp) -> list[KernelLaunch]:
    w, dy, dx = _operands(op)
    rows, out = _rows(dy)
    return matmul(net, MatmulShape(rows, w.shape[1], out), dy, w, dx)


@launches("row_bias_gradient")
def row_bias_gradient(net: DeviceNetwork, op: PlanOp) -> list[KernelLaunch]:
    dy, db = _operands(op)
    rows, columns = _rows(dy)
    return [net.launch("reductions.cl", "row_bias_gradient", (columns,), rows, columns, dy, db)]


@launches("channel_bias_gradient")
def channel_bias_gradient(net: DeviceNetwork, op: PlanOp) -> list[KernelLaunch]:
    dy, db = _operands(op)
    images, channels, *pixels = dy.shape
    arguments = (images, channels, prod(pixels), dy, db)
    size = (channels * GROUP,)
    return [net.launch("reductions.cl", "channel_bias_gradient", size, *arguments, group=(GROUP,))]


launches("conv_forward")(conv_launches.forward)
launches("conv_input_gradient")(conv_launches.input_gradient)
launches("conv_weight_gradient")(conv_launches.weight_gradient)


@launches("relu_forward", "tanh_forward", "sigmoid_forward", "relu6_forward")
def activation_forward(net: DeviceNetwork, op: PlanOp) -> list[KernelLaunch]:
    x, y = _operands(op)
    return [_activation(net, op, "activation_forward", x, y)]


@launches("relu_gradient", "tanh_gradient", "sigmoid_gradient", "relu6_gradient")
def activation_gradient(net: DeviceNetwork, op: PlanOp) -> list[KernelLaunch]:
    y, dy, dx = _operands(op)
    return [_activation(net, op, "activation_gradient", y, dy, dx)]


def _activation(net: DeviceNetwork, op: PlanOp, name: str, *tensors: Tensor) -> KernelLaunch:
    count, activation = prod(tensors[0].shape), op.kind.split("_")[0].upper()
    arguments = (count, 0.0, *tensors)
    return net.launch("activations.cl", name, (count,), *arguments, ACTIVATION=activation)


def _pool_shape(x: Tensor, y: Tensor, window: Sequence[int]) -> tuple[int, ...]:
    return (x.shape[0] * x.shape[1], *x.shape[2:], *y.shape[2:], *window)


@launches("max_pool_forward", "avg_pool_forward")
def pool_forward(net: DeviceNetwork, op: PlanOp) -> list[KernelLaunch]:
    x, y, *where = _operands(op)
    size = (y.shape[3], y.shape[2], y.shape[0] * y.shape[1])
    arguments = (*_pool_shape(x, y, op.ints), x, y, *where)
    return [net.launch("pooling.cl", op.kind, size, *arguments)]


@launches("max_pool_gradient", "avg_pool_gradient")
def pool_gradient(net: DeviceNetwork, op: PlanOp) -> list[KernelLaunch]:
    *tensors, dx = _operands(op)
    size = (dx.shape[3], dx.shape[2], dx.shape[0] * dx.shape[1])
    arguments = (*_pool_shape(dx, tensors[-1], op.ints), *tensors, dx)
    return [net.launch("pooling.cl", op.kind, size, *arguments)]


@launches("global_avg_pool_forward")
def global_avg_pool_forward(net: DeviceNetwork, op: PlanOp) -> list[KernelLaunch]:
    x, y = _operands(op)
    planes, pixels = x.shape[0] * x.shape[1], prod(x.shape[2:])
    return [net.launch("pooling.cl", op.kind, (planes,), planes, pixels, x, y)]


@launches("global_avg_pool_gradient")
def global_avg_pool_gradient(net: DeviceNetwork, op: PlanOp) -> list[KernelLaunch]:
    dy, dx = _operands(op)
    planes, pixels = dx.shape[0] * dx.shape[1], prod(dx.shape[2:])
    return [net.launch("pooling.cl", op.kind, (pixels, planes), planes, pixels, dy, dx)]


@launches("dropout_forward", "dropout_gradient")
def dropout(net: DeviceNetwork, op: PlanOp) -> list[KernelLaunch]:
    """Launch dropout; the caller writes the mask, so that all backends drop the same values."""
    tensors, (rate,) = _operands(op), op.floats
    x, y, mask = tensors if op.kind == "dropout_forward" else (tensors[1], tensors[2], tensors[0])
    count = prod(x.shape)
    arguments = (count, 1.0 / (1.0 - rate), mask, x, y)
    return [net.launch("activations.cl", "apply_mask", (count,), *arguments)]


@launches("concat", "split")
def concat_or_split(net: DeviceNetwork, op: PlanOp) -> list[KernelLaunch]:
    concat, axis = op.kind == "concat", op.ints[0]
    (joined,), pieces = (op.outs, op.ins) if concat else (op.ins, op.outs)
    launched, offset = [], 0
    for piece in pieces:
        if piece is None or joined is None:
            continue
        length, count = prod(piece.shape[axis:]), prod(piece.shape)
        tensors = (piece, joined) if concat else (joined, piece)
        arguments = (count, length, prod(joined.shape[axis:]), offset, *tensors)
        launched.append(
            net.launch(
                "shape_ops.cl", "concat_piece" if concat else "split_piece", (count,), *arguments
            )
        )
        offset += length
    return launched


@launches("add")
def add(net: DeviceNetwork, op: PlanOp) -> list[KernelLaunch]:
    y = op.outs[0]
    return [
        net.launch(
            "shape_ops.cl", "accumulate", (prod(x.shape),), prod(x.shape), int(number > 0), x, y
        )
        for number, x in enumerate(op.ins)
        if x is not None
    ]


@launches("softmax_cross_entropy")
def softmax_cross_entropy(net: DeviceNetwork, op: PlanOp) -> list[KernelLaunch]:
    x, labels, probs, loss = _operands(op)
    rows, classes = _rows(x)
    row_losses = net.device.empty(4 * rows)
    return [
        net.launch("losses.cl", op.kind, (rows,), rows, classes, x, labels, probs, row_losses),
        net.launch("losses.cl", "mean_loss", (1,), rows, row_losses, loss),
    ]


@launches("softmax_cross_entropy_gradient")
def softmax_cross_entropy_gradient(net: DeviceNetwork, op: PlanOp) -> list[KernelLaunch]:
    probs, labels, dx = _operands(op)
    rows, classes = _rows(probs)
    arguments = (rows, classes, probs, labels, dx)
    return [net.launch("losses.cl", op.kind, (rows, classes), *arguments)]


@launches("sgd", "momentum")
def update(net: DeviceNetwork, op: PlanOp) -> list[KernelLaunch]:
    count = prod(op.ins[0].shape) if op.ins[0] else 0
    return [net.launch("optimizers.cl", op.kind, (count,), count, *op.floats, *op.ins)]
