"""Normalization layers: little arithmetic, but every value is read twice."""

from dataclasses import dataclass
from typing import ClassVar

from workloads.layers.layer import Layer, LayerShapes, OpCost, OpCosts, Shape, as_image


@dataclass(frozen=True)
class BatchNorm(Layer):
    """Every channel normalized over the batch, then scaled and shifted."""

    tag: ClassVar[str] = "batch_norm"
    momentum: float = 0.9  # of the running mean and variance
    epsilon: float = 1e-5
    trainable: bool = True

    def output_shape(self, *inputs: Shape) -> Shape:
        as_image(inputs[0])
        return inputs[0]

    def parameter_shapes(self, *inputs: Shape) -> dict[str, Shape]:
        """Return scale and shift; the running mean and variance are state, not parameters."""
        return {"scale": inputs[0][:1], "shift": inputs[0][:1]}

    def forward_costs(self, shapes: LayerShapes) -> OpCosts:
        """Count mean and variance (4 FLOPs per value), then normalize, scale and shift (4)."""
        n, channels = shapes.n_out, shapes.output[0]
        return {"forward": OpCost("norm", 8 * n, shapes.n_in + 4 * channels, n + 4 * channels)}

    def parameter_gradient_costs(self, shapes: LayerShapes) -> OpCosts:
        """Count two sums per channel."""
        n, channels = shapes.n_out, shapes.output[0]
        reads = shapes.n_in + n + 2 * channels
        return {"weight_gradient": OpCost("norm", 5 * n, reads, 2 * channels)}

    def input_gradient_costs(self, shapes: LayerShapes) -> OpCosts:
        """Count the gradient minus its components along the mean and along the values."""
        reads = shapes.n_in + shapes.n_out + 5 * shapes.output[0]
        return {"input_gradient": OpCost("norm", 7 * shapes.n_out, reads, shapes.n_in)}

    @property
    def saves_input(self) -> bool:
        """True: the backward pass computes the normalized values from it again."""
        return True

    def saved_extra(self, shapes: LayerShapes) -> int:
        """Return mean and variance of every channel."""
        return 2 * shapes.output[0]


@dataclass(frozen=True)
class LayerNorm(Layer):
    """Every sample normalized along its last axis, then scaled and shifted."""

    tag: ClassVar[str] = "layer_norm"
    epsilon: float = 1e-5
    trainable: bool = True

    def output_shape(self, *inputs: Shape) -> Shape:
        return inputs[0]

    def parameter_shapes(self, *inputs: Shape) -> dict[str, Shape]:
        return {"scale": inputs[0][-1:], "shift": inputs[0][-1:]}

    def forward_costs(self, shapes: LayerShapes) -> OpCosts:
        """Count mean and variance (4 FLOPs per value), then normalize, scale and shift (4)."""
        reads = shapes.n_in + 2 * shapes.output[-1]
        return {"forward": OpCost("norm", 8 * shapes.n_out, reads, shapes.n_out)}

    def parameter_gradient_costs(self, shapes: LayerShapes) -> OpCosts:
        """Count two sums per feature."""
        flops, reads = 5 * shapes.n_out, shapes.n_in + shapes.n_out + self.saved_extra(shapes)
        return {"weight_gradient": OpCost("norm", flops, reads, 2 * shapes.output[-1])}

    def input_gradient_costs(self, shapes: LayerShapes) -> OpCosts:
        """Count the gradient minus its components along the mean and along the values."""
        reads = shapes.n_in + shapes.n_out + shapes.output[-1] + self.saved_extra(shapes)
        return {"input_gradient": OpCost("norm", 10 * shapes.n_out, reads, shapes.n_in)}

    @property
    def saves_input(self) -> bool:
        """True: the backward pass computes the normalized values from it again."""
        return True

    def saved_extra(self, shapes: LayerShapes) -> int:
        """Return mean and variance of every row."""
        return 2 * shapes.n_out // shapes.output[-1]
