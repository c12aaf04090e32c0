"""Loss layers: their shapes and costs (FLOPs, elements read and written).

Nothing is computed here: the engine in kernels/engine does that.
"""

from dataclasses import dataclass
from typing import ClassVar

from workloads.layers.layer import Layer, LayerShapes, OpCost, OpCosts, Shape
from workloads.protocol.faults import InvalidRequest


class Loss(Layer):
    """Reduces the output of the model and the target to one number per sample."""

    flops: ClassVar[int]
    gradient_flops: ClassVar[int]

    def output_shape(self, *_: Shape) -> Shape:
        return ()

    def forward_costs(self, shapes: LayerShapes) -> OpCosts:
        n = shapes.n_in
        return {"forward": OpCost("loss", self.flops * n, 2 * n, shapes.n_out)}

    def input_gradient_costs(self, shapes: LayerShapes) -> OpCosts:
        n = shapes.n_in
        return {"input_gradient": OpCost("loss", self.gradient_flops * n, 2 * n, n)}

    @property
    def saves_input(self) -> bool:
        return True


@dataclass(frozen=True)
class SoftmaxCrossEntropy(Loss):
    """Softmax along the last axis, then the negative logarithm of the right class."""

    tag: ClassVar[str] = "softmax_cross_entropy"
    flops: ClassVar[int] = 7
    gradient_flops: ClassVar[int] = 2

    def saved_extra(self, shapes: LayerShapes) -> int:
        """Return the number of probabilities."""
        return shapes.n_in


@dataclass(frozen=True)
class CrossEntropy(Loss):
    """The negative logarithm of the model's output, which is taken to be probabilities."""

    tag: ClassVar[str] = "cross_entropy"
    flops: ClassVar[int] = 2
    gradient_flops: ClassVar[int] = 2


@dataclass(frozen=True)
class MeanSquaredError(Loss):
    """The mean squared difference from the target."""

    tag: ClassVar[str] = "mean_squared_error"
    flops: ClassVar[int] = 3
    gradient_flops: ClassVar[int] = 2


@dataclass(frozen=True)
class BinaryCrossEntropy(Loss):
    """Sigmoid, then binary cross-entropy for each value."""

    tag: ClassVar[str] = "binary_cross_entropy"
    flops: ClassVar[int] = 8
    gradient_flops: ClassVar[int] = 5


@dataclass(frozen=True)
class TemporalDifference(Loss):
    """The loss of deep Q-learning: Q values, those of the next state, the action, the reward.

    The target of the chosen action is the reward plus the discounted best value of the next state.
    Nothing is known about the other actions, so their error counts as zero.
    """

    tag: ClassVar[str] = "temporal_difference"
    input_count: ClassVar[int | None] = 4
    flops: ClassVar[int] = 3
    gradient_flops: ClassVar[int] = 2
    discount: float = 0.99

    def output_shape(self, *inputs: Shape) -> Shape:
        values, next_values, action, reward = inputs
        if len(values) != 1 or values != next_values or action or reward:
            raise InvalidRequest(
                "needs two rows of Q values of one length, a scalar action and a scalar reward, "
                f"got {inputs}"
            )
        return ()

    def forward_costs(self, shapes: LayerShapes) -> OpCosts:
        n = self._values(shapes)
        return {
            "target": OpCost("elementwise", n + 2 * shapes.batch, shapes.n_in, n),
            "forward": OpCost("loss", self.flops * n, 2 * n, shapes.n_out),
        }

    def input_gradient_costs(self, shapes: LayerShapes) -> OpCosts:
        """Count the gradient of the Q values; those of the next state are constants."""
        n = self._values(shapes)
        return {"input_gradient": OpCost("loss", self.gradient_flops * n, 2 * n, n)}

    def saved_extra(self, shapes: LayerShapes) -> int:
        """Return the number of target values."""
        return self._values(shapes)

    def _values(self, shapes: LayerShapes) -> int:
        return shapes.batch * shapes.inputs[0][0]
