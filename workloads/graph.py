"""A model: layers in order, each fed by those before it, ending in a loss.

Everything else follows from the definition: shapes, parameters, multiply-adds. A definition that
makes no sense is refused with one sentence that names the layer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from math import prod
from typing import Any

from workloads.data import Column, input_column, target_column
from workloads.fault import Refused
from workloads.layers import (
    CrossEntropy,
    Embedding,
    Layer,
    Loss,
    Place,
    Shape,
    SoftmaxCrossEntropy,
)
from workloads.work import meaning_of

TARGET = "target"  # the data column of what a model should have said


@dataclass(frozen=True)
class Node:
    """A layer with a name, and what feeds it: the node before, unless others are named."""

    name: str
    layer: Layer
    feeds: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stated:
    """What the literature says of a model; tests hold the definition to it."""

    parameters: int
    macs: int  # of one sample's forward pass
    source: str


@dataclass(frozen=True)
class Model:
    """A training graph: named inputs with the shape of one sample, and nodes in order."""

    name: str
    inputs: Mapping[str, Shape]
    nodes: tuple[Node, ...]
    stated: Stated
    data: Mapping[str, Column] = field(default_factory=dict)  # what does not go without saying

    @cached_property
    def feeds(self) -> dict[str, tuple[str, ...]]:
        """What feeds each node, by name."""
        feeds: dict[str, tuple[str, ...]] = {}
        before = list(self.inputs)
        if not before:
            raise Refused(f"{self.name} has no input.")
        for node in self.nodes:
            named = node.feeds or (before[-1],)
            wanted = node.layer.inputs
            if node.name in before:
                raise Refused(f"{self.name} has two layers called '{node.name}'.")
            for feed in named:
                if feed not in before:
                    raise Refused(f"{self._at(node)}: nothing before it is called '{feed}'.")
            if len(named) != wanted and (wanted is not None or len(named) < 2):
                takes = "two inputs or more" if wanted is None else f"{wanted} input"
                raise Refused(f"{self._at(node)}: it takes {takes} and is fed by {len(named)}.")
            feeds[node.name] = named
            before.append(node.name)
        if not self.nodes or not isinstance(self.nodes[-1].layer, Loss):
            raise Refused(f"{self.name} does not end in a loss.")
        return feeds

    @cached_property
    def shapes(self) -> dict[str, Shape]:
        """The shape of one sample at every input and behind every node."""
        shapes = dict(self.inputs)
        for name, shape in shapes.items():
            if min(shape, default=1) < 1:
                raise Refused(f"{self.name}: the input '{name}' cannot have the shape {shape}.")
        for node in self.nodes:
            feeds = [shapes[feed] for feed in self.feeds[node.name]]
            try:
                shapes[node.name] = node.layer.shape(*feeds)
            except Refused as error:
                raise Refused(f"{self._at(node)}: {error}.") from None
            if min(shapes[node.name], default=1) < 1:
                raise Refused(f"{self._at(node)}: its output cannot be {shapes[node.name]}.")
        return shapes

    @cached_property
    def learning(self) -> frozenset[str]:
        """The nodes whose output depends on something that is learned: gradients go there."""
        found: set[str] = set()
        for node in self.nodes:
            if self.learned(node) or any(feed in found for feed in self.feeds[node.name]):
                found.add(node.name)
        return frozenset(found)

    @cached_property
    def tensors(self) -> dict[str, str]:
        """In whose memory each output lies: its own, unless it is a view of another."""
        tensors = {name: name for name in self.inputs}
        for node in self.nodes:
            feed = self.feeds[node.name][0]
            tensors[node.name] = tensors[feed] if node.layer.view else node.name
        return tensors

    @cached_property
    def columns(self) -> dict[str, Column]:
        """What every input, and the target of the loss, is made of."""
        loss = self.nodes[-1]
        said = self.shapes[self.feeds[loss.name][0]]
        judged = isinstance(loss.layer, SoftmaxCrossEntropy | CrossEntropy)
        classes = said[-1] if judged and said else 10
        tables = {
            self.feeds[node.name][0]: node.layer.symbols
            for node in self.nodes
            if isinstance(node.layer, Embedding)
        }
        columns = {
            name: self.data.get(name, input_column(shape, tables.get(name), classes))
            for name, shape in self.inputs.items()
        }
        if TARGET in self.data:
            columns[TARGET] = self.data[TARGET]
        elif judged:
            columns[TARGET] = target_column(said[:-1], classes)
        for name in self.data:
            if name not in columns:
                raise Refused(f"{self.name} has data for '{name}', which it does not have.")
        return columns

    @cached_property
    def meaning(self) -> Any:
        """What tells this model from any other; what is said of it elsewhere is not part of it."""
        columns = list(self.columns.items())
        return meaning_of([list(self.inputs.items()), self.nodes, columns])

    def taught(self, learns: frozenset[str]) -> "Model":
        """The same model, in which only these nodes learn."""
        return replace(self, nodes=tuple(_taught(node, learns) for node in self.nodes))

    @property
    def parameters(self) -> int:
        """Parameters, the frozen ones included."""
        return sum(self.parameter_count(node) for node in self.nodes)

    @property
    def macs(self) -> int:
        """Multiply-adds of one sample's forward pass."""
        return sum(node.layer.macs(self.place(node, 1)) for node in self.nodes)

    def place(self, node: Node, batch: int) -> Place:
        """Where a node stands, for a batch of samples."""
        feeds = tuple(self.shapes[feed] for feed in self.feeds[node.name])
        return Place(batch, feeds, self.shapes[node.name])

    def parameter_shapes(self, node: Node) -> dict[str, Shape]:
        """The parameters of one node, by name."""
        return node.layer.parameters(*(self.shapes[feed] for feed in self.feeds[node.name]))

    def parameter_count(self, node: Node) -> int:
        """Parameters of one node."""
        return sum(prod(shape) for shape in self.parameter_shapes(node).values())

    def learned(self, node: Node) -> int:
        """Parameters of one node that training changes."""
        return self.parameter_count(node) if node.layer.trainable else 0

    def _at(self, node: Node) -> str:
        return f"{self.name}, layer '{node.name}'"


def _taught(node: Node, learns: frozenset[str]) -> Node:
    if node.name in learns or "trainable" not in {each.name for each in fields(node.layer)}:  # type: ignore[arg-type]
        return node
    return replace(node, layer=replace(node.layer, trainable=False))  # type: ignore[type-var]
