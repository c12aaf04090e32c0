"""The interface of a layer: its output shape, its parameters, and the cost of each pass.

A layer knows nothing of its neighbours: everything follows from its fields and its input shapes.
Shapes are those of one sample: (channels, height, width), (time, features) or (features,). The
batch size comes with LayerShapes.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import prod
from typing import ClassVar, NamedTuple

from workloads.identity import Tagged
from workloads.protocol.faults import InvalidRequest
from workloads.step_cost import OpKind

Shape = tuple[int, ...]


class OpCost(NamedTuple):
    """The cost of one operation: FLOPs, elements read, elements written."""

    kind: OpKind
    flops: int
    reads: int
    writes: int
    time_steps: int = 1


OpCosts = dict[str, OpCost]  # by the operation's name within its layer, in the order of execution


@dataclass(frozen=True)
class LayerShapes:
    """The shapes around a layer in a model, and the batch size."""

    batch: int
    inputs: tuple[Shape, ...]
    output: Shape

    @property
    def n_in(self) -> int:
        """Elements in all inputs of a batch."""
        return self.batch * sum(prod(shape) for shape in self.inputs)

    @property
    def n_out(self) -> int:
        """Elements in the output of a batch."""
        return self.batch * prod(self.output)


class Layer(Tagged, ABC):
    """One layer of a model; a subclass overrides what differs from the defaults here."""

    input_count: ClassVar[int | None] = 1  # None: two or more
    is_view: ClassVar[bool] = False  # the output is the input's memory under another shape
    trainable: bool = True

    @abstractmethod
    def output_shape(self, *inputs: Shape) -> Shape:
        """Return the output shape; raise InvalidRequest if the inputs do not fit."""

    @abstractmethod
    def forward_costs(self, shapes: LayerShapes) -> OpCosts:
        """Return the operations that compute the output."""

    @abstractmethod
    def input_gradient_costs(self, shapes: LayerShapes) -> OpCosts:
        """Return the operations that compute the gradients of the inputs, if any is needed."""

    def parameter_shapes(self, *_: Shape) -> dict[str, Shape]:
        """Return the parameter tensors by name."""
        return {}

    def shared_gradient_costs(self, _: LayerShapes) -> OpCosts:
        """Return the operations that both input and parameter gradients need first."""
        return {}

    def parameter_gradient_costs(self, _: LayerShapes) -> OpCosts:
        """Return the operations that compute the gradients of the parameters."""
        return {}

    @property
    def shared_from(self) -> str:
        """The node whose parameter "weight" this layer uses as well; empty: none."""
        return ""

    def macs(self, _: LayerShapes) -> int:
        """Return the multiply-adds of matrix products and convolutions, forward, without biases."""
        return 0

    @property
    def saves_input(self) -> bool:
        """Whether the backward pass needs the input."""
        return False

    @property
    def saves_output(self) -> bool:
        """Whether the backward pass needs the output."""
        return False

    def saved_extra(self, _: LayerShapes) -> int:
        """Return the further elements that the backward pass needs: masks, indices, statistics."""
        return 0


def as_image(shape: Shape) -> tuple[int, int, int]:
    """Return a shape as channels, height and width."""
    if len(shape) != 3:
        raise InvalidRequest(f"needs an input of (channels, height, width), got {shape}")
    return shape[0], shape[1], shape[2]


def as_sequence(shape: Shape) -> tuple[int, int]:
    """Return a shape as time and features."""
    if len(shape) != 2:
        raise InvalidRequest(f"needs an input of (time, features), got {shape}")
    return shape[0], shape[1]
