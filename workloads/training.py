"""Training steps (forward, loss, backward, update) and inference steps, as lists of operations.

A gradient is computed only where it is needed: not for frozen parameters, and not for anything
before the first trainable layer (the image itself).
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any, ClassVar

from workloads.data_columns import (
    BATCHES,
    DataColumn,
    images_from_file,
    labels_from_file,
    tokens_from_file,
)
from workloads.graph import TARGET, Model, Node
from workloads.identity import Tagged, canonical
from workloads.layers import Dropout, Loss
from workloads.layers.layer import OpCost, OpCosts
from workloads.protocol.faults import InvalidRequest
from workloads.step_cost import FLOAT_BYTES, Op, Step, StepCost

BYTE_TOKENS = 256  # in a text file every byte is a token
FILE_BATCHES = 16  # read from a data file; few, so that a run sees every sample more than once


class Optimizer(Tagged, ABC):
    """How gradients change parameters."""

    clip_norm: float = 0.0  # the norm of all gradients together is at most this; 0: any

    @property
    @abstractmethod
    def state_per_parameter(self) -> int:
        """Values kept per parameter from step to step."""

    @property
    @abstractmethod
    def flops_per_parameter(self) -> int:
        """FLOPs of an update per parameter."""

    def update_cost(self, parameters: int) -> OpCost:
        """Return the cost: reads parameters, gradients, state; writes parameters and state."""
        reads, writes = 2 + self.state_per_parameter, 1 + self.state_per_parameter
        flops = self.flops_per_parameter * parameters
        return OpCost("update", flops, reads * parameters, writes * parameters)


@dataclass(frozen=True)
class SGD(Optimizer):
    """Stochastic gradient descent, with momentum and weight decay where they are not zero."""

    tag: ClassVar[str] = "sgd"
    learning_rate: float = 0.01
    momentum: float = 0.0
    weight_decay: float = 0.0

    @property
    def state_per_parameter(self) -> int:
        """The velocity."""
        return 1 if self.momentum else 0

    @property
    def flops_per_parameter(self) -> int:
        """A multiply-add each for the step, the velocity and the decay."""
        return 2 + 2 * bool(self.momentum) + 2 * bool(self.weight_decay)


@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam: steps scaled by running moments of the gradient."""

    tag: ClassVar[str] = "adam"
    learning_rate: float = 0.001
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-8

    @property
    def state_per_parameter(self) -> int:
        """Both moments."""
        return 2

    @property
    def flops_per_parameter(self) -> int:
        """Two moments (3 + 4), then root, sum, quotient and step (5)."""
        return 12


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with a separate weight decay, on gradients whose common norm is limited."""

    tag: ClassVar[str] = "adamw"
    weight_decay: float = 0.01
    clip_norm: float = 1.0

    @property
    def flops_per_parameter(self) -> int:
        """Those of Adam, the scale of the gradient, and the decay."""
        return 15


@dataclass(frozen=True)
class TrainingPass:
    """One forward and backward pass through a model, and the update of its parameters.

    Passes of one step share the parameters of nodes with the same name. A pass without an optimizer
    leaves its gradients to the next pass that trains the same nodes.
    """

    model: Model
    optimizer: Optimizer | None
    name: str = ""  # prefix of the names of its operations, where a step has several passes
    trainable: frozenset[str] | None = None  # nodes; None: all that can be trained

    @cached_property
    def trained_model(self) -> Model:
        """The model in which everything that this pass does not train is frozen."""
        if self.trainable is None:
            return self.model
        return self.model.freeze_except(self.trainable)


@dataclass(frozen=True)
class EvaluationSpec:
    """A periodic evaluation on samples that are not trained on, with the current parameters."""

    every: int  # steps
    samples: int
    data: Mapping[str, DataColumn] = field(default_factory=dict)  # where it differs from training
    batch: int = 0  # samples at a time; 0: all of them


@dataclass(frozen=True)
class TrainingStep(Step):
    """One training step: its passes, in order, over a batch of samples.

    With several micro-batches, each pass reads its own batch; their gradients are averaged.
    """

    passes: tuple[TrainingPass, ...]
    batch: int
    batches: int = BATCHES  # of a step, in the data set
    evaluation: EvaluationSpec | None = None  # of the first pass's model
    micro_batches: int = 1

    @property
    def samples(self) -> int:
        """Samples per step."""
        return self.batch * self.micro_batches

    @property
    def is_one_pass(self) -> bool:
        """Whether every sample is used by one pass."""
        return len(self.passes) == self.micro_batches

    @cached_property
    def cost(self) -> StepCost:
        """The cost of a step; parameters that passes share are counted once."""
        _check_batch(self.batch)
        parameters: dict[str, int] = {}
        copies: dict[str, int] = {}  # gradient and optimizer state
        saved = 0
        for one_pass in self.passes:
            model = one_pass.trained_model
            for node in model.nodes:
                parameters[node.name] = model.parameter_count(node)
                if model.trainable_count(node) and one_pass.optimizer:
                    copies[node.name] = 1 + one_pass.optimizer.state_per_parameter
            saved = max(saved, _saved_elements(model, self.batch))
        elements = sum(count * (1 + copies.get(name, 0)) for name, count in parameters.items())
        return StepCost(
            ops=tuple(self._ops()),
            training=True,
            samples_per_step=self.samples,
            parameter_bytes=FLOAT_BYTES * elements,
            activation_bytes=FLOAT_BYTES * saved,
            batches=self.batches,
            tokens_per_step=self.samples * self.passes[0].model.tokens_per_sample,
            parameters=sum(parameters.values()),
            macs=self.batch * sum(one_pass.model.macs for one_pass in self.passes),
        )

    @cached_property
    def identity(self) -> Any:
        """Models, data and how they are trained."""
        passes = [
            [
                one_pass.name,
                one_pass.model.identity,
                canonical(one_pass.optimizer),
                canonical(one_pass.trainable),
            ]
            for one_pass in self.passes
        ]
        identity = ["training", passes, self.batch, self.batches, canonical(self.evaluation)]
        return identity if self.micro_batches == 1 else [*identity, self.micro_batches]

    def _ops(self) -> Iterator[Op]:
        pending: set[str] = set()  # nodes whose gradients wait for another pass
        for one_pass in self.passes:
            model = one_pass.trained_model
            yield from _forward_ops(model, self.batch, one_pass.name)
            yield from _backward_ops(model, self.batch, one_pass.name, pending)
            trained = [node for node in model.nodes if model.trainable_count(node)]
            if one_pass.optimizer is None:
                pending.update(node.name for node in trained)
                continue
            pending.difference_update(node.name for node in trained)
            for node in trained if one_pass.optimizer.clip_norm else ():
                size = model.trainable_count(node)
                norm = {"norm": OpCost("reduce", 2 * size, size, 1)}
                yield from _named_ops(node, norm, one_pass.name)
            for node in trained:
                update = {"update": one_pass.optimizer.update_cost(model.trainable_count(node))}
                yield from _named_ops(node, update, one_pass.name)


@dataclass(frozen=True)
class InferenceStep(Step):
    """The forward pass alone, as a trained model is used: no dropout, no loss."""

    model: Model
    batch: int
    batches: int = BATCHES

    @cached_property
    def cost(self) -> StepCost:
        _check_batch(self.batch)
        model = self.model
        nodes = [node for node in model.nodes if not isinstance(node.layer, Dropout | Loss)]
        around = [(node, model.layer_shapes(node, self.batch)) for node in nodes]
        largest = max((shapes.n_in + shapes.n_out for _, shapes in around), default=0)
        return StepCost(
            ops=tuple(
                op
                for node, shapes in around
                for op in _named_ops(node, node.layer.forward_costs(shapes))
            ),
            training=False,
            samples_per_step=self.batch,
            parameter_bytes=FLOAT_BYTES * model.parameters,
            activation_bytes=FLOAT_BYTES * largest,
            tokens_per_step=self.batch * model.tokens_per_sample,
            parameters=model.parameters,
            macs=sum(node.layer.macs(shapes) for node, shapes in around),
        )

    @cached_property
    def identity(self) -> Any:
        """Model and data."""
        return ["inference", self.model.identity, self.batch, self.batches]


def training_step(model: Model, batch: int, optimizer: Optimizer) -> TrainingStep:
    """Return the usual step: one pass through one model."""
    return TrainingStep((TrainingPass(model, optimizer),), batch)


def accumulated_step(
    model: Model, batch: int, optimizer: Optimizer, micro_batches: int
) -> TrainingStep:
    """Return a step that updates the parameters once for several batches."""
    if micro_batches == 1:
        return training_step(model, batch, optimizer)
    passes = tuple(
        TrainingPass(model, optimizer if number == micro_batches else None, f"micro{number}")
        for number in range(1, micro_batches + 1)
    )
    return TrainingStep(passes, batch, micro_batches=micro_batches)


def read_from_file(workload: str, step: Step) -> Step:
    """Return the same step over the images or texts of the run's data file.

    Raise InvalidRequest for a step that neither classifies images nor predicts the next token.
    """
    if isinstance(step, TrainingStep) and not step.evaluation and step.is_one_pass:
        model = _with_file_data(workload, step.passes[0].model)
        passes = tuple(replace(one_pass, model=model) for one_pass in step.passes)
        return replace(step, passes=passes, batches=FILE_BATCHES)
    if isinstance(step, InferenceStep):
        model = _with_file_data(workload, step.model)
        return replace(step, model=model, batches=FILE_BATCHES)
    raise InvalidRequest(f"{workload} generates its data; it cannot read a data file")


def _with_file_data(workload: str, model: Model) -> Model:
    shapes = list(model.inputs.values())
    target = model.columns[TARGET]
    predicts_bytes = target.generator == "next_tokens" and target.ints[0] >= BYTE_TOKENS
    if predicts_bytes and len(shapes) == 1:
        (text,) = model.inputs
        columns = (tokens_from_file(number, target.ints[0]) for number in range(2))
        return replace(model, data=dict(zip((text, TARGET), columns, strict=True)))
    if len(shapes) != 1 or len(shapes[0]) != 3 or target.generator != "label":
        raise InvalidRequest(
            f"{workload} neither classifies images nor predicts the next token; it "
            "cannot read a data file"
        )
    (image,) = model.inputs
    data = {image: images_from_file(0), TARGET: labels_from_file(1, target.ints[0])}
    return replace(model, data=data)


def _check_batch(batch: int) -> None:
    if batch < 1:
        raise InvalidRequest(f"the batch size must be at least 1, got {batch}")


def _forward_ops(model: Model, batch: int, prefix: str) -> Iterator[Op]:
    for node in model.nodes:
        yield from _named_ops(
            node, node.layer.forward_costs(model.layer_shapes(node, batch)), prefix
        )


def _backward_ops(model: Model, batch: int, prefix: str, pending: Set[str]) -> Iterator[Op]:
    """Yield the operations of a backward pass; gradients of pending nodes are added at once."""
    # An output that several layers read gets several gradients, which are added first.
    readers = Counter(
        name
        for node in model.nodes
        if node.name in model.gradient_nodes
        for name in model.node_inputs[node.name]
    )
    for node in reversed(model.nodes):
        if node.name not in model.gradient_nodes:
            continue
        layer, shapes, count = node.layer, model.layer_shapes(node, batch), readers[node.name]
        if count > 1:
            n = shapes.n_out
            total = {"gradient_sum": OpCost("elementwise", (count - 1) * n, count * n, n)}
            yield from _named_ops(node, total, prefix)
        yield from _named_ops(node, layer.shared_gradient_costs(shapes), prefix)
        if model.trains(node):
            yield from _named_ops(node, layer.parameter_gradient_costs(shapes), prefix)
        if any(name in model.gradient_nodes for name in model.node_inputs[node.name]):
            yield from _named_ops(node, layer.input_gradient_costs(shapes), prefix)
        if node.name in pending and (size := model.trainable_count(node)):
            total = {"gradient_total": OpCost("elementwise", size, 2 * size, size)}
            yield from _named_ops(node, total, prefix)


def _saved_elements(model: Model, batch: int) -> int:
    """Count the elements saved for the backward pass; a tensor that several need counts once."""
    saved: set[str] = set()
    extra = 0
    for node in model.nodes:
        if node.name in model.gradient_nodes:
            if node.layer.saves_input:
                saved.update(model.memory_owners[name] for name in model.node_inputs[node.name])
            if node.layer.saves_output:
                saved.add(model.memory_owners[node.name])
            extra += node.layer.saved_extra(model.layer_shapes(node, batch))
    return extra + batch * sum(prod(model.shapes[name]) for name in saved)


def _named_ops(node: Node, costs: OpCosts, prefix: str = "") -> Iterator[Op]:
    for name, cost in costs.items():
        yield Op(
            name=op_name(prefix, f"{node.name}.{name}"),
            kind=cost.kind,
            flops=cost.flops,
            read_bytes=FLOAT_BYTES * cost.reads,
            write_bytes=FLOAT_BYTES * cost.writes,
            time_steps=cost.time_steps,
        )


def op_name(prefix: str, part: str) -> str:
    """Return the name of an operation in the header of a plan: its pass, its node, what it does."""
    return f"{prefix}.{part}" if prefix else part
