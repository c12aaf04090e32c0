"""Convolution and fully connected layers: nearly all arithmetic of most models."""

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from workloads.layers.layer import Layer, LayerShapes, OpCost, OpCosts, Shape, as_image
from workloads.layers.window_shapes import Padding, Size, as_pair, window_axes
from workloads.protocol.faults import InvalidRequest
from workloads.step_cost import OpKind


@dataclass(frozen=True)
class Conv2d(Layer):
    """A 2-D convolution; with as many groups as channels it is depthwise."""

    tag: ClassVar[str] = "conv2d"
    channels: int
    kernel: Size
    stride: Size = 1
    padding: Padding = "valid"
    groups: int = 1
    bias: bool = True
    transposed: bool = False
    trainable: bool = True

    def output_shape(self, *inputs: Shape) -> Shape:
        channels, *size = as_image(inputs[0])
        if self.groups < 1 or channels % self.groups or self.channels % self.groups:
            raise InvalidRequest(
                f"{self.groups} groups do not divide {channels} and {self.channels} channels"
            )
        height, width = window_axes(
            (size[0], size[1]), self.kernel, self.stride, self.padding, self.transposed
        )
        return (self.channels, height.positions, width.positions)

    def parameter_shapes(self, *inputs: Shape) -> dict[str, Shape]:
        """Return one window per pair of channels within a group, and the bias."""
        n_in, n_out = inputs[0][0], self.channels
        first, second = (n_in, n_out) if self.transposed else (n_out, n_in)
        weight = {"weight": (first, second // self.groups, *as_pair(self.kernel))}
        return weight | ({"bias": (n_out,)} if self.bias else {})

    def macs(self, shapes: LayerShapes) -> int:
        """Return weights times positions: of the output, or of the input if transposed."""
        _, height, width = as_image(shapes.inputs[0] if self.transposed else shapes.output)
        return shapes.batch * height * width * self._weights(shapes)

    def forward_costs(self, shapes: LayerShapes) -> OpCosts:
        flops = 2 * self.macs(shapes) + (shapes.n_out if self.bias else 0)
        reads = shapes.n_in + self._weights(shapes) + (self.channels if self.bias else 0)
        return {"forward": OpCost(self._kind(shapes), flops, reads, shapes.n_out)}

    def parameter_gradient_costs(self, shapes: LayerShapes) -> OpCosts:
        flops, reads = 2 * self.macs(shapes), shapes.n_in + shapes.n_out
        weights = OpCost(self._kind(shapes), flops, reads, self._weights(shapes))
        costs = {"weight_gradient": weights}
        if self.bias:
            costs["bias_gradient"] = OpCost("reduce", shapes.n_out, shapes.n_out, self.channels)
        return costs

    def input_gradient_costs(self, shapes: LayerShapes) -> OpCosts:
        flops, reads = 2 * self.macs(shapes), shapes.n_out + self._weights(shapes)
        return {"input_gradient": OpCost(self._kind(shapes), flops, reads, shapes.n_in)}

    @property
    def saves_input(self) -> bool:
        """Whether the weight gradient needs the input."""
        return self.trainable

    def _weights(self, shapes: LayerShapes) -> int:
        return prod(self.parameter_shapes(*shapes.inputs)["weight"])

    def _kind(self, shapes: LayerShapes) -> OpKind:
        if 1 < self.groups == shapes.inputs[0][0]:
            return "depthwise"
        return "pointwise" if as_pair(self.kernel) == (1, 1) else "conv"


@dataclass(frozen=True)
class Linear(Layer):
    """A fully connected layer over the last axis."""

    tag: ClassVar[str] = "linear"
    features: int
    bias: bool = True
    trainable: bool = True
    zero_start: bool = False  # whether its weights start at zero, so that it changes nothing yet

    def output_shape(self, *inputs: Shape) -> Shape:
        if not inputs[0] or self.features < 1:
            raise InvalidRequest(f"cannot map the shape {inputs[0]} to {self.features} features")
        return (*inputs[0][:-1], self.features)

    def parameter_shapes(self, *inputs: Shape) -> dict[str, Shape]:
        weight: dict[str, Shape] = {"weight": (self.features, inputs[0][-1])}
        return weight | ({"bias": (self.features,)} if self.bias else {})

    def macs(self, shapes: LayerShapes) -> int:
        return shapes.n_out * shapes.inputs[0][-1]

    def forward_costs(self, shapes: LayerShapes) -> OpCosts:
        flops = 2 * self.macs(shapes) + (shapes.n_out if self.bias else 0)
        reads = shapes.n_in + self._weights(shapes) + (self.features if self.bias else 0)
        return {"forward": OpCost("matmul", flops, reads, shapes.n_out)}

    def parameter_gradient_costs(self, shapes: LayerShapes) -> OpCosts:
        """Count the transposed input times dY; for the bias, the sum of dY."""
        flops, reads = 2 * self.macs(shapes), shapes.n_in + shapes.n_out
        costs = {"weight_gradient": OpCost("matmul", flops, reads, self._weights(shapes))}
        if self.bias:
            costs["bias_gradient"] = OpCost("reduce", shapes.n_out, shapes.n_out, self.features)
        return costs

    def input_gradient_costs(self, shapes: LayerShapes) -> OpCosts:
        """Count dY times the transposed weights."""
        flops, reads = 2 * self.macs(shapes), shapes.n_out + self._weights(shapes)
        return {"input_gradient": OpCost("matmul", flops, reads, shapes.n_in)}

    @property
    def saves_input(self) -> bool:
        """Whether the weight gradient needs the input."""
        return self.trainable

    def _weights(self, shapes: LayerShapes) -> int:
        return self.features * shapes.inputs[0][-1]


@dataclass(frozen=True)
class TiedLinear(Linear):
    """A fully connected layer without bias whose weight is the table of an embedding."""

    tag: ClassVar[str] = "tied_linear"
    bias: bool = False
    table: str = ""  # the name of the embedding

    @property
    def shared_from(self) -> str:
        return self.table

    def parameter_shapes(self, *_: Shape) -> dict[str, Shape]:
        """Return nothing: the table belongs to the embedding."""
        return {}
