"""Layers that join, add, reshape and upsample: no parameters, mostly data movement."""

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from workloads.layers.layer import Layer, LayerShapes, OpCost, OpCosts, Shape, as_image
from workloads.protocol.faults import InvalidRequest


@dataclass(frozen=True)
class Concat(Layer):
    """Several inputs concatenated along an axis, by default the channels."""

    tag: ClassVar[str] = "concat"
    input_count: ClassVar[int | None] = None
    axis: int = 0

    def output_shape(self, *inputs: Shape) -> Shape:
        axis = self.axis
        if not 0 <= axis < len(inputs[0]):
            raise InvalidRequest(f"the shape {inputs[0]} has no axis {axis}")
        if len({(*shape[:axis], *shape[axis + 1 :]) for shape in inputs}) != 1:
            raise InvalidRequest(
                f"cannot join {_listed(inputs)} along axis {axis}: other axes differ"
            )
        return (*inputs[0][:axis], sum(shape[axis] for shape in inputs), *inputs[0][axis + 1 :])

    def forward_costs(self, shapes: LayerShapes) -> OpCosts:
        return {"forward": OpCost("copy", 0, shapes.n_in, shapes.n_out)}

    def input_gradient_costs(self, shapes: LayerShapes) -> OpCosts:
        return {"input_gradient": OpCost("copy", 0, shapes.n_out, shapes.n_in)}


@dataclass(frozen=True)
class Add(Layer):
    """The sum of several inputs of one shape."""

    tag: ClassVar[str] = "add"
    input_count: ClassVar[int | None] = None

    def output_shape(self, *inputs: Shape) -> Shape:
        if len(set(inputs)) != 1:
            raise InvalidRequest(f"{_listed(inputs)} cannot be added")
        return inputs[0]

    def forward_costs(self, shapes: LayerShapes) -> OpCosts:
        flops = (len(shapes.inputs) - 1) * shapes.n_out
        return {"forward": OpCost("elementwise", flops, shapes.n_in, shapes.n_out)}

    def input_gradient_costs(self, _: LayerShapes) -> OpCosts:
        """Return nothing: the output gradient is the gradient of every input."""
        return {}


class _View(Layer):
    """The same values under another shape; no data moves."""

    is_view: ClassVar[bool] = True

    def forward_costs(self, _: LayerShapes) -> OpCosts:
        return {}

    def input_gradient_costs(self, _: LayerShapes) -> OpCosts:
        return {}


@dataclass(frozen=True)
class Flatten(_View):
    """The same values as one row."""

    tag: ClassVar[str] = "flatten"

    def output_shape(self, *inputs: Shape) -> Shape:
        return (prod(inputs[0]),)


@dataclass(frozen=True)
class Reshape(_View):
    """The same values under a given shape."""

    tag: ClassVar[str] = "reshape"
    new_shape: Shape

    def output_shape(self, *inputs: Shape) -> Shape:
        if prod(inputs[0]) != prod(self.new_shape):
            raise InvalidRequest(
                f"{prod(inputs[0])} values do not fit into the shape {self.new_shape}"
            )
        return self.new_shape


@dataclass(frozen=True)
class Upsample(Layer):
    """Every pixel repeated in both directions."""

    tag: ClassVar[str] = "upsample"
    factor: int

    def output_shape(self, *inputs: Shape) -> Shape:
        channels, height, width = as_image(inputs[0])
        return (channels, self.factor * height, self.factor * width)

    def forward_costs(self, shapes: LayerShapes) -> OpCosts:
        return {"forward": OpCost("copy", 0, shapes.n_in, shapes.n_out)}

    def input_gradient_costs(self, shapes: LayerShapes) -> OpCosts:
        """Count the sum over the copies of every pixel."""
        return {"input_gradient": OpCost("pool", shapes.n_out, shapes.n_out, shapes.n_in)}


def _listed(shapes: tuple[Shape, ...]) -> str:
    return " and ".join(str(shape) for shape in shapes)
