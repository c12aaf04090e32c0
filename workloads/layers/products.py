"""Convolution and full connection: where nearly all arithmetic of a model is done."""

from dataclasses import dataclass
from math import prod

from workloads.fault import Refused
from workloads.layers.layer import Count, Counts, Layer, Place, Shape, image
from workloads.layers.windows import Padding, Size, pair, slides
from workloads.work import Kind


@dataclass(frozen=True)
class Conv2d(Layer):
    """Convolution; groups equal to the channels make it depthwise, transposed turns it round."""

    channels: int
    kernel: Size
    stride: Size = 1
    padding: Padding = "valid"
    groups: int = 1
    bias: bool = True
    transposed: bool = False
    trainable: bool = True

    def shape(self, *inputs: Shape) -> Shape:
        """Count the positions of the window."""
        channels, *size = image(inputs[0])
        if self.groups < 1 or channels % self.groups or self.channels % self.groups:
            raise Refused(
                f"{self.groups} groups do not divide {channels} and {self.channels} channels"
            )
        height, width = slides(
            (size[0], size[1]), self.kernel, self.stride, self.padding, self.transposed
        )
        return (self.channels, height.positions, width.positions)

    def parameters(self, *inputs: Shape) -> dict[str, Shape]:
        """One window for every pair of channels within a group."""
        into, out = inputs[0][0], self.channels
        first, second = (into, out) if self.transposed else (out, into)
        weight = {"weight": (first, second // self.groups, *pair(self.kernel))}
        return weight | ({"bias": (out,)} if self.bias else {})

    def macs(self, at: Place) -> int:
        """Every weight meets every position: of the output, or of the input if transposed."""
        _, height, width = image(at.inputs[0] if self.transposed else at.output)
        return at.batch * height * width * self._weights(at)

    def forward(self, at: Place) -> Counts:
        """Image and weights make the output."""
        flops = 2 * self.macs(at) + (at.y if self.bias else 0)
        reads = at.x + self._weights(at) + (self.channels if self.bias else 0)
        return {"forward": Count(self._kind(at), flops, reads, at.y)}

    def parameter_gradients(self, at: Place) -> Counts:
        """Image and output gradient make the weights' gradient."""
        flops = 2 * self.macs(at)
        counts = {"weight_gradient": Count(self._kind(at), flops, at.x + at.y, self._weights(at))}
        if self.bias:
            counts["bias_gradient"] = Count("reduce", at.y, at.y, self.channels)
        return counts

    def input_gradients(self, at: Place) -> Counts:
        """Output gradient and weights make the image's gradient."""
        flops = 2 * self.macs(at)
        return {"input_gradient": Count(self._kind(at), flops, at.y + self._weights(at), at.x)}

    @property
    def keeps_input(self) -> bool:
        """For the weights' gradient."""
        return self.trainable

    def _weights(self, at: Place) -> int:
        return prod(self.parameters(*at.inputs)["weight"])

    def _kind(self, at: Place) -> Kind:
        if 1 < self.groups == at.inputs[0][0]:
            return "depthwise"
        return "pointwise" if pair(self.kernel) == (1, 1) else "conv"


@dataclass(frozen=True)
class Linear(Layer):
    """A full connection of the last axis."""

    features: int
    bias: bool = True
    trainable: bool = True

    def shape(self, *inputs: Shape) -> Shape:
        """Replace the last axis."""
        if not inputs[0] or self.features < 1:
            raise Refused(f"it makes {self.features} features of the shape {inputs[0]}")
        return (*inputs[0][:-1], self.features)

    def parameters(self, *inputs: Shape) -> dict[str, Shape]:
        """A matrix and a bias."""
        weight: dict[str, Shape] = {"weight": (self.features, inputs[0][-1])}
        return weight | ({"bias": (self.features,)} if self.bias else {})

    def macs(self, at: Place) -> int:
        """Every output meets a row of weights."""
        return at.y * at.inputs[0][-1]

    def forward(self, at: Place) -> Counts:
        """A row of weights times the input, plus the bias."""
        flops = 2 * self.macs(at) + (at.y if self.bias else 0)
        reads = at.x + self._weights(at) + (self.features if self.bias else 0)
        return {"forward": Count("matmul", flops, reads, at.y)}

    def parameter_gradients(self, at: Place) -> Counts:
        """The transposed input times dY; for the bias, the sum of dY."""
        weights = Count("matmul", 2 * self.macs(at), at.x + at.y, self._weights(at))
        counts = {"weight_gradient": weights}
        if self.bias:
            counts["bias_gradient"] = Count("reduce", at.y, at.y, self.features)
        return counts

    def input_gradients(self, at: Place) -> Counts:
        """The gradient dY times the transposed weights."""
        flops = 2 * self.macs(at)
        return {"input_gradient": Count("matmul", flops, at.y + self._weights(at), at.x)}

    @property
    def keeps_input(self) -> bool:
        """For the weights' gradient."""
        return self.trainable

    def _weights(self, at: Place) -> int:
        return self.features * at.inputs[0][-1]
