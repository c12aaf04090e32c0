"""Pooling layers."""

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from workloads.layers.layer import Layer, LayerShapes, OpCost, OpCosts, Shape, as_image
from workloads.layers.window_shapes import Padding, Size, as_pair, window_axes


@dataclass(frozen=True)
class _Pool(Layer):
    """One value for every position of a window."""

    kernel: Size
    stride: Size
    padding: Padding = "valid"

    def output_shape(self, *inputs: Shape) -> Shape:
        channels, *size = as_image(inputs[0])
        height, width = window_axes((size[0], size[1]), self.kernel, self.stride, self.padding)
        return (channels, height.positions, width.positions)

    def forward_costs(self, shapes: LayerShapes) -> OpCosts:
        flops = prod(as_pair(self.kernel)) * shapes.n_out
        return {"forward": OpCost("pool", flops, shapes.n_in, shapes.n_out)}


@dataclass(frozen=True)
class MaxPool(_Pool):
    """The maximum of every window."""

    tag: ClassVar[str] = "max_pool"

    def input_gradient_costs(self, shapes: LayerShapes) -> OpCosts:
        """Count each gradient, added at the position of the maximum."""
        n = shapes.n_out
        return {"input_gradient": OpCost("pool", n, 2 * n, shapes.n_in)}

    def saved_extra(self, shapes: LayerShapes) -> int:
        """Return the number of positions of maxima."""
        return shapes.n_out


@dataclass(frozen=True)
class AvgPool(_Pool):
    """The mean of every window."""

    tag: ClassVar[str] = "avg_pool"

    def input_gradient_costs(self, shapes: LayerShapes) -> OpCosts:
        """Count each gradient, spread over its window."""
        flops = prod(as_pair(self.kernel)) * shapes.n_out
        return {"input_gradient": OpCost("pool", flops, shapes.n_out, shapes.n_in)}


@dataclass(frozen=True)
class GlobalAvgPool(Layer):
    """The mean of every channel."""

    tag: ClassVar[str] = "global_avg_pool"

    def output_shape(self, *inputs: Shape) -> Shape:
        return (as_image(inputs[0])[0], 1, 1)

    def forward_costs(self, shapes: LayerShapes) -> OpCosts:
        return {"forward": OpCost("pool", shapes.n_in, shapes.n_in, shapes.n_out)}

    def input_gradient_costs(self, shapes: LayerShapes) -> OpCosts:
        """Count each gradient, spread over its channel."""
        return {"input_gradient": OpCost("pool", shapes.n_in, shapes.n_out, shapes.n_in)}
