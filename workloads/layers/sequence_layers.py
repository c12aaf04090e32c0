"""Layers over sequences of shape (time, features): embeddings, LSTM and attention."""

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from workloads.layers.layer import Layer, LayerShapes, OpCost, OpCosts, Shape, as_sequence
from workloads.protocol.faults import InvalidRequest


@dataclass(frozen=True)
class Embedding(Layer):
    """A row of a trained table for every token."""

    tag: ClassVar[str] = "embedding"
    vocabulary: int
    features: int
    trainable: bool = True
    deviation: float = 1.0  # of the values that it starts with

    def output_shape(self, *inputs: Shape) -> Shape:
        return (*inputs[0], self.features)

    def parameter_shapes(self, *_: Shape) -> dict[str, Shape]:
        return {"weight": (self.vocabulary, self.features)}

    def forward_costs(self, shapes: LayerShapes) -> OpCosts:
        return {"forward": OpCost("gather", 0, shapes.n_in + shapes.n_out, shapes.n_out)}

    def parameter_gradient_costs(self, shapes: LayerShapes) -> OpCosts:
        """Count the gradients, added to their rows in a table of zeros."""
        table = self.vocabulary * self.features
        reads = shapes.n_in + shapes.n_out
        return {"weight_gradient": OpCost("gather", shapes.n_out, reads, table)}

    def input_gradient_costs(self, _: LayerShapes) -> OpCosts:
        """Return nothing: a token has no gradient."""
        return {}

    @property
    def saves_input(self) -> bool:
        """Whether the weight gradient needs to know which rows were read."""
        return self.trainable


@dataclass(frozen=True)
class PositionEmbedding(Layer):
    """A trained row for every time step, added to the input."""

    tag: ClassVar[str] = "position_embedding"
    trainable: bool = True

    def output_shape(self, *inputs: Shape) -> Shape:
        as_sequence(inputs[0])
        return inputs[0]

    def parameter_shapes(self, *inputs: Shape) -> dict[str, Shape]:
        return {"weight": inputs[0]}

    def forward_costs(self, shapes: LayerShapes) -> OpCosts:
        n = shapes.n_out
        return {"forward": OpCost("elementwise", n, shapes.n_in + prod(shapes.output), n)}

    def parameter_gradient_costs(self, shapes: LayerShapes) -> OpCosts:
        """Count the sum over all samples."""
        n = shapes.n_out
        return {"weight_gradient": OpCost("reduce", n, n, prod(shapes.output))}

    def input_gradient_costs(self, _: LayerShapes) -> OpCosts:
        """Return nothing: the output gradient is the input gradient."""
        return {}


@dataclass(frozen=True)
class LastTimeStep(Layer):
    """The last row of a sequence."""

    tag: ClassVar[str] = "last_time_step"

    def output_shape(self, *inputs: Shape) -> Shape:
        return (as_sequence(inputs[0])[1],)

    def forward_costs(self, shapes: LayerShapes) -> OpCosts:
        return {"forward": OpCost("copy", 0, shapes.n_out, shapes.n_out)}

    def input_gradient_costs(self, shapes: LayerShapes) -> OpCosts:
        """Count the last row's gradient, and zeros before it."""
        return {"input_gradient": OpCost("copy", 0, shapes.n_out, shapes.n_in)}


@dataclass(frozen=True)
class RepeatVector(Layer):
    """One row repeated at every time step."""

    tag: ClassVar[str] = "repeat_vector"
    time_steps: int

    def output_shape(self, *inputs: Shape) -> Shape:
        if len(inputs[0]) != 1:
            raise InvalidRequest(f"needs an input of (features,), got {inputs[0]}")
        return (self.time_steps, *inputs[0])

    def forward_costs(self, shapes: LayerShapes) -> OpCosts:
        return {"forward": OpCost("copy", 0, shapes.n_in, shapes.n_out)}

    def input_gradient_costs(self, shapes: LayerShapes) -> OpCosts:
        """Count the sum over all time steps."""
        return {"input_gradient": OpCost("reduce", shapes.n_out, shapes.n_out, shapes.n_in)}


@dataclass(frozen=True)
class LSTM(Layer):
    """One layer of long short-term memory; the output is the hidden state of every time step."""

    tag: ClassVar[str] = "lstm"
    features: int
    trainable: bool = True

    def output_shape(self, *inputs: Shape) -> Shape:
        return (as_sequence(inputs[0])[0], self.features)

    def parameter_shapes(self, *inputs: Shape) -> dict[str, Shape]:
        """Return the weights of four gates, for the input and for the previous state."""
        gates = 4 * self.features
        return {
            "input_weight": (gates, inputs[0][-1]),
            "state_weight": (gates, self.features),
            "bias": (gates,),
        }

    def macs(self, shapes: LayerShapes) -> int:
        return shapes.n_out * 4 * (shapes.inputs[0][-1] + self.features)

    def forward_costs(self, shapes: LayerShapes) -> OpCosts:
        """Count the matrix products, then gates and cell."""
        n, time_steps = shapes.n_out, shapes.output[0]
        reads = shapes.n_in + n + self._weights(shapes)
        return {
            "forward": OpCost("matmul", 2 * self.macs(shapes), reads, 4 * n, time_steps),
            "gates": OpCost("elementwise", 30 * n, 5 * n, 6 * n, time_steps),
        }

    def shared_gradient_costs(self, shapes: LayerShapes) -> OpCosts:
        """Count the gradients of gates and previous states, one time step after another."""
        n, gates, time_steps = shapes.n_out, 4 * self.features, shapes.output[0]
        reads = 4 * n + gates * self.features
        return {
            "gates_gradient": OpCost("elementwise", 30 * n, 7 * n, 4 * n, time_steps),
            "state_gradient": OpCost("matmul", 2 * gates * n, reads, n, time_steps),
        }

    def parameter_gradient_costs(self, shapes: LayerShapes) -> OpCosts:
        n = shapes.n_out
        flops, reads = 2 * self.macs(shapes), shapes.n_in + 5 * n
        return {
            "weight_gradient": OpCost("matmul", flops, reads, self._weights(shapes)),
            "bias_gradient": OpCost("reduce", 4 * n, 4 * n, 4 * self.features),
        }

    def input_gradient_costs(self, shapes: LayerShapes) -> OpCosts:
        features = shapes.inputs[0][-1]
        flops = 2 * 4 * shapes.n_out * features
        reads = 4 * shapes.n_out + 4 * self.features * features
        return {"input_gradient": OpCost("matmul", flops, reads, shapes.n_in)}

    @property
    def saves_input(self) -> bool:
        return True

    @property
    def saves_output(self) -> bool:
        """True: each state is an input of the next time step."""
        return True

    def saved_extra(self, shapes: LayerShapes) -> int:
        """Return the four gates and the cell of every time step."""
        return 5 * shapes.n_out

    def _weights(self, shapes: LayerShapes) -> int:
        parameters = self.parameter_shapes(*shapes.inputs)
        return prod(parameters["input_weight"]) + prod(parameters["state_weight"])


@dataclass(frozen=True)
class AttentionHeads(Layer):
    """Multi-head self-attention over queries, keys and values side by side.

    The projections before and after it are separate layers, so that each can be frozen or
    adapted by itself.
    """

    tag: ClassVar[str] = "attention_heads"
    heads: int
    causal: bool = False  # a time step sees itself and those before it

    def output_shape(self, *inputs: Shape) -> Shape:
        time_steps, features = as_sequence(inputs[0])
        if self.heads < 1 or features % (3 * self.heads):
            raise InvalidRequest(
                f"{self.heads} heads do not divide {features} features of queries, keys and values"
            )
        return (time_steps, features // 3)

    def macs(self, shapes: LayerShapes) -> int:
        """Return the multiply-adds of two products: scores, and their weighted values."""
        return 2 * shapes.n_out * shapes.output[0]

    def forward_costs(self, shapes: LayerShapes) -> OpCosts:
        n, weights, product = shapes.n_out, self._weights(shapes), self.macs(shapes)
        return {
            "scores": OpCost("matmul", product, 2 * n, weights),
            "weights": OpCost("softmax", 5 * weights, weights, weights),
            "values": OpCost("matmul", product, weights + n, n),
        }

    def input_gradient_costs(self, shapes: LayerShapes) -> OpCosts:
        n, weights, products = shapes.n_out, self._weights(shapes), 2 * self.macs(shapes)
        return {
            "values_gradient": OpCost("matmul", products, 2 * n + weights, n + weights),
            "weights_gradient": OpCost("softmax", 4 * weights, 2 * weights, weights),
            "scores_gradient": OpCost("matmul", products, 2 * n + weights, 2 * n),
        }

    @property
    def saves_input(self) -> bool:
        """True: every gradient needs queries, keys and values."""
        return True

    def saved_extra(self, shapes: LayerShapes) -> int:
        """Return the number of attention weights."""
        return self._weights(shapes)

    def _weights(self, shapes: LayerShapes) -> int:
        return shapes.batch * self.heads * shapes.output[0] ** 2
