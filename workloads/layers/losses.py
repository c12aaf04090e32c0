"""Losses: the last layer of a model, and where the backward pass begins."""

from dataclasses import dataclass
from typing import ClassVar

from workloads.fault import Refused
from workloads.layers.layer import Count, Counts, Layer, Place, Shape


class Loss(Layer):
    """One number a sample out of what the model says and what is so."""

    flops: ClassVar[int]
    gradient_flops: ClassVar[int]

    def shape(self, *_: Shape) -> Shape:
        """One number."""
        return ()

    def forward(self, at: Place) -> Counts:
        """What the model says against what is so, value by value."""
        return {"forward": Count("loss", self.flops * at.x, 2 * at.x, at.y)}

    def input_gradients(self, at: Place) -> Counts:
        """The slope of the loss at every value."""
        return {"input_gradient": Count("loss", self.gradient_flops * at.x, 2 * at.x, at.x)}

    @property
    def keeps_input(self) -> bool:
        """The slope follows from what the model said."""
        return True


@dataclass(frozen=True)
class SoftmaxCrossEntropy(Loss):
    """Shares along the last axis, and the logarithm of the right one."""

    flops: ClassVar[int] = 7
    gradient_flops: ClassVar[int] = 2

    def keeps_besides(self, at: Place) -> int:
        """The shares."""
        return at.x


@dataclass(frozen=True)
class CrossEntropy(Loss):
    """The logarithm of what the model says, which it takes for shares as they are."""

    flops: ClassVar[int] = 2
    gradient_flops: ClassVar[int] = 2


@dataclass(frozen=True)
class MeanSquaredError(Loss):
    """The squared distance."""

    flops: ClassVar[int] = 3
    gradient_flops: ClassVar[int] = 2


@dataclass(frozen=True)
class BinaryCrossEntropy(Loss):
    """Yes or no for each value, out of a sigmoid of it."""

    flops: ClassVar[int] = 8
    gradient_flops: ClassVar[int] = 5


@dataclass(frozen=True)
class TemporalDifference(Loss):
    """Deep Q-learning: values, those of the next state, the action taken and its reward.

    The value of the action taken should be the reward plus the best of the next state, discounted;
    about the other actions nothing is known, so they count as right.
    """

    inputs: ClassVar[int | None] = 4
    flops: ClassVar[int] = 3
    gradient_flops: ClassVar[int] = 2
    discount: float = 0.99

    def shape(self, *inputs: Shape) -> Shape:
        """One number, out of two rows of values, one action and one reward."""
        values, following, action, reward = inputs
        if len(values) != 1 or values != following or action or reward:
            raise Refused(f"it needs two rows of values, an action and a reward, not {inputs}")
        return ()

    def forward(self, at: Place) -> Counts:
        """What the values should be, and how far they are from it."""
        values = at.batch * at.inputs[0][0]
        return {
            "target": Count("elementwise", values + 2 * at.batch, at.x, values),
            "forward": Count("loss", self.flops * values, 2 * values, at.y),
        }

    def input_gradients(self, at: Place) -> Counts:
        """The slope at every value; the next state's are taken as they are."""
        values = at.batch * at.inputs[0][0]
        return {"input_gradient": Count("loss", self.gradient_flops * values, 2 * values, values)}

    def keeps_besides(self, at: Place) -> int:
        """What the values should be."""
        return at.batch * at.inputs[0][0]
