"""Functions of each value, or of each row of values; what they keep for the slope differs."""

from dataclasses import dataclass
from typing import ClassVar

from workloads.fault import Refused
from workloads.layers.layer import Count, Counts, Layer, Place, Shape


class _Elementwise(Layer):
    """A function of each value by itself."""

    flops: ClassVar[int] = 1

    def shape(self, *inputs: Shape) -> Shape:
        """As it came."""
        return inputs[0]

    def forward(self, at: Place) -> Counts:
        """Each value once."""
        return {"forward": Count("elementwise", self.flops * at.y, at.x, at.y)}

    def input_gradients(self, at: Place) -> Counts:
        """Each gradient times the slope, which the kept value tells."""
        return {"input_gradient": Count("elementwise", self.flops * at.y, 2 * at.y, at.x)}

    @property
    def keeps_output(self) -> bool:
        """The slope follows from the result."""
        return True


@dataclass(frozen=True)
class ReLU(_Elementwise):
    """max(x, 0)."""


@dataclass(frozen=True)
class ReLU6(_Elementwise):
    """min(max(x, 0), 6)."""

    flops: ClassVar[int] = 2


@dataclass(frozen=True)
class LeakyReLU(_Elementwise):
    """What came in, or a small share of it below zero."""

    slope: float = 0.2
    flops: ClassVar[int] = 2


@dataclass(frozen=True)
class Tanh(_Elementwise):
    """The hyperbolic tangent."""

    flops: ClassVar[int] = 4


@dataclass(frozen=True)
class Sigmoid(_Elementwise):
    """1 / (1 + exp(-x))."""

    flops: ClassVar[int] = 4


@dataclass(frozen=True)
class GELU(_Elementwise):
    """What came in, times the share of a normal distribution below it."""

    flops: ClassVar[int] = 8

    @property
    def keeps_input(self) -> bool:
        """Two values may share a result; only what came in tells the slope."""
        return True

    @property
    def keeps_output(self) -> bool:
        """Not needed."""
        return False


@dataclass(frozen=True)
class Dropout(_Elementwise):
    """A share of the values set to zero, the rest scaled up."""

    share: float = 0.5
    flops: ClassVar[int] = 2

    def shape(self, *inputs: Shape) -> Shape:
        """As it came."""
        if not 0 <= self.share < 1:
            raise Refused(f"it drops a share from 0 up to, but not including, 1, not {self.share}")
        return inputs[0]

    @property
    def keeps_output(self) -> bool:
        """The mask is kept instead."""
        return False

    def keeps_besides(self, at: Place) -> int:
        """The mask."""
        return at.y


@dataclass(frozen=True)
class Softmax(Layer):
    """Shares that add up to one along an axis of the sample."""

    axis: int = -1

    def shape(self, *inputs: Shape) -> Shape:
        """As it came."""
        if not -len(inputs[0]) <= self.axis < len(inputs[0]):
            raise Refused(f"the shape {inputs[0]} has no axis {self.axis}")
        return inputs[0]

    def forward(self, at: Place) -> Counts:
        """Greatest, difference, exponential, sum and share."""
        return {"forward": Count("softmax", 5 * at.y, at.x, at.y)}

    def input_gradients(self, at: Place) -> Counts:
        """Each share times the difference of its gradient from the mean gradient."""
        return {"input_gradient": Count("softmax", 4 * at.y, 2 * at.y, at.x)}

    @property
    def keeps_output(self) -> bool:
        """The slope follows from the shares."""
        return True
