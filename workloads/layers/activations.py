"""Activations, dropout and softmax: functions of each value, or of each row of values.

They differ in what they save for the backward pass.
"""

from dataclasses import dataclass
from typing import ClassVar

from workloads.layers.layer import Layer, LayerShapes, OpCost, OpCosts, Shape
from workloads.protocol.faults import InvalidRequest


class _Elementwise(Layer):
    """A function of each value by itself, whose derivative follows from its result."""

    flops: ClassVar[int] = 1

    def output_shape(self, *inputs: Shape) -> Shape:
        return inputs[0]

    def forward_costs(self, shapes: LayerShapes) -> OpCosts:
        n = shapes.n_out
        return {"forward": OpCost("elementwise", self.flops * n, shapes.n_in, n)}

    def input_gradient_costs(self, shapes: LayerShapes) -> OpCosts:
        # The output gradient times the derivative, which the saved value gives.
        n = shapes.n_out
        return {"input_gradient": OpCost("elementwise", self.flops * n, 2 * n, shapes.n_in)}

    @property
    def saves_output(self) -> bool:
        return True


@dataclass(frozen=True)
class ReLU(_Elementwise):
    """max(x, 0)."""

    tag: ClassVar[str] = "relu"


@dataclass(frozen=True)
class ReLU6(_Elementwise):
    """min(max(x, 0), 6)."""

    tag: ClassVar[str] = "relu6"
    flops: ClassVar[int] = 2


@dataclass(frozen=True)
class LeakyReLU(_Elementwise):
    """The input, scaled down where it is negative."""

    tag: ClassVar[str] = "leaky_relu"
    flops: ClassVar[int] = 2
    negative_slope: float = 0.2


@dataclass(frozen=True)
class Tanh(_Elementwise):
    """The hyperbolic tangent."""

    tag: ClassVar[str] = "tanh"
    flops: ClassVar[int] = 4


@dataclass(frozen=True)
class Sigmoid(_Elementwise):
    """1 / (1 + exp(-x))."""

    tag: ClassVar[str] = "sigmoid"
    flops: ClassVar[int] = 4


@dataclass(frozen=True)
class GELU(_Elementwise):
    """The input times the standard normal CDF of it."""

    tag: ClassVar[str] = "gelu"
    flops: ClassVar[int] = 8

    @property
    def saves_input(self) -> bool:
        """True: two inputs may have one result, so only the input gives the derivative."""
        return True

    @property
    def saves_output(self) -> bool:
        return False


@dataclass(frozen=True)
class Dropout(_Elementwise):
    """A random share of the values set to zero, the others scaled up."""

    tag: ClassVar[str] = "dropout"
    flops: ClassVar[int] = 2
    rate: float = 0.5

    def output_shape(self, *inputs: Shape) -> Shape:
        if not 0 <= self.rate < 1:
            raise InvalidRequest(f"the dropout rate must be from 0 to below 1, got {self.rate}")
        return inputs[0]

    @property
    def saves_output(self) -> bool:
        """False: the mask is saved instead."""
        return False

    def saved_extra(self, shapes: LayerShapes) -> int:
        """Return the size of the mask."""
        return shapes.n_out


@dataclass(frozen=True)
class Softmax(Layer):
    """Probabilities that add up to one along an axis of the sample."""

    tag: ClassVar[str] = "softmax"
    axis: int = -1

    def output_shape(self, *inputs: Shape) -> Shape:
        if not -len(inputs[0]) <= self.axis < len(inputs[0]):
            raise InvalidRequest(f"the shape {inputs[0]} has no axis {self.axis}")
        return inputs[0]

    def forward_costs(self, shapes: LayerShapes) -> OpCosts:
        """Count maximum, difference, exponential, sum and quotient."""
        return {"forward": OpCost("softmax", 5 * shapes.n_out, shapes.n_in, shapes.n_out)}

    def input_gradient_costs(self, shapes: LayerShapes) -> OpCosts:
        """Count each probability times its gradient's difference from the mean gradient."""
        n = shapes.n_out
        return {"input_gradient": OpCost("softmax", 4 * n, 2 * n, shapes.n_in)}

    @property
    def saves_output(self) -> bool:
        return True
