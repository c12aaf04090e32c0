"""A perceptron on a device: which kernels make a step, what each reads and what it writes.

Two launches per layer, and one for the loss (dense.cl). reference_steps() is the same in numpy and
double precision; measured times count only if both agree.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.harness.opencl_device import Device, Floats, KernelLaunch

Array = NDArray[Any]
# Constants of dense.cl: rows and columns of a tile, tiles per work item, and the rows per work item
# of an input gradient.
MR, COLUMNS, TILES = 4, 16, 8
GRAD_ROWS = 3
GROUP_MAX = 32  # work items per group at most, and
GROUP_FLOPS_MIN = 1.2e5  # flops at least: smaller groups cost overhead, larger leave cores idle
RATE = 0.05
_SEED = 11


@dataclass
class DeviceTensor:
    """A buffer on the device, and an array of the same shape on the host."""

    buffer: Any
    host: Array


@dataclass(frozen=True)
class StepOperation:
    """One kernel of a step, with everything that it reads and writes."""

    launch: KernelLaunch
    reads: tuple[DeviceTensor, ...]
    writes: tuple[DeviceTensor, ...]


@dataclass(frozen=True)
class LabelledBatches:
    """A learnable data set, divided into batches."""

    rows: Floats
    labels: NDArray[np.int32]
    batch: int

    @property
    def batches(self) -> int:
        """How many batches there are."""
        return len(self.labels) // self.batch

    def batch_at(self, number: int) -> tuple[Floats, NDArray[np.int32]]:
        """Return the batch of a step; after the last one the first follows."""
        first = number % self.batches * self.batch
        return self.rows[first : first + self.batch], self.labels[first : first + self.batch]


def make_batches(widths: Sequence[int], batch: int, batches: int) -> LabelledBatches:
    """Draw random rows, labelled by a random linear model."""
    generator = np.random.default_rng(_SEED)
    rows = generator.standard_normal((batch * batches, widths[0])).astype(np.float32)
    teacher = generator.standard_normal((widths[0], widths[-1]))
    return LabelledBatches(rows, (rows @ teacher).argmax(1).astype(np.int32), batch)


def initial_values(widths: Sequence[int]) -> list[tuple[Floats, Floats]]:
    """Draw weights (IN, OUT) and biases of every layer."""
    generator = np.random.default_rng(_SEED + 1)
    values = []
    for into, out in pairwise(widths):
        bound = (6.0 / (into + out)) ** 0.5
        weight = generator.uniform(-bound, bound, (into, out)).astype(np.float32)
        values.append((weight, np.zeros(out, np.float32)))
    return values


class DevicePerceptron:
    """Parameters and activations of a perceptron on a device."""

    def __init__(self, device: Device, widths: Sequence[int], batch: int) -> None:
        self.device, self.widths, self.batch = device, tuple(widths), batch
        self._program = device.program("dense.cl")
        self.layers = [
            (self._tensor(weight), self._tensor(bias)) for weight, bias in initial_values(widths)
        ]
        self._activations = [self._empty(batch, width) for width in widths]
        self._gradients = [self._empty(batch, width) for width in widths]
        self.row_loss = self._empty(batch)

    def inputs(self, rows: int, host_visible: bool = False) -> tuple[DeviceTensor, DeviceTensor]:
        """Allocate rows of input and their labels on the device."""
        allocate = self.device.host_visible if host_visible else self.device.empty
        x = np.zeros((rows, self.widths[0]), np.float32)
        labels = np.zeros(rows, np.int32)
        return DeviceTensor(allocate(x.nbytes), x), DeviceTensor(allocate(labels.nbytes), labels)

    def step(
        self, x: DeviceTensor, labels: DeviceTensor, first_row: int = 0, fused: bool = True
    ) -> list[StepOperation]:
        """Prepare a step over the batch that begins at `first_row` of x.

        With `fused`, one launch per layer computes the input gradient and updates the weights;
        else they are two operations, as in a framework.
        """
        inputs = [x, *self._activations[1:]]
        last = len(self.layers) - 1
        forward = [
            self._forward(layer, inputs[layer], first_row if layer == 0 else 0, layer < last)
            for layer in range(last + 1)
        ]
        backward: list[StepOperation] = []
        for layer in range(last, 0, -1):
            if fused:
                backward.append(self._backward(layer))
            else:
                backward += [self._input_gradient(layer), self._update(layer, inputs[layer], 0)]
        return [*forward, self._loss(labels, first_row), *backward, self._update(0, x, first_row)]

    def reset(self) -> None:
        """Restore the initial values."""
        for (weight, bias), (first, second) in zip(
            self.layers, initial_values(self.widths), strict=True
        ):
            weight.host[...], bias.host[...] = first, second
            for tensor in (weight, bias):
                self.device.write(tensor.buffer, tensor.host).wait()

    def parameters(self) -> list[Floats]:
        """Read all parameters from the device."""
        return [
            self.device.read(tensor.buffer, tensor.host.shape)
            for layer in self.layers
            for tensor in layer
        ]

    def loss(self) -> float:
        """Read the mean loss of the last step."""
        return float(self.device.read(self.row_loss.buffer, (self.batch,)).mean())

    def _forward(
        self, layer: int, x: DeviceTensor, first_row: int, apply_relu: bool
    ) -> StepOperation:
        into, out = self.widths[layer : layer + 2]
        (weight, bias), y = self.layers[layer], self._activations[layer + 1]
        scalars = (self.batch, into, out, int(apply_relu), first_row)
        reads, items = (x, weight, bias), tile_grid(out, self.batch)
        flops = 2 * self.batch * into * out
        launch = self._bind("dense_forward", items, flops, scalars, (*reads, y))
        return StepOperation(launch, reads, (y,))

    def _loss(self, labels: DeviceTensor, first_row: int) -> StepOperation:
        classes, reads = self.widths[-1], (self._activations[-1], labels)
        writes = (self._gradients[-1], self.row_loss)
        scalars, flops = (self.batch, classes, first_row), 40 * self.batch * classes
        launch = self._bind("dense_loss", (self.batch, 1), flops, scalars, (*reads, *writes))
        return StepOperation(launch, reads, writes)

    def _backward(self, layer: int) -> StepOperation:
        into, out = self.widths[layer : layer + 2]
        updated, dx = self.layers[layer], self._gradients[layer]
        reads = (self._activations[layer], self._gradients[layer + 1], *updated)
        scalars, flops = (self.batch, into, out, RATE), 4 * self.batch * into * out
        items = (_div_up(into, MR), 1)
        launch = self._bind("dense_backward", items, flops, scalars, (*reads, dx))
        return StepOperation(launch, reads, (*updated, dx))

    def _input_gradient(self, layer: int) -> StepOperation:
        into, out = self.widths[layer : layer + 2]
        reads = (self._activations[layer], self._gradients[layer + 1], self.layers[layer][0])
        dx, items = self._gradients[layer], (_div_up(into, MR), _div_up(self.batch, GRAD_ROWS))
        scalars, flops = (self.batch, into, out), 2 * self.batch * into * out
        launch = self._bind("dense_input_gradient", items, flops, scalars, (*reads, dx))
        return StepOperation(launch, reads, (dx,))

    def _update(self, layer: int, x: DeviceTensor, first_row: int) -> StepOperation:
        into, out = self.widths[layer : layer + 2]
        updated = self.layers[layer]
        reads, items = (x, self._gradients[layer + 1], *updated), tile_grid(out, into)
        scalars, flops = (self.batch, into, out, RATE, first_row), 2 * self.batch * into * out
        launch = self._bind("dense_update", items, flops, scalars, reads)
        return StepOperation(launch, reads, updated)

    def _bind(
        self,
        entry: str,
        items: tuple[int, int],
        flops: int,
        scalars: tuple[int | float, ...],
        tensors: tuple[DeviceTensor, ...],
    ) -> KernelLaunch:
        """Bind a kernel, in work groups that are large enough for their overhead."""
        across, down = items
        groups = max(round(flops / down / GROUP_FLOPS_MIN), _div_up(across, GROUP_MAX))
        group = _div_up(across, min(groups, across))
        size = (_div_up(across, group) * group, down)
        buffers = [tensor.buffer for tensor in tensors]
        return self._program.bind(entry, size, (group, 1), *scalars, *buffers)

    def _empty(self, *shape: int) -> DeviceTensor:
        return self._tensor(np.zeros(shape, np.float32))

    def _tensor(self, values: Array) -> DeviceTensor:
        return DeviceTensor(self.device.buffer(values), values.copy())


def tile_grid(columns: int, rows: int) -> tuple[int, int]:
    """Return the work items of a launch over tiles."""
    return _div_up(columns, COLUMNS), _div_up(rows, TILES * MR)


def _div_up(count: int, step: int) -> int:
    return -(-count // step)


def reference_steps(widths: Sequence[int], batches: LabelledBatches, steps: int) -> list[Array]:
    """Return the parameters after this many steps, in numpy and double precision."""
    layers = [(w.astype(np.float64), b.astype(np.float64)) for w, b in initial_values(widths)]
    for number in range(steps):
        rows, labels = batches.batch_at(number)
        activations = [rows.astype(np.float64)]
        for layer, (weight, bias) in enumerate(layers):
            z = activations[-1] @ weight + bias
            activations.append(z if layer == len(layers) - 1 else np.maximum(z, 0))
        powers = np.exp(activations[-1] - activations[-1].max(1, keepdims=True))
        dz = powers / powers.sum(1, keepdims=True)
        dz[np.arange(len(labels)), labels] -= 1
        dz /= len(labels)
        for layer in reversed(range(len(layers))):
            (weight, bias), x = layers[layer], activations[layer]
            layers[layer] = (weight - RATE * x.T @ dz, bias - RATE * dz.sum(0))
            dz = (dz @ weight.T) * (x > 0)
    return [values for layer in layers for values in layer]
