"""A perceptron on a device: which kernels make a step, what each reads and what it writes.

Two launches a layer, and one for the loss (dense.cl). The reference beside it is plain numpy in
double precision; a step counts only if both agree.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.harness.device import Device, Floats, Launch

Array = NDArray[Any]
# Of dense.cl: what an item makes forward and in the update, and how many such tiles; rows of its
# way back to the input.
MR, COLUMNS, STRIPS = 4, 16, 8
BACK = 3
GROUP = 32  # items at most, and
WORTH = 1.2e5  # operations at least: less is mostly handing out groups, more leaves others idle
RATE = 0.05
_SEED = 11


@dataclass
class Tensor:
    """Values on the device, and a place for them on this side."""

    buffer: Any
    host: Array


@dataclass(frozen=True)
class Operation:
    """One kernel of a step, with all that it reads and writes."""

    launch: Launch
    reads: tuple[Tensor, ...]
    writes: tuple[Tensor, ...]


@dataclass(frozen=True)
class Lesson:
    """A data set with labels that can be learned: so many batches, one after another."""

    rows: Floats
    labels: NDArray[np.int32]
    batch: int

    @property
    def batches(self) -> int:
        """How many there are."""
        return len(self.labels) // self.batch

    def batch_at(self, number: int) -> tuple[Floats, NDArray[np.int32]]:
        """One of them; they come round again."""
        first = number % self.batches * self.batch
        return self.rows[first : first + self.batch], self.labels[first : first + self.batch]


def a_lesson(widths: Sequence[int], batch: int, batches: int) -> Lesson:
    """Random rows, labelled by a random linear teacher."""
    dice = np.random.default_rng(_SEED)
    rows = dice.standard_normal((batch * batches, widths[0])).astype(np.float32)
    teacher = dice.standard_normal((widths[0], widths[-1]))
    return Lesson(rows, (rows @ teacher).argmax(1).astype(np.int32), batch)


def first_values(widths: Sequence[int]) -> list[tuple[Floats, Floats]]:
    """Weights (IN, OUT) and biases of every layer before the first step."""
    dice = np.random.default_rng(_SEED + 1)
    values = []
    for into, out in pairwise(widths):
        bound = (6.0 / (into + out)) ** 0.5
        weight = dice.uniform(-bound, bound, (into, out)).astype(np.float32)
        values.append((weight, np.zeros(out, np.float32)))
    return values


class Perceptron:
    """The parameters and activations of a perceptron on a device."""

    def __init__(self, device: Device, widths: Sequence[int], batch: int) -> None:
        self.device, self.widths, self.batch = device, tuple(widths), batch
        self._program = device.program("dense.cl")
        self.layers = [
            (self._tensor(weight), self._tensor(bias)) for weight, bias in first_values(widths)
        ]
        self._seen = [self._empty(batch, width) for width in widths]
        self._slopes = [self._empty(batch, width) for width in widths]
        self.row_loss = self._empty(batch)

    def inputs(self, rows: int, shared: bool = False) -> tuple[Tensor, Tensor]:
        """Room on the device for rows of input, and for their labels."""
        make = self.device.shared if shared else self.device.empty
        x = np.zeros((rows, self.widths[0]), np.float32)
        labels = np.zeros(rows, np.int32)
        return Tensor(make(x.nbytes), x), Tensor(make(labels.nbytes), labels)

    def step(
        self, x: Tensor, labels: Tensor, skipped: int = 0, apart: bool = False
    ) -> list[Operation]:
        """A step over the batch that begins so many rows into x.

        Where operations are `apart`, a layer's two ways back, to its input and to its weights, are
        two of them, as a framework has them; else one launch makes both.
        """
        seen = [x, *self._seen[1:]]
        last = len(self.layers) - 1
        forward = [
            self._forward(number, seen[number], skipped if number == 0 else 0, number < last)
            for number in range(last + 1)
        ]
        back: list[Operation] = []
        for number in range(last, 0, -1):
            both = [self._input_gradient(number), self._update(number, seen[number], 0)]
            back += both if apart else [self._back(number)]
        return [*forward, self._loss(labels, skipped), *back, self._update(0, x, skipped)]

    def reset(self) -> None:
        """Back to the first values."""
        for (weight, bias), (first, second) in zip(
            self.layers, first_values(self.widths), strict=True
        ):
            weight.host[...], bias.host[...] = first, second
            for tensor in (weight, bias):
                self.device.write(tensor.buffer, tensor.host).wait()

    def parameters(self) -> list[Floats]:
        """All parameters as they are on the device now."""
        return [
            self.device.read(tensor.buffer, tensor.host.shape)
            for layer in self.layers
            for tensor in layer
        ]

    def loss(self) -> float:
        """The mean loss of the last step."""
        return float(self.device.read(self.row_loss.buffer, (self.batch,)).mean())

    def _forward(self, number: int, x: Tensor, skipped: int, bends: bool) -> Operation:
        into, out = self.widths[number : number + 2]
        (weight, bias), y = self.layers[number], self._seen[number + 1]
        words = (self.batch, into, out, int(bends), skipped)
        reads, items = (x, weight, bias), tiles(out, self.batch)
        launch = self._bind("dense_forward", items, 2 * self.batch * into * out, words, (*reads, y))
        return Operation(launch, reads, (y,))

    def _loss(self, labels: Tensor, skipped: int) -> Operation:
        classes, reads = self.widths[-1], (self._seen[-1], labels)
        writes = (self._slopes[-1], self.row_loss)
        words, worked = (self.batch, classes, skipped), 40 * self.batch * classes
        launch = self._bind("dense_loss", (self.batch, 1), worked, words, (*reads, *writes))
        return Operation(launch, reads, writes)

    def _back(self, number: int) -> Operation:
        into, out = self.widths[number : number + 2]
        changed, dx = self.layers[number], self._slopes[number]
        reads = (self._seen[number], self._slopes[number + 1], *changed)
        words, worked = (self.batch, into, out, RATE), 4 * self.batch * into * out
        launch = self._bind("dense_back", (_ceil(into, MR), 1), worked, words, (*reads, dx))
        return Operation(launch, reads, (*changed, dx))

    def _input_gradient(self, number: int) -> Operation:
        into, out = self.widths[number : number + 2]
        reads = (self._seen[number], self._slopes[number + 1], self.layers[number][0])
        dx, items = self._slopes[number], (_ceil(into, MR), _ceil(self.batch, BACK))
        words, worked = (self.batch, into, out), 2 * self.batch * into * out
        launch = self._bind("dense_input_gradient", items, worked, words, (*reads, dx))
        return Operation(launch, reads, (dx,))

    def _update(self, number: int, x: Tensor, skipped: int) -> Operation:
        into, out = self.widths[number : number + 2]
        changed = self.layers[number]
        reads, items = (x, self._slopes[number + 1], *changed), tiles(out, into)
        words, worked = (self.batch, into, out, RATE, skipped), 2 * self.batch * into * out
        launch = self._bind("dense_update", items, worked, words, reads)
        return Operation(launch, reads, changed)

    def _bind(
        self,
        entry: str,
        items: tuple[int, int],
        worked: int,
        words: tuple[int | float, ...],
        memory: tuple[Tensor, ...],
    ) -> Launch:
        """A launch of so many items that work so much, in groups that are worth their while."""
        across, down = items
        groups = min(max(round(worked / down / WORTH), _ceil(across, GROUP)), across)
        group = _ceil(across, groups)
        size = (_ceil(across, group) * group, down)
        buffers = [tensor.buffer for tensor in memory]
        return self._program.bind(entry, size, (group, 1), *words, *buffers)

    def _empty(self, *shape: int) -> Tensor:
        return self._tensor(np.zeros(shape, np.float32))

    def _tensor(self, values: Array) -> Tensor:
        return Tensor(self.device.buffer(values), values.copy())


def tiles(columns: int, rows: int) -> tuple[int, int]:
    """The items of a launch over so many columns and rows."""
    return _ceil(columns, COLUMNS), _ceil(rows, STRIPS * MR)


def _ceil(count: int, step: int) -> int:
    return -(-count // step)


def reference_steps(widths: Sequence[int], lesson: Lesson, steps: int) -> list[Array]:
    """The parameters after so many steps, by numpy in double precision."""
    layers = [(w.astype(np.float64), b.astype(np.float64)) for w, b in first_values(widths)]
    for number in range(steps):
        rows, labels = lesson.batch_at(number)
        seen = [rows.astype(np.float64)]
        for at, (weight, bias) in enumerate(layers):
            z = seen[-1] @ weight + bias
            seen.append(z if at == len(layers) - 1 else np.maximum(z, 0))
        raised = np.exp(seen[-1] - seen[-1].max(1, keepdims=True))
        dz = raised / raised.sum(1, keepdims=True)
        dz[np.arange(len(labels)), labels] -= 1
        dz /= len(labels)
        for at in reversed(range(len(layers))):
            (weight, bias), x = layers[at], seen[at]
            layers[at] = (weight - RATE * x.T @ dz, bias - RATE * dz.sum(0))
            dz = (dz @ weight.T) * (x > 0)
    return [values for layer in layers for values in layer]
