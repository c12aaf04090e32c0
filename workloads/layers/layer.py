"""What a layer is: shapes in, shape out, parameters, and the price of each pass over a batch.

A layer knows nothing of its neighbours, and everything of it follows from its fields and the
shapes that reach it. Shapes are those of one sample: (channels, height, width), (time, features),
(features,); the batch is counted in by the Place where a layer stands.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import prod
from typing import ClassVar, NamedTuple

from workloads.fault import Refused
from workloads.work import Kind

Shape = tuple[int, ...]


class Count(NamedTuple):
    """The price of one operation: arithmetic, and elements read and written."""

    kind: Kind
    flops: int
    reads: int
    writes: int


Counts = dict[str, Count]  # by the operation's name within its layer, in the order of execution


@dataclass(frozen=True)
class Place:
    """Where a layer stands: what reaches it, what leaves it, and how many samples at once."""

    batch: int
    inputs: tuple[Shape, ...]
    output: Shape

    @property
    def x(self) -> int:
        """Elements that come in."""
        return self.batch * sum(prod(shape) for shape in self.inputs)

    @property
    def y(self) -> int:
        """Elements that go out."""
        return self.batch * prod(self.output)


class Layer(ABC):
    """One step of a model. A new layer states what of this differs for it, and nothing else."""

    inputs: ClassVar[int | None] = 1  # None: two or more
    view: ClassVar[bool] = False  # the output is the input's memory under another shape
    trainable: bool = True

    @abstractmethod
    def shape(self, *inputs: Shape) -> Shape:
        """The shape that leaves, or Refused with one sentence about those that came."""

    @abstractmethod
    def forward(self, at: Place) -> Counts:
        """The operations that make the output."""

    @abstractmethod
    def input_gradients(self, at: Place) -> Counts:
        """The operations that carry the gradient on to the inputs; left out where nobody asks."""

    def parameters(self, *_: Shape) -> dict[str, Shape]:
        """The tensors that are learned, by name."""
        return {}

    def inner_gradients(self, _: Place) -> Counts:
        """The operations within the layer that both kinds of gradients need first."""
        return {}

    def parameter_gradients(self, _: Place) -> Counts:
        """The operations that make the gradients of the parameters."""
        return {}

    def macs(self, _: Place) -> int:
        """Multiply-adds of the forward pass in matrix products and convolutions; biases are not."""
        return 0

    @property
    def keeps_input(self) -> bool:
        """Whether the backward pass needs what came in."""
        return False

    @property
    def keeps_output(self) -> bool:
        """Whether the backward pass needs what went out."""
        return False

    def keeps_besides(self, _: Place) -> int:
        """Elements that the backward pass needs besides: masks, indices, statistics."""
        return 0


def image(shape: Shape) -> tuple[int, int, int]:
    """A shape as channels, height and width."""
    if len(shape) != 3:
        raise Refused(f"it needs (channels, height, width) and gets {shape}")
    return shape[0], shape[1], shape[2]


def sequence(shape: Shape) -> tuple[int, int]:
    """A shape as time and features."""
    if len(shape) != 2:
        raise Refused(f"it needs (time, features) and gets {shape}")
    return shape[0], shape[1]
