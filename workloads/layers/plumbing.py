"""Pooling, joining and reshaping: layers that learn nothing and mostly move data."""

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from workloads.fault import Refused
from workloads.layers.layer import Count, Counts, Layer, Place, Shape, image
from workloads.layers.windows import Padding, Size, pair, slides


@dataclass(frozen=True)
class _Pool(Layer):
    """One value for every position of a window."""

    kernel: Size
    stride: Size
    padding: Padding = "valid"

    def shape(self, *inputs: Shape) -> Shape:
        """Count the positions of the window."""
        channels, *size = image(inputs[0])
        height, width = slides((size[0], size[1]), self.kernel, self.stride, self.padding)
        return (channels, height.positions, width.positions)

    def forward(self, at: Place) -> Counts:
        """Every value of every window is looked at."""
        return {"forward": Count("pool", prod(pair(self.kernel)) * at.y, at.x, at.y)}


@dataclass(frozen=True)
class MaxPool(_Pool):
    """The greatest of every window."""

    def input_gradients(self, at: Place) -> Counts:
        """Each gradient goes where the greatest was."""
        return {"input_gradient": Count("pool", at.y, 2 * at.y, at.x)}

    def keeps_besides(self, at: Place) -> int:
        """Where the greatest was."""
        return at.y


@dataclass(frozen=True)
class AvgPool(_Pool):
    """The mean of every window."""

    def input_gradients(self, at: Place) -> Counts:
        """Each gradient is spread over its window."""
        return {"input_gradient": Count("pool", prod(pair(self.kernel)) * at.y, at.y, at.x)}


@dataclass(frozen=True)
class GlobalAvgPool(Layer):
    """The mean of every channel."""

    def shape(self, *inputs: Shape) -> Shape:
        """One pixel is left."""
        return (image(inputs[0])[0], 1, 1)

    def forward(self, at: Place) -> Counts:
        """Every value once."""
        return {"forward": Count("pool", at.x, at.x, at.y)}

    def input_gradients(self, at: Place) -> Counts:
        """Each gradient is spread over its channel."""
        return {"input_gradient": Count("pool", at.x, at.y, at.x)}


@dataclass(frozen=True)
class Concat(Layer):
    """Several inputs side by side along an axis: the first, the channels, unless it is named."""

    inputs: ClassVar[int | None] = None
    axis: int = 0

    def shape(self, *inputs: Shape) -> Shape:
        """One axis added up; the others agree."""
        axis = self.axis
        if not 0 <= axis < len(inputs[0]):
            raise Refused(f"the shape {inputs[0]} has no axis {axis}")
        if len({(*shape[:axis], *shape[axis + 1 :]) for shape in inputs}) != 1:
            which = f"axis {axis}" if axis else "the first axis"
            raise Refused(f"{_listed(inputs)} differ in more than {which}")
        return (*inputs[0][:axis], sum(shape[axis] for shape in inputs), *inputs[0][axis + 1 :])

    def forward(self, at: Place) -> Counts:
        """Copied together."""
        return {"forward": Count("copy", 0, at.x, at.y)}

    def input_gradients(self, at: Place) -> Counts:
        """Copied apart."""
        return {"input_gradient": Count("copy", 0, at.y, at.x)}


@dataclass(frozen=True)
class Add(Layer):
    """Several inputs of one shape, added."""

    inputs: ClassVar[int | None] = None

    def shape(self, *inputs: Shape) -> Shape:
        """As they came."""
        if len(set(inputs)) != 1:
            raise Refused(f"{_listed(inputs)} cannot be added")
        return inputs[0]

    def forward(self, at: Place) -> Counts:
        """One addition for every further input."""
        return {"forward": Count("elementwise", (len(at.inputs) - 1) * at.y, at.x, at.y)}

    def input_gradients(self, _: Place) -> Counts:
        """The gradient reaches every input as it is."""
        return {}


@dataclass(frozen=True)
class Flatten(Layer):
    """The same values as one row; nothing moves."""

    view: ClassVar[bool] = True

    def shape(self, *inputs: Shape) -> Shape:
        """One axis."""
        return (prod(inputs[0]),)

    def forward(self, _: Place) -> Counts:
        """Another view of the same memory."""
        return {}

    def input_gradients(self, _: Place) -> Counts:
        """The same, backwards."""
        return {}


@dataclass(frozen=True)
class Reshape(Layer):
    """The same values under another shape; nothing moves."""

    to: Shape
    view: ClassVar[bool] = True

    def shape(self, *inputs: Shape) -> Shape:
        """As many values as came."""
        if prod(inputs[0]) != prod(self.to):
            raise Refused(f"{prod(inputs[0])} values do not make the shape {self.to}")
        return self.to

    def forward(self, _: Place) -> Counts:
        """Another view of the same memory."""
        return {}

    def input_gradients(self, _: Place) -> Counts:
        """The same, backwards."""
        return {}


@dataclass(frozen=True)
class Upsample(Layer):
    """Every pixel so many times in both directions."""

    factor: int

    def shape(self, *inputs: Shape) -> Shape:
        """Both sides grow."""
        channels, height, width = image(inputs[0])
        return (channels, self.factor * height, self.factor * width)

    def forward(self, at: Place) -> Counts:
        """Copied."""
        return {"forward": Count("copy", 0, at.x, at.y)}

    def input_gradients(self, at: Place) -> Counts:
        """Every pixel's copies added."""
        return {"input_gradient": Count("pool", at.y, at.y, at.x)}


def _listed(shapes: tuple[Shape, ...]) -> str:
    return " and ".join(str(shape) for shape in shapes)
