"""A perceptron on a device: which kernels make a step, what each reads and what it writes.

Three launches a layer at most (dense.cl). The reference beside it is plain numpy in double
precision; a step counts only if both agree.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.harness.device import Device, Floats, Launch

Array = NDArray[Any]
# Of dense.cl: what an item makes forward and in the update, and on the way back.
MR, COLUMNS, STRIPS = 4, 16, 4
BACK, INS = 3, 4
GROUP = 32  # items; a launch of one item a group would be mostly handing out groups
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

    def step(self, x: Tensor, labels: Tensor, skipped: int = 0) -> list[Operation]:
        """A step over the batch that begins so many rows into x."""
        seen = [x, *self._seen[1:]]
        last = len(self.layers) - 1
        forward = [
            self._forward(number, seen[number], skipped if number == 0 else 0, number < last)
            for number in range(last + 1)
        ]
        back: list[Operation] = []
        for number in reversed(range(last + 1)):
            if number > 0:
                back.append(self._input_gradient(number))
            back.append(self._update(number, seen[number], skipped if number == 0 else 0))
        return [*forward, self._loss(labels, skipped), *back]

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
        items = tiles(out, self.batch)
        return self._operation("dense_forward", items, words, (x, weight, bias), (y,))

    def _loss(self, labels: Tensor, skipped: int) -> Operation:
        classes, z, dz = self.widths[-1], self._seen[-1], self._slopes[-1]
        launch = self._program.bind(
            "dense_loss",
            (_ceil(self.batch, GROUP) * GROUP,),
            (GROUP,),
            self.batch,
            classes,
            skipped,
            z.buffer,
            labels.buffer,
            dz.buffer,
            self.row_loss.buffer,
        )
        return Operation(launch, (z, labels), (dz, self.row_loss))

    def _input_gradient(self, number: int) -> Operation:
        into, out = self.widths[number : number + 2]
        reads = (self._seen[number], self._slopes[number + 1], self.layers[number][0])
        words, items = (self.batch, into, out), (_ceil(into, INS), _ceil(self.batch, BACK))
        return self._operation("dense_input_gradient", items, words, reads, (self._slopes[number],))

    def _update(self, number: int, x: Tensor, skipped: int) -> Operation:
        into, out = self.widths[number : number + 2]
        dz, changed = self._slopes[number + 1], self.layers[number]
        words = (self.batch, into, out, RATE, skipped)
        made = self._operation("dense_update", tiles(out, into), words, (x, dz, *changed), ())
        return Operation(made.launch, made.reads, changed)

    def _operation(
        self,
        entry: str,
        items: tuple[int, int],
        words: tuple[int | float, ...],
        reads: tuple[Tensor, ...],
        writes: tuple[Tensor, ...],
    ) -> Operation:
        group = min(GROUP, items[0])
        size = (_ceil(items[0], group) * group, items[1])
        memory = [tensor.buffer for tensor in (*reads, *writes)]
        return Operation(
            self._program.bind(entry, size, (group, 1), *words, *memory), reads, writes
        )

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
