"""A model as a graph: named layers in order of execution, ending in a loss.

Shapes, parameters and multiply-adds follow from the definition. A definition that does not fit
together is rejected with an error that names the layer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from math import prod
from typing import Any

from workloads.data_columns import DataColumn, default_input_column, default_target_column
from workloads.identity import canonical
from workloads.layers import (
    CrossEntropy,
    Embedding,
    Layer,
    LayerShapes,
    Loss,
    Shape,
    SoftmaxCrossEntropy,
)
from workloads.protocol.faults import InvalidRequest

TARGET = "target"  # the data column of the values that a model should output


@dataclass(frozen=True)
class Node:
    """A named layer and the names of its inputs; without names its input is the previous node."""

    name: str
    layer: Layer
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True)
class PublishedSize:
    """The size of a model in the literature; tests compare the definition with it."""

    parameters: int
    macs: int  # of one sample's forward pass
    source: str
    as_coded: bool = False  # counted in the code of a study, not stated by it


NOT_PUBLISHED = PublishedSize(0, 0, "")  # of a model that no paper describes


@dataclass(frozen=True)
class Model:
    """A training graph: named inputs with the shape of one sample, and nodes in order."""

    name: str
    inputs: Mapping[str, Shape]
    nodes: tuple[Node, ...]
    published: PublishedSize
    data: Mapping[str, DataColumn] = field(default_factory=dict)  # where it is not the default

    @cached_property
    def node_inputs(self) -> dict[str, tuple[str, ...]]:
        """The names of the inputs of every node."""
        node_inputs: dict[str, tuple[str, ...]] = {}
        known = list(self.inputs)
        if not known:
            raise InvalidRequest(f"{self.name} has no input")
        for node in self.nodes:
            names = node.inputs or (known[-1],)
            count = node.layer.input_count
            if node.name in known:
                raise InvalidRequest(f"{self.name} has two layers called '{node.name}'")
            for name in names:
                if name not in known:
                    raise InvalidRequest(
                        f"{self._label(node)}: no earlier layer is called '{name}'"
                    )
            if len(names) != count and (count is not None or len(names) < 2):
                needed = "two inputs or more" if count is None else f"{count} input(s)"
                raise InvalidRequest(f"{self._label(node)}: needs {needed}, got {len(names)}")
            node_inputs[node.name] = names
            known.append(node.name)
        if not self.nodes or not isinstance(self.nodes[-1].layer, Loss):
            raise InvalidRequest(f"{self.name} does not end in a loss")
        return node_inputs

    @cached_property
    def shapes(self) -> dict[str, Shape]:
        """The shape of one sample at every input and at the output of every node."""
        shapes = dict(self.inputs)
        for name, shape in shapes.items():
            if min(shape, default=1) < 1:
                raise InvalidRequest(f"{self.name}: the input '{name}' cannot have shape {shape}")
        for node in self.nodes:
            inputs = [shapes[name] for name in self.node_inputs[node.name]]
            try:
                shapes[node.name] = node.layer.output_shape(*inputs)
            except InvalidRequest as error:
                raise InvalidRequest(f"{self._label(node)}: {error}") from None
            if min(shapes[node.name], default=1) < 1:
                raise InvalidRequest(
                    f"{self._label(node)}: its output cannot have shape {shapes[node.name]}"
                )
        return shapes

    @cached_property
    def gradient_nodes(self) -> frozenset[str]:
        """The nodes whose output depends on a trainable parameter: gradients flow through them."""
        found: set[str] = set()
        for node in self.nodes:
            depends = any(name in found for name in self.node_inputs[node.name])
            if depends or self.trains(node):
                found.add(node.name)
        return frozenset(found)

    @cached_property
    def memory_owners(self) -> dict[str, str]:
        """Whose memory each output is in: its own, or that of the tensor of which it is a view."""
        owners = {name: name for name in self.inputs}
        for node in self.nodes:
            source = self.node_inputs[node.name][0]
            owners[node.name] = owners[source] if node.layer.is_view else node.name
        return owners

    @cached_property
    def columns(self) -> dict[str, DataColumn]:
        """The data of every input, and of the target of the loss."""
        loss = self.nodes[-1]
        output = self.shapes[self.node_inputs[loss.name][0]]
        is_classifier = isinstance(loss.layer, SoftmaxCrossEntropy | CrossEntropy)
        classes = output[-1] if is_classifier and output else 10
        vocabularies = {
            self.node_inputs[node.name][0]: node.layer.vocabulary
            for node in self.nodes
            if isinstance(node.layer, Embedding)
        }
        columns = {
            name: self.data.get(name, default_input_column(shape, vocabularies.get(name), classes))
            for name, shape in self.inputs.items()
        }
        if TARGET in self.data:
            columns[TARGET] = self.data[TARGET]
        elif is_classifier:
            columns[TARGET] = default_target_column(output[:-1], classes)
        for name in self.data:
            if name not in columns:
                raise InvalidRequest(f"{self.name} has data for '{name}', which is not an input")
        return columns

    @cached_property
    def identity(self) -> Any:
        """What distinguishes this model from others; its name and published size do not."""
        columns = list(self.columns.items())
        return canonical([list(self.inputs.items()), self.nodes, columns])

    def freeze_except(self, trainable: frozenset[str]) -> "Model":
        """Return the same model, in which only these nodes are trainable."""
        nodes = tuple(node if node.name in trainable else _frozen(node) for node in self.nodes)
        return replace(self, nodes=nodes)

    @property
    def parameters(self) -> int:
        """The number of parameters, including frozen ones."""
        return sum(self.parameter_count(node) for node in self.nodes)

    @property
    def tokens_per_sample(self) -> int:
        """Tokens that it predicts per sample: one per time step; 0: it predicts no tokens."""
        loss = self.nodes[-1]
        output = self.shapes[self.node_inputs[loss.name][0]]
        reads_text = any(isinstance(node.layer, Embedding) for node in self.nodes)
        return output[0] if reads_text and len(output) == 2 else 0

    @property
    def macs(self) -> int:
        """Multiply-adds of one sample's forward pass."""
        return sum(node.layer.macs(self.layer_shapes(node, 1)) for node in self.nodes)

    def layer_shapes(self, node: Node, batch: int) -> LayerShapes:
        """Return the shapes around a node for a batch."""
        inputs = tuple(self.shapes[name] for name in self.node_inputs[node.name])
        return LayerShapes(batch, inputs, self.shapes[node.name])

    def parameter_shapes(self, node: Node) -> dict[str, Shape]:
        """Return the parameter tensors of one node by name."""
        inputs = (self.shapes[name] for name in self.node_inputs[node.name])
        return node.layer.parameter_shapes(*inputs)

    def parameter_count(self, node: Node) -> int:
        """Return the number of parameters of one node."""
        return sum(prod(shape) for shape in self.parameter_shapes(node).values())

    def trainable_count(self, node: Node) -> int:
        """Return the number of parameters of one node that training changes."""
        return self.parameter_count(node) if node.layer.trainable else 0

    def trains(self, node: Node) -> bool:
        """Whether a pass computes gradients of parameters that this node uses."""
        if not node.layer.shared_from or not node.layer.trainable:
            return self.trainable_count(node) > 0
        owner = next((each for each in self.nodes if each.name == node.layer.shared_from), None)
        if owner is None:
            raise InvalidRequest(
                f"{self._label(node)}: no layer is called '{node.layer.shared_from}'"
            )
        return self.trainable_count(owner) > 0

    def _label(self, node: Node) -> str:
        return f"{self.name}, layer '{node.name}'"


def _frozen(node: Node) -> Node:
    if "trainable" not in {field.name for field in fields(node.layer)}:  # type: ignore[arg-type]
        return node
    return replace(node, layer=replace(node.layer, trainable=False))  # type: ignore[type-var]
