"""The context in which one layer of a pass is lowered: its tensors, and what needs a gradient."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from workloads.data_columns import ElementType
from workloads.layers.layer import Layer, LayerShapes, Shape
from workloads.lowering.plan_body import Initializer, Phase, Tensor

if TYPE_CHECKING:
    from workloads.lowering.step_lowering import PassBuilder

# A layer is lowered by one generator: the forward operations, a yield, the backward operations.
Lowering = Generator[None, None, None]


@dataclass
class LayerContext:
    """One node of a pass, for the function that lowers its layer."""

    builder: "PassBuilder"
    node: str
    shapes: LayerShapes
    xs: tuple[Tensor, ...]
    training: bool
    trainable: bool  # whether the parameters get gradients
    input_needs_gradient: tuple[bool, ...]
    target: Tensor | None = None  # for a loss
    fused_activation: Layer | None = None  # the next layer, which this one computes as well
    already_computed: bool = False  # whether the previous layer has computed this one
    in_backward: bool = False
    _y: Tensor | None = None
    _dy: Tensor | None = None
    input_gradients: dict[int, Tensor] = field(default_factory=dict)  # by input

    @property
    def x(self) -> Tensor:
        """The first input."""
        return self.xs[0]

    @property
    def y(self) -> Tensor:
        """The output; created when it is first used."""
        if self._y is None:
            self._y = self.new_tensor("output", (self.shapes.batch, *self.shapes.output))
        return self._y

    @y.setter
    def y(self, tensor: Tensor) -> None:
        self._y = tensor

    @property
    def dy(self) -> Tensor:
        """The gradient of the output."""
        assert self._dy is not None, f"{self.node} has no gradient"
        return self._dy

    @dy.setter
    def dy(self, tensor: Tensor) -> None:
        self._dy = tensor

    @property
    def needs_input_gradient(self) -> bool:
        """Whether any input needs a gradient."""
        return any(self.input_needs_gradient)

    def dx(self, index: int = 0) -> Tensor:
        """Return the tensor for the gradient of an input."""
        if index not in self.input_gradients:
            name = f"input_gradient{index or ''}"
            self.input_gradients[index] = self.new_tensor(name, self.xs[index].shape)
        return self.input_gradients[index]

    def new_tensor(self, name: str, shape: Shape, type: ElementType = "float") -> Tensor:
        """Add an activation of this node."""
        return self.builder.activation(f"{self.node}.{name}", shape, type)

    def state(self, name: str, shape: Shape, value: float) -> Tensor:
        """Return a tensor that is kept from step to step and starts with one value everywhere."""
        return self.builder.state(self.node, name, shape, Initializer("constant", value))

    def parameter(self, name: str) -> Tensor:
        return self.builder.parameter(self.node, name)

    def gradient(self, name: str) -> Tensor:
        """Return the tensor for the gradient of a parameter."""
        return self.builder.gradient(self.node, name)

    def has_gradient(self, name: str) -> bool:
        """Whether a layer that shares a parameter has already computed its part of the gradient."""
        return (self.node, name) in self.builder.parameter_gradients

    def view(self, base: Tensor, shape: Shape) -> Tensor:
        """Return the same values under another shape."""
        return self.builder.view(base, shape)

    def op(
        self,
        part: str,
        kind: str,
        ins: Sequence[Tensor | None],
        outs: Sequence[Tensor | None],
        ints: Sequence[int] = (),
        floats: Sequence[float] = (),
    ) -> None:
        """Add an operation of the engine; `part` names the header operation it belongs to."""
        phase: Phase = "backward" if self.in_backward else "forward"
        self.builder.op(phase, f"{self.node}.{part}", kind, ins, outs, ints, floats)

    def mark_covered(self, part: str) -> None:
        """Record a header operation that another operation computes as well."""
        self.builder.mark_covered(f"{self.node}.{part}")
