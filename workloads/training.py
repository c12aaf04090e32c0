"""Steps: training (forward, loss, backward, update) and inference, as lists of operations.

Gradients are made only where they are needed: not for frozen parameters, and not for what lies
before the first learned layer (the image itself).
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

from workloads.data import BATCHES, Column
from workloads.fault import Refused
from workloads.graph import Model, Node
from workloads.layers import Dropout, Loss
from workloads.layers.layer import Count, Counts
from workloads.work import FLOAT_BYTES, Op, Step, Work, meaning_of


class Optimizer(ABC):
    """How parameters follow their gradients."""

    @property
    @abstractmethod
    def state(self) -> int:
        """Numbers kept for each parameter from step to step."""

    @property
    @abstractmethod
    def flops(self) -> int:
        """Arithmetic for each parameter."""

    def update(self, parameters: int) -> Count:
        """Parameters, gradients and state are read; parameters and state are written."""
        reads, writes = 2 + self.state, 1 + self.state
        return Count("update", self.flops * parameters, reads * parameters, writes * parameters)


@dataclass(frozen=True)
class SGD(Optimizer):
    """Stochastic gradient descent, with momentum and weight decay where they are not zero."""

    learning_rate: float = 0.01
    momentum: float = 0.0
    weight_decay: float = 0.0

    @property
    def state(self) -> int:
        """The velocity."""
        return 1 if self.momentum else 0

    @property
    def flops(self) -> int:
        """A multiply-add each for the step, the velocity and the decay."""
        return 2 + 2 * bool(self.momentum) + 2 * bool(self.weight_decay)


@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam: steps scaled by running moments of the gradient."""

    learning_rate: float = 0.001
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-8

    @property
    def state(self) -> int:
        """Both moments."""
        return 2

    @property
    def flops(self) -> int:
        """Two moments (3 + 4), then root, sum, quotient and step (5)."""
        return 12


@dataclass(frozen=True)
class Pass:
    """Once through a model and back, and the update of what learns.

    Passes of one step share the parameters of nodes that have the same name. A pass without an
    optimizer leaves its gradients to the next one that learns the same nodes.
    """

    model: Model
    optimizer: Optimizer | None
    name: str = ""  # before the names of its operations, where a step has several passes
    learns: frozenset[str] | None = None  # nodes; None: all that can

    @cached_property
    def taught(self) -> Model:
        """The model as this pass sees it: what is not to learn is frozen."""
        return self.model if self.learns is None else self.model.taught(self.learns)


@dataclass(frozen=True)
class Evaluation:
    """A look at samples that are not trained on, with the parameters as they are by then."""

    every: int  # steps
    samples: int
    data: Mapping[str, Column] = field(default_factory=dict)  # what differs from the training's


@dataclass(frozen=True)
class Training(Step):
    """One training step: its passes, in order, over a batch of samples."""

    passes: tuple[Pass, ...]
    batch: int
    batches: int = BATCHES  # in the data set
    evaluation: Evaluation | None = None  # of the first pass's model

    @cached_property
    def work(self) -> Work:
        """Count the step; parameters that passes share are counted once."""
        _check(self.batch)
        parameters: dict[str, int] = {}
        copies: dict[str, int] = {}
        kept = 0
        for each in self.passes:
            for node in each.taught.nodes:
                parameters[node.name] = each.model.parameter_count(node)
                if each.taught.learned(node) and each.optimizer:
                    copies[node.name] = 1 + each.optimizer.state
            kept = max(kept, _kept(each.taught, self.batch))
        held = sum(count * (1 + copies.get(name, 0)) for name, count in parameters.items())
        return Work(
            ops=tuple(self._ops()),
            training=True,
            samples_per_step=self.batch,
            parameter_bytes=FLOAT_BYTES * held,
            activation_bytes=FLOAT_BYTES * kept,
            batches=self.batches,
            parameters=sum(parameters.values()),
            macs=sum(
                node.layer.macs(each.model.place(node, self.batch))
                for each in self.passes
                for node in each.model.nodes
            ),
        )

    @cached_property
    def meaning(self) -> Any:
        """Models, data and how they learn."""
        passes = [
            [each.name, each.model.meaning, meaning_of(each.optimizer), meaning_of(each.learns)]
            for each in self.passes
        ]
        return [passes, self.batch, self.batches, meaning_of(self.evaluation)]

    def _ops(self) -> Iterator[Op]:
        left: set[str] = set()  # nodes whose gradients wait for another pass
        for each in self.passes:
            model = each.taught
            yield from _forward(model, self.batch, each.name)
            yield from _backward(model, self.batch, each.name)
            learned = [node for node in model.nodes if model.learned(node)]
            for node in learned:
                if node.name in left:
                    size = model.learned(node)
                    total = {"gradient_total": Count("elementwise", size, 2 * size, size)}
                    yield from _ops(node, total, each.name)
            if each.optimizer is None:
                left.update(node.name for node in learned)
                continue
            left.difference_update(node.name for node in learned)
            for node in learned:
                update = {"update": each.optimizer.update(model.learned(node))}
                yield from _ops(node, update, each.name)


@dataclass(frozen=True)
class Inference(Step):
    """Forward only, as a trained model is used: nothing is dropped, nothing is judged."""

    model: Model
    batch: int
    batches: int = BATCHES

    @cached_property
    def work(self) -> Work:
        """Count the step."""
        _check(self.batch)
        model = self.model
        nodes = [node for node in model.nodes if not isinstance(node.layer, Dropout | Loss)]
        places = [model.place(node, self.batch) for node in nodes]
        return Work(
            ops=tuple(
                op
                for node, at in zip(nodes, places, strict=True)
                for op in _ops(node, node.layer.forward(at))
            ),
            training=False,
            samples_per_step=self.batch,
            parameter_bytes=FLOAT_BYTES * model.parameters,
            activation_bytes=FLOAT_BYTES * max((at.x + at.y for at in places), default=0),
            parameters=model.parameters,
            macs=sum(node.layer.macs(at) for node, at in zip(nodes, places, strict=True)),
        )

    @cached_property
    def meaning(self) -> Any:
        """Model and data."""
        return ["inference", self.model.meaning, self.batch, self.batches]


def training(model: Model, batch: int, optimizer: Optimizer) -> Training:
    """The usual step: one pass through one model."""
    return Training((Pass(model, optimizer),), batch)


def training_work(model: Model, batch: int, optimizer: Optimizer) -> Work:
    """Count one training step."""
    return training(model, batch, optimizer).work


def _check(batch: int) -> None:
    if batch < 1:
        raise Refused(f"a batch has at least one sample, not {batch}")


def _forward(model: Model, batch: int, before: str) -> Iterator[Op]:
    for node in model.nodes:
        yield from _ops(node, node.layer.forward(model.place(node, batch)), before)


def _backward(model: Model, batch: int, before: str) -> Iterator[Op]:
    # Who feeds several layers gets several gradients, and they are added before it goes on.
    sent = Counter(
        feed
        for node in model.nodes
        if node.name in model.learning
        for feed in model.feeds[node.name]
    )
    for node in reversed(model.nodes):
        if node.name not in model.learning:
            continue
        layer, at = node.layer, model.place(node, batch)
        if sent[node.name] > 1:
            flops, reads = (sent[node.name] - 1) * at.y, sent[node.name] * at.y
            total = {"gradient_sum": Count("elementwise", flops, reads, at.y)}
            yield from _ops(node, total, before)
        yield from _ops(node, layer.inner_gradients(at), before)
        if model.learned(node):
            yield from _ops(node, layer.parameter_gradients(at), before)
        if any(feed in model.learning for feed in model.feeds[node.name]):
            yield from _ops(node, layer.input_gradients(at), before)


def _kept(model: Model, batch: int) -> int:
    """Elements that outlive the forward pass: each tensor once, however many need it."""
    kept: set[str] = set()
    besides = 0
    for node in model.nodes:
        if node.name in model.learning:
            if node.layer.keeps_input:
                kept.update(model.tensors[feed] for feed in model.feeds[node.name])
            if node.layer.keeps_output:
                kept.add(model.tensors[node.name])
            besides += node.layer.keeps_besides(model.place(node, batch))
    return besides + batch * sum(prod(model.shapes[name]) for name in kept)


def _ops(node: Node, counts: Counts, before: str = "") -> Iterator[Op]:
    for name, count in counts.items():
        yield Op(
            name=op_name(before, f"{node.name}.{name}"),
            kind=count.kind,
            flops=count.flops,
            read_bytes=FLOAT_BYTES * count.reads,
            write_bytes=FLOAT_BYTES * count.writes,
        )


def op_name(before: str, part: str) -> str:
    """The name of an operation in the header of a plan: its pass, its node and what it does."""
    return f"{before}.{part}" if before else part
