"""Where a layer is lowered: what reaches it, what it makes, and what comes back to it."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from workloads.data import Type
from workloads.layers.layer import Layer, Place, Shape
from workloads.lowering.body import Init, Phase, Tensor

# A layer is lowered by one generator: the way forward, a yield, the way back.
Way = Generator[None, None, None]


class Ground(Protocol):
    """What a site stands on: the pass that is being lowered."""

    def tensor(self, name: str, shape: Shape, type: Type, init: Init | None) -> Tensor:
        """A new tensor among the activations."""

    def state(self, node: str, name: str, shape: Shape, init: Init) -> Tensor:
        """What a node carries from step to step without learning it."""

    def parameter(self, node: str, name: str) -> Tensor:
        """A parameter of a node."""

    def gradient(self, node: str, name: str) -> Tensor:
        """Where the gradient of a parameter goes."""

    def view(self, of: Tensor, shape: Shape) -> Tensor:
        """The same values under another shape."""

    def op(
        self,
        phase: Phase,
        part: str,
        kind: str,
        ins: Sequence[Tensor | None],
        outs: Sequence[Tensor | None],
        ints: Sequence[int],
        floats: Sequence[float],
    ) -> None:
        """One more operation; `part` names its entry in the header, behind the node's name."""

    def covers(self, part: str) -> None:
        """An entry of the header that another operation does as well."""


@dataclass
class Site:
    """One node of a pass, for the function that lowers its layer."""

    ground: Ground
    node: str
    place: Place
    xs: tuple[Tensor, ...]
    training: bool
    learns: bool  # whether the parameters get gradients
    asks: tuple[bool, ...]  # which inputs get gradients
    target: Tensor | None = None  # for a loss
    behind: Layer | None = None  # the function behind, where this layer does it as well
    done: bool = False  # whether the layer before has done this one already
    back: bool = False
    _y: Tensor | None = None
    _dy: Tensor | None = None
    gradients: dict[int, Tensor] = field(default_factory=dict)  # by input

    @property
    def x(self) -> Tensor:
        """What comes in first."""
        return self.xs[0]

    @property
    def y(self) -> Tensor:
        """What goes out; made when it is first asked for."""
        if self._y is None:
            self._y = self.new("output", (self.place.batch, *self.place.output))
        return self._y

    @y.setter
    def y(self, tensor: Tensor) -> None:
        self._y = tensor

    @property
    def dy(self) -> Tensor:
        """The gradient that came back."""
        assert self._dy is not None, f"{self.node} has no gradient"
        return self._dy

    @dy.setter
    def dy(self, tensor: Tensor) -> None:
        self._dy = tensor

    @property
    def passes_on(self) -> bool:
        """Whether any input wants a gradient."""
        return any(self.asks)

    def dx(self, index: int = 0) -> Tensor:
        """Where the gradient of an input goes."""
        if index not in self.gradients:
            made = self.new(f"input_gradient{index or ''}", self.xs[index].shape)
            self.gradients[index] = made
        return self.gradients[index]

    def new(self, name: str, shape: Shape, type: Type = "float") -> Tensor:
        """A tensor of its own."""
        return self.ground.tensor(f"{self.node}.{name}", shape, type, None)

    def state(self, name: str, shape: Shape, value: float) -> Tensor:
        """What is carried from step to step, beginning with one value."""
        return self.ground.state(self.node, name, shape, Init("constant", value))

    def parameter(self, name: str) -> Tensor:
        """A parameter."""
        return self.ground.parameter(self.node, name)

    def gradient(self, name: str) -> Tensor:
        """Where the gradient of a parameter goes."""
        return self.ground.gradient(self.node, name)

    def view(self, of: Tensor, shape: Shape) -> Tensor:
        """The same values under another shape."""
        return self.ground.view(of, shape)

    def op(
        self,
        part: str,
        kind: str,
        ins: Sequence[Tensor | None],
        outs: Sequence[Tensor | None],
        ints: Sequence[int] = (),
        floats: Sequence[float] = (),
    ) -> None:
        """One operation of the engine; `part` names the entry of the header that it is part of."""
        phase: Phase = "backward" if self.back else "forward"
        self.ground.op(phase, f"{self.node}.{part}", kind, ins, outs, ints, floats)

    def covers(self, part: str) -> None:
        """Say that another operation does this entry of the header as well."""
        self.ground.covers(f"{self.node}.{part}")
