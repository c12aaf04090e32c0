"""One training step of a model: forward, loss, backward, update, as a list of operations.

Gradients are made only where they are needed: not for frozen parameters, and not for what lies
before the first learned layer (the image itself).
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from workloads.fault import Refused
from workloads.graph import Model, Node
from workloads.layers.layer import Count, Counts
from workloads.work import FLOAT_BYTES, Op, Work


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


def training_work(model: Model, batch: int, optimizer: Optimizer) -> Work:
    """Count one training step."""
    if batch < 1:
        raise Refused(f"a batch has at least one sample, not {batch}")
    ops = (*_forward(model, batch), *_backward(model, batch), *_update(model, optimizer))
    learned = sum(model.learned(node) for node in model.nodes)
    return Work(
        ops=ops,
        training=True,
        samples_per_step=batch,
        parameter_bytes=FLOAT_BYTES * (model.parameters + learned * (1 + optimizer.state)),
        activation_bytes=FLOAT_BYTES * _kept(model, batch),
    )


def _forward(model: Model, batch: int) -> Iterator[Op]:
    for node in model.nodes:
        yield from _ops(node, node.layer.forward(model.place(node, batch)))


def _backward(model: Model, batch: int) -> Iterator[Op]:
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
            yield from _ops(node, {"gradient_sum": Count("elementwise", flops, reads, at.y)})
        yield from _ops(node, layer.inner_gradients(at))
        if model.learned(node):
            yield from _ops(node, layer.parameter_gradients(at))
        if any(feed in model.learning for feed in model.feeds[node.name]):
            yield from _ops(node, layer.input_gradients(at))


def _update(model: Model, optimizer: Optimizer) -> Iterator[Op]:
    for node in model.nodes:
        learned = model.learned(node)
        if learned:
            yield from _ops(node, {"update": optimizer.update(learned)})


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


def _ops(node: Node, counts: Counts) -> Iterator[Op]:
    for name, count in counts.items():
        yield Op(
            name=f"{node.name}.{name}",
            kind=count.kind,
            flops=count.flops,
            read_bytes=FLOAT_BYTES * count.reads,
            write_bytes=FLOAT_BYTES * count.writes,
        )
