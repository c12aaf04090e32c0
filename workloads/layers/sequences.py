"""Layers of text and time: embedding, places, LSTM and attention over (time, features)."""

from dataclasses import dataclass
from math import prod

from workloads.fault import Refused
from workloads.layers.layer import Count, Counts, Layer, Place, Shape, sequence


@dataclass(frozen=True)
class Embedding(Layer):
    """A row of a table for every symbol."""

    symbols: int
    features: int
    trainable: bool = True

    def shape(self, *inputs: Shape) -> Shape:
        """A row a symbol."""
        return (*inputs[0], self.features)

    def parameters(self, *_: Shape) -> dict[str, Shape]:
        """The table."""
        return {"weight": (self.symbols, self.features)}

    def forward(self, at: Place) -> Counts:
        """Rows are picked."""
        return {"forward": Count("gather", 0, at.x + at.y, at.y)}

    def parameter_gradients(self, at: Place) -> Counts:
        """Gradients are added to the rows that were picked, in a table of zeros."""
        table = self.symbols * self.features
        return {"weight_gradient": Count("gather", at.y, at.x + at.y, table)}

    def input_gradients(self, _: Place) -> Counts:
        """A symbol has no slope."""
        return {}

    @property
    def keeps_input(self) -> bool:
        """Which rows were picked."""
        return self.trainable


@dataclass(frozen=True)
class Positions(Layer):
    """A learned row for every moment, added to whatever stands there."""

    trainable: bool = True

    def shape(self, *inputs: Shape) -> Shape:
        """As it came."""
        sequence(inputs[0])
        return inputs[0]

    def parameters(self, *inputs: Shape) -> dict[str, Shape]:
        """One sample's worth of rows."""
        return {"weight": inputs[0]}

    def forward(self, at: Place) -> Counts:
        """One addition a value."""
        return {"forward": Count("elementwise", at.y, at.x + prod(at.output), at.y)}

    def parameter_gradients(self, at: Place) -> Counts:
        """The sum over all samples."""
        return {"weight_gradient": Count("reduce", at.y, at.y, prod(at.output))}

    def input_gradients(self, _: Place) -> Counts:
        """The gradient goes on as it is."""
        return {}


@dataclass(frozen=True)
class LastMoment(Layer):
    """What stands at the last moment."""

    def shape(self, *inputs: Shape) -> Shape:
        """One row is left."""
        return (sequence(inputs[0])[1],)

    def forward(self, at: Place) -> Counts:
        """One row is copied."""
        return {"forward": Count("copy", 0, at.y, at.y)}

    def input_gradients(self, at: Place) -> Counts:
        """The last row's gradient, and zeros before it."""
        return {"input_gradient": Count("copy", 0, at.y, at.x)}


@dataclass(frozen=True)
class RepeatMoment(Layer):
    """One row at every moment of a time."""

    moments: int

    def shape(self, *inputs: Shape) -> Shape:
        """So many moments of it."""
        if len(inputs[0]) != 1:
            raise Refused(f"it needs (features,) and gets {inputs[0]}")
        return (self.moments, *inputs[0])

    def forward(self, at: Place) -> Counts:
        """Copied."""
        return {"forward": Count("copy", 0, at.x, at.y)}

    def input_gradients(self, at: Place) -> Counts:
        """All moments' gradients added."""
        return {"input_gradient": Count("reduce", at.y, at.y, at.x)}


@dataclass(frozen=True)
class LSTM(Layer):
    """One layer of long short-term memory; the output has every moment's state."""

    features: int
    trainable: bool = True

    def shape(self, *inputs: Shape) -> Shape:
        """As long as it came."""
        return (sequence(inputs[0])[0], self.features)

    def parameters(self, *inputs: Shape) -> dict[str, Shape]:
        """Four gates, each fed by the input and by the state before."""
        gates = 4 * self.features
        return {
            "input_weight": (gates, inputs[0][-1]),
            "state_weight": (gates, self.features),
            "bias": (gates,),
        }

    def macs(self, at: Place) -> int:
        """Every gate of every moment meets the input and the state before."""
        return at.y * 4 * (at.inputs[0][-1] + self.features)

    def forward(self, at: Place) -> Counts:
        """The products, then gates and cell."""
        return {
            "forward": Count(
                "matmul", 2 * self.macs(at), at.x + at.y + self._weights(at), 4 * at.y
            ),
            "gates": Count("elementwise", 30 * at.y, 5 * at.y, 6 * at.y),
        }

    def inner_gradients(self, at: Place) -> Counts:
        """Through the gates and on to the state before, moment by moment."""
        gates = 4 * self.features
        return {
            "gates_gradient": Count("elementwise", 30 * at.y, 7 * at.y, 4 * at.y),
            "state_gradient": Count(
                "matmul", 2 * gates * at.y, 4 * at.y + gates * self.features, at.y
            ),
        }

    def parameter_gradients(self, at: Place) -> Counts:
        """Input, states and the gates' gradients make the weights' gradient."""
        return {
            "weight_gradient": Count(
                "matmul", 2 * self.macs(at), at.x + 5 * at.y, self._weights(at)
            ),
            "bias_gradient": Count("reduce", 4 * at.y, 4 * at.y, 4 * self.features),
        }

    def input_gradients(self, at: Place) -> Counts:
        """The gates' gradients and the weights make the input's gradient."""
        weights = 4 * self.features * at.inputs[0][-1]
        flops = 2 * 4 * at.y * at.inputs[0][-1]
        return {"input_gradient": Count("matmul", flops, 4 * at.y + weights, at.x)}

    @property
    def keeps_input(self) -> bool:
        """For the weights' gradient."""
        return True

    @property
    def keeps_output(self) -> bool:
        """The states are inputs of the moments after them."""
        return True

    def keeps_besides(self, at: Place) -> int:
        """Four gates and the cell of every moment."""
        return 5 * at.y

    def _weights(self, at: Place) -> int:
        shapes = self.parameters(*at.inputs)
        return prod(shapes["input_weight"]) + prod(shapes["state_weight"])


@dataclass(frozen=True)
class Attention(Layer):
    """Self-attention of several heads, with the projections into it and out of it."""

    heads: int
    causal: bool = False
    trainable: bool = True

    def shape(self, *inputs: Shape) -> Shape:
        """As it came."""
        _, features = sequence(inputs[0])
        if self.heads < 1 or features % self.heads:
            raise Refused(f"{self.heads} heads do not divide {features} features")
        return inputs[0]

    def parameters(self, *inputs: Shape) -> dict[str, Shape]:
        """Query, key and value in one matrix; the way out in another."""
        features = inputs[0][-1]
        return {
            "weight": (3 * features, features),
            "bias": (3 * features,),
            "out_weight": (features, features),
            "out_bias": (features,),
        }

    def macs(self, at: Place) -> int:
        """Projections, scores and weighted values."""
        return self._projection_macs(at) + self._score_macs(at)

    def forward(self, at: Place) -> Counts:
        """Project in, score, make shares, weigh, project out."""
        score = self._score_macs(at)  # two products of this half each
        return {
            "in_projection": Count(
                "matmul", 3 * self._projection_macs(at) // 2, at.x + self._in(at), 3 * at.x
            ),
            "scores": Count("matmul", score, 2 * at.x, self._shares(at)),
            "shares": Count("softmax", 5 * self._shares(at), self._shares(at), self._shares(at)),
            "values": Count("matmul", score, self._shares(at) + at.x, at.x),
            "out_projection": Count(
                "matmul", self._projection_macs(at) // 2, at.x + self._in(at) // 3, at.y
            ),
        }

    def inner_gradients(self, at: Place) -> Counts:
        """The way back, as far as query, key and value."""
        score, shares = self._score_macs(at), self._shares(at)
        back = self._projection_macs(at) // 2
        return {
            "out_gradient": Count("matmul", back, at.y + self._in(at) // 3, at.x),
            "values_gradient": Count("matmul", 2 * score, 2 * at.x + shares, at.x + shares),
            "shares_gradient": Count("softmax", 4 * shares, 2 * shares, shares),
            "scores_gradient": Count("matmul", 2 * score, 2 * at.x + shares, 2 * at.x),
        }

    def parameter_gradients(self, at: Place) -> Counts:
        """Of both projections."""
        flops, features = self._projection_macs(at) // 2, at.output[-1]
        return {
            "out_weight_gradient": Count("matmul", flops, 2 * at.x, self._in(at) // 3),
            "weight_gradient": Count("matmul", 3 * flops, 4 * at.x, self._in(at)),
            "bias_gradient": Count("reduce", 4 * at.y, 4 * at.y, 4 * features),
        }

    def input_gradients(self, at: Place) -> Counts:
        """Back through the projection in."""
        flops = 3 * self._projection_macs(at) // 2
        return {"input_gradient": Count("matmul", flops, 3 * at.x + self._in(at), at.x)}

    @property
    def keeps_input(self) -> bool:
        """For the gradient of the projection in."""
        return True

    def keeps_besides(self, at: Place) -> int:
        """Query, key, value, shares and what goes into the way out."""
        return 4 * at.x + self._shares(at)

    def _projection_macs(self, at: Place) -> int:
        return 4 * at.x * at.output[-1]

    def _score_macs(self, at: Place) -> int:
        return 2 * at.x * at.output[0]

    def _shares(self, at: Place) -> int:
        return at.batch * self.heads * at.output[0] ** 2

    def _in(self, at: Place) -> int:
        return prod(self.parameters(*at.inputs)["weight"])
