"""Normalisation: cheap arithmetic that has to see every value twice."""

from dataclasses import dataclass

from workloads.layers.layer import Count, Counts, Layer, Place, Shape, image


@dataclass(frozen=True)
class BatchNorm(Layer):
    """Every channel normalised over the batch, then scaled and shifted."""

    momentum: float = 0.9  # of the running mean and variance
    epsilon: float = 1e-5
    trainable: bool = True

    def shape(self, *inputs: Shape) -> Shape:
        """As it came."""
        image(inputs[0])
        return inputs[0]

    def parameters(self, *inputs: Shape) -> dict[str, Shape]:
        """Scale and shift; the running mean and variance are state, not parameters."""
        return {"scale": inputs[0][:1], "shift": inputs[0][:1]}

    def forward(self, at: Place) -> Counts:
        """Mean and variance (4 a value), then normalise, scale and shift (4)."""
        channels = at.output[0]
        return {"forward": Count("norm", 8 * at.y, at.x + 4 * channels, at.y + 4 * channels)}

    def parameter_gradients(self, at: Place) -> Counts:
        """Two sums a channel."""
        flops, reads = 5 * at.y, at.x + at.y + 2 * at.output[0]
        return {"weight_gradient": Count("norm", flops, reads, 2 * at.output[0])}

    def input_gradients(self, at: Place) -> Counts:
        """The gradient, less its part along the mean and along the values."""
        return {"input_gradient": Count("norm", 7 * at.y, at.x + at.y + 5 * at.output[0], at.x)}

    @property
    def keeps_input(self) -> bool:
        """The normalised values are made again from it."""
        return True

    def keeps_besides(self, at: Place) -> int:
        """Mean and variance of this batch."""
        return 2 * at.output[0]


@dataclass(frozen=True)
class LayerNorm(Layer):
    """Every sample normalised along its last axis, then scaled and shifted."""

    epsilon: float = 1e-5
    trainable: bool = True

    def shape(self, *inputs: Shape) -> Shape:
        """As it came."""
        return inputs[0]

    def parameters(self, *inputs: Shape) -> dict[str, Shape]:
        """Scale and shift."""
        return {"scale": inputs[0][-1:], "shift": inputs[0][-1:]}

    def forward(self, at: Place) -> Counts:
        """Mean and variance (4 a value), then normalise, scale and shift (4)."""
        return {"forward": Count("norm", 8 * at.y, at.x + 2 * at.output[-1], at.y)}

    def parameter_gradients(self, at: Place) -> Counts:
        """Two sums a feature."""
        flops, reads = 5 * at.y, at.x + at.y + self.keeps_besides(at)
        return {"weight_gradient": Count("norm", flops, reads, 2 * at.output[-1])}

    def input_gradients(self, at: Place) -> Counts:
        """The gradient, less its part along the mean and along the values."""
        reads = at.x + at.y + at.output[-1] + self.keeps_besides(at)
        return {"input_gradient": Count("norm", 10 * at.y, reads, at.x)}

    @property
    def keeps_input(self) -> bool:
        """The normalised values are made again from it."""
        return True

    def keeps_besides(self, at: Place) -> int:
        """Mean and variance of every row."""
        return 2 * at.y // at.output[-1]
