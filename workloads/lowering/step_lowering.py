"""Lower a step: its passes in order, as load, forward, backward, update and evaluate operations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from workloads.basic_steps import MatmulStep
from workloads.data_columns import DataColumn, ElementType
from workloads.graph import TARGET, Model, Node
from workloads.layers import BatchNorm, Layer, Loss, ReLU, ReLU6
from workloads.layers.layer import Shape
from workloads.lowering.initializers import ZERO, initializer_for
from workloads.lowering.layer_lowerings import lower_layer
from workloads.lowering.lowering_context import LayerContext, Lowering
from workloads.lowering.memory_planner import MemoryBreakdown, body_memory, plan_memory
from workloads.lowering.plan_body import (
    NO_ENTRY,
    DataStream,
    Initializer,
    Phase,
    PlanBody,
    PlanOp,
    Tensor,
)
from workloads.protocol.faults import InvalidRequest
from workloads.step_cost import Backend, Step
from workloads.training import (
    SGD,
    Adam,
    AdamW,
    InferenceStep,
    Optimizer,
    TrainingPass,
    TrainingStep,
    op_name,
)

Inputs = Mapping[str, Tensor]


def lower_step(step: Step, reuse: bool = True, backend: Backend = "cpu") -> PlanBody:
    """Lower a step; without reuse no two tensors share memory, so that a dump shows all of them."""
    match step:
        case TrainingStep():
            body = _lower_training(step)
        case InferenceStep():
            body = _lower_inference(step)
        case MatmulStep():
            body = _lower_matmul(step)
        case _:  # a step without known operations
            body = PlanBody(step.cost.samples_per_step, training=False)
    body.backend = backend
    plan_memory(body, reuse)
    return body


def step_memory(step: Step) -> MemoryBreakdown:
    """Return the memory that a step takes, as its plan lays it out."""
    return body_memory(lower_step(step))


def _lower_training(step: TrainingStep) -> PlanBody:
    evaluation = step.evaluation
    body = PlanBody(step.samples, training=True, evaluate=evaluation.every if evaluation else 0)
    builder = StepBuilder(body, step)
    for number, one_pass in enumerate(step.passes):
        model = one_pass.trained_model
        first = number * step.batch if step.micro_batches > 1 else 0
        samples = BatchSamples(step.batch, step.samples * step.batches, first, step.samples)
        body.inputs.append(builder.load("load", model, model.columns, samples))
    losses = [
        builder.train(one_pass, inputs, step)
        for one_pass, inputs in zip(step.passes, body.inputs, strict=True)
    ]
    body.loss = builder.mean_loss(losses) if step.micro_batches > 1 else losses[0]
    if evaluation:
        model, batch = step.passes[0].model, evaluation.batch or evaluation.samples
        columns = model.columns | dict(evaluation.data)
        for first in range(0, evaluation.samples, batch):
            samples = BatchSamples(batch, evaluation.samples, first)
            builder.evaluate(model, builder.load("evaluate", model, columns, samples), batch)
    return body


def _lower_inference(step: InferenceStep) -> PlanBody:
    body = PlanBody(step.batch, training=False)
    builder = StepBuilder(body, step)
    columns = {name: step.model.columns[name] for name in step.model.inputs}
    samples = BatchSamples(step.batch, step.batch * step.batches)
    inputs = builder.load("load", step.model, columns, samples)
    builder.infer("forward", step.model, inputs, step.batch)
    return body


def _lower_matmul(step: MatmulStep) -> PlanBody:
    body = PlanBody(1, training=False)
    values = Initializer("uniform", 1.0)
    a = body.add_tensor("a", (step.m, step.k), arena="input", init=values)
    b = body.add_tensor("b", (step.k, step.n), arena="input", init=values)
    c = body.add_tensor("c", (step.m, step.n))
    body.ops.append(PlanOp("forward", 0, "sgemm", (a, b), (c,), (0, 0)))
    return body


@dataclass(frozen=True)
class BatchSamples:
    """Which samples of a data set a pass reads in a step."""

    batch: int
    all: int  # samples in the data set
    first: int = 0  # of the first step
    advance: int = 0  # samples from one step to the next; 0: the batch


class StepBuilder:
    """Builds the body of a plan; its passes share parameters, state and pending gradients."""

    def __init__(self, body: PlanBody, step: Step) -> None:
        self.body = body
        self.persistent: dict[tuple[str, ...], Tensor] = {}  # what outlives a step, by name
        self._entries = {op.name: number for number, op in enumerate(step.cost.ops)}
        self._loaded: dict[tuple[DataStream, BatchSamples], Tensor] = {}
        self._pending: dict[tuple[str, str], Tensor] = {}  # gradients that wait for another pass

    def load(
        self, phase: Phase, model: Model, columns: Mapping[str, DataColumn], samples: BatchSamples
    ) -> dict[str, Tensor]:
        """Load a batch of every column; a column that two passes read is loaded once."""
        loaded = {}
        for name, column in columns.items():
            stream = DataStream(_unscaled(column), samples.all, _sample_shape(model, name))
            number = self.body.stream_number(stream)
            type: ElementType = "float" if column.type == "byte" else column.type
            key = (DataStream(column, samples.all, stream.shape), samples)
            if key not in self._loaded:
                tensor = self.body.add_tensor(name, (samples.batch, *stream.shape), type, "input")
                scaling = (column.scale, column.shift)
                ints = (number, samples.first, samples.advance or samples.batch)
                op = PlanOp(phase, NO_ENTRY, "load", (), (tensor,), ints, scaling)
                self.body.ops.append(op)
                self._loaded[key] = tensor
            loaded[name] = self._loaded[key]
        return loaded

    def train(self, one_pass: TrainingPass, inputs: Inputs, step: TrainingStep) -> Tensor:
        """Lower forward, backward and update of one pass; return its loss."""
        model, optimizer = one_pass.trained_model, one_pass.optimizer
        builder = PassBuilder(self, model, inputs, step.batch, prefix=one_pass.name)
        builder.forward()
        builder.backward(self._pending)
        trained = [
            (node.name, name)
            for node in model.nodes
            if model.trainable_count(node)
            for name in model.parameter_shapes(node)
        ]
        if optimizer is None:
            self._pending |= {key: builder.gradient(*key) for key in trained}
        else:
            norm = builder.gradient_norm(trained) if optimizer.clip_norm else None
            for node, name in trained:
                _lower_update(builder, node, name, optimizer, norm, step.micro_batches)
        return builder.outputs[model.nodes[-1].name]

    def mean_loss(self, losses: Sequence[Tensor]) -> Tensor:
        """Return the mean of the losses of all micro-batches."""
        mean = self.body.add_tensor("loss", (1,), exclusive=True)
        for kind, ins, floats in (("add", losses, ()), ("copy_scaled", [mean], [1 / len(losses)])):
            op = PlanOp("update", NO_ENTRY, kind, tuple(ins), (mean,), (), tuple(floats))
            self.body.ops.append(op)
        return mean

    def infer(self, phase: Phase, model: Model, inputs: Inputs, batch: int) -> Inputs:
        """Lower the forward pass as a trained model is used; return the output of every node."""
        builder = PassBuilder(self, model, inputs, batch, training=False, phase=phase)
        builder.forward()
        return builder.outputs

    def evaluate(self, model: Model, inputs: Inputs, batch: int) -> None:
        """Compare the model's current output with the target."""
        last = model.node_inputs[model.nodes[-1].name][0]
        output = self.infer("evaluate", model, inputs, batch)[last]
        accuracy = self.body.add_tensor("accuracy", (1,), exclusive=True)
        ins = (output, inputs[TARGET])
        self.body.ops.append(PlanOp("evaluate", NO_ENTRY, "accuracy", ins, (accuracy,)))

    def entry(self, name: str) -> int:
        """Return the number of an operation in the header."""
        return self._entries[name]


class PassBuilder:
    """Builds one pass through one model; a layer's context adds tensors and operations to it."""

    def __init__(
        self,
        step: StepBuilder,
        model: Model,
        inputs: Inputs,
        batch: int,
        prefix: str = "",
        training: bool = True,
        phase: Phase | None = None,
    ) -> None:
        self.outputs: dict[str, Tensor] = {name: inputs[name] for name in model.inputs}
        self.parameter_gradients: dict[tuple[str, str], Tensor] = {}
        self._step = step
        self._body = step.body
        self._model = model
        self._inputs = inputs
        self._batch = batch
        self._prefix = prefix
        self._training = training
        self._phase = phase
        self._nodes = {node.name: node for node in model.nodes}
        self._lowerings: dict[str, tuple[LayerContext, Lowering]] = {}
        self._fused: set[str] = set()  # nodes that the previous node computes as well
        self._readers: dict[str, list[Node]] = {}
        for node in model.nodes:
            for name in model.node_inputs[node.name]:
                self._readers.setdefault(name, []).append(node)

    def forward(self) -> None:
        """Lower the forward pass of every node, in order."""
        for node in self._model.nodes:
            is_loss = isinstance(node.layer, Loss)
            if is_loss and not self._training:
                continue
            ctx = self._context(node)
            if is_loss:
                ctx.y = self._body.add_tensor(f"{node.name}.loss", (1,), exclusive=True)
            lowering = lower_layer(node.layer, ctx)
            next(lowering, None)
            self.outputs[node.name] = ctx.y
            self._lowerings[node.name] = (ctx, lowering)

    def backward(self, pending: dict[tuple[str, str], Tensor]) -> None:
        """Lower the backward pass of every node that gradients flow through, in reverse.

        Gradients that wait for this pass are added at once, so that few gradients exist together.
        """
        model = self._model
        gradients: dict[str, list[Tensor]] = {}
        for node in reversed(model.nodes):
            if node.name not in model.gradient_nodes:
                continue
            ctx, lowering = self._lowerings.pop(node.name)
            if not isinstance(node.layer, Loss):
                ctx.dy = self._sum(node, gradients.pop(node.name, []))
            ctx.in_backward = True
            next(lowering, None)
            for index, name in enumerate(model.node_inputs[node.name]):
                if name in model.gradient_nodes:
                    gradients.setdefault(name, []).append(ctx.input_gradients[index])
            for key in [key for key in pending if key[0] == node.name]:
                total, part = pending.pop(key), f"{node.name}.gradient_total"
                self.op("backward", part, "add", (total, self.gradient(*key)), (total,))
                self.parameter_gradients[key] = total

    def gradient_norm(self, trained: Sequence[tuple[str, str]]) -> Tensor:
        """Return the squared norm of all gradients together."""
        total = self._body.add_tensor("squared_norm", (1,), exclusive=True)
        for number, key in enumerate(trained):
            kind, ins = ("squared_norm_add", (total,)) if number else ("squared_norm", ())
            self.op("update", f"{key[0]}.norm", kind, (self.gradient(*key), *ins), (total,))
        return total

    def activation(self, name: str, shape: Shape, type: ElementType) -> Tensor:
        """Add a tensor to the activations."""
        return self._body.add_tensor(name, shape, type)

    def view(self, base: Tensor, shape: Shape) -> Tensor:
        """Return the same values under another shape."""
        return self._body.add_view(base, shape)

    def state(self, node: str, name: str, shape: Shape, init: Initializer) -> Tensor:
        """Return a tensor that a node keeps from step to step without training it."""
        key = (node, name, "state")
        if key not in self._step.persistent:
            tensor = self._body.add_tensor(f"{node}.{name}", shape, arena="state", init=init)
            self._step.persistent[key] = tensor
        return self._step.persistent[key]

    def parameter(self, node: str, name: str) -> Tensor:
        """Return a parameter of a node; passes share it."""
        key = (node, name)
        if key not in self._step.persistent:
            shape = self._model.parameter_shapes(self._nodes[node])[name]
            readers = self._readers.get(node, [])
            reader = readers[0].layer if readers else None
            init = initializer_for(self._nodes[node].layer, name, shape, reader)
            tensor = self._body.add_tensor(f"{node}.{name}", shape, arena="parameter", init=init)
            self._step.persistent[key] = tensor
        return self._step.persistent[key]

    def gradient(self, node: str, name: str) -> Tensor:
        """Return the tensor for a parameter's gradient; of a frozen one it is an activation."""
        key = (node, name)
        if key not in self.parameter_gradients:
            shape = self.parameter(node, name).shape
            trained = self._model.trainable_count(self._nodes[node])
            self.parameter_gradients[key] = self._body.add_tensor(
                f"{node}.{name}.gradient", shape, arena="gradient" if trained else "activation"
            )
        return self.parameter_gradients[key]

    def op(
        self,
        phase: Phase,
        part: str,
        kind: str,
        ins: Sequence[Tensor | None],
        outs: Sequence[Tensor | None],
        ints: Sequence[int] = (),
        floats: Sequence[float] = (),
    ) -> None:
        """Add an operation; `part` names the header operation that it belongs to."""
        entry = NO_ENTRY
        if self._phase != "evaluate":
            entry = self._step.entry(op_name(self._prefix, part))
        op = PlanOp(
            self._phase or phase, entry, kind, tuple(ins), tuple(outs), tuple(ints), tuple(floats)
        )
        self._body.ops.append(op)

    def mark_covered(self, part: str) -> None:
        """Record a header operation that another operation computes as well."""
        if self._phase != "evaluate":
            self._body.covered.add(self._step.entry(op_name(self._prefix, part)))

    def _context(self, node: Node) -> LayerContext:
        model = self._model
        names = model.node_inputs[node.name]
        return LayerContext(
            builder=self,
            node=node.name,
            shapes=model.layer_shapes(node, self._batch),
            xs=tuple(self.outputs[name] for name in names),
            training=self._training,
            trainable=model.trains(node),
            input_needs_gradient=tuple(name in model.gradient_nodes for name in names),
            target=self._inputs.get(TARGET),
            fused_activation=self._fuse_activation(node),
            already_computed=node.name in self._fused,
        )

    def _fuse_activation(self, node: Node) -> Layer | None:
        """Return the ReLU that a batch norm computes as well: the only reader of its output."""
        readers = self._readers.get(node.name, [])
        has_gradient = self._model.node_inputs[node.name][0] in self._model.gradient_nodes
        if not isinstance(node.layer, BatchNorm) or (self._training and not has_gradient):
            return None
        if len(readers) != 1 or type(readers[0].layer) not in (ReLU, ReLU6):
            return None
        self._fused.add(readers[0].name)
        return readers[0].layer

    def _sum(self, node: Node, gradients: Sequence[Tensor]) -> Tensor:
        """Return the sum of the gradients that the readers of a node send back."""
        if not gradients:
            raise InvalidRequest(
                f"{self._model.name}, layer '{node.name}': the loss does not depend on it"
            )
        if len(gradients) == 1:
            return gradients[0]
        total = self._body.add_tensor(f"{node.name}.gradient", gradients[0].shape)
        self.op("backward", f"{node.name}.gradient_sum", "add", gradients, (total,))
        return total


def _lower_update(
    builder: PassBuilder,
    node: str,
    name: str,
    optimizer: Optimizer,
    norm: Tensor | None,
    micro_batches: int,
) -> None:
    parameter, gradient = builder.parameter(node, name), builder.gradient(node, name)
    kind, floats = _update_kind(optimizer, micro_batches)
    states = [
        builder.state(node, f"{name}.update{slot}", parameter.shape, ZERO)
        for slot in range(optimizer.state_per_parameter)
    ]
    ins, outs = (parameter, gradient, *states, *([norm] if norm else ())), (parameter, *states)
    builder.op("update", f"{node}.update", kind, ins, outs, (), floats)


def _update_kind(optimizer: Optimizer, micro_batches: int) -> tuple[str, tuple[float, ...]]:
    match optimizer:
        case AdamW(beta_1=first, beta_2=second, epsilon=epsilon, weight_decay=decay):
            moments = (optimizer.learning_rate, first, second, epsilon)
            return "adamw", (*moments, decay, optimizer.clip_norm, 1 / micro_batches)
        case _ if micro_batches > 1:
            raise InvalidRequest(f"micro-batches need AdamW, not {optimizer.tag}")
        case SGD(learning_rate=rate, momentum=momentum, weight_decay=decay) if momentum:
            return "momentum", (rate, momentum, decay)
        case SGD(learning_rate=rate, weight_decay=decay):
            return "sgd", (rate, decay)
        case Adam(learning_rate=rate, beta_1=first, beta_2=second, epsilon=epsilon):
            return "adam", (rate, first, second, epsilon)
        case _:
            raise InvalidRequest(f"the engine has no operation for the optimizer {optimizer.tag}")


def _unscaled(column: DataColumn) -> DataColumn:
    """Return a column as it is stored: scaling is applied on loading."""
    return replace(column, scale=1.0, shift=0.0)


def _sample_shape(model: Model, name: str) -> Shape:
    """Return the shape of one sample of an input, or of the target of the loss."""
    if name != TARGET:
        return model.inputs[name]
    output = model.shapes[model.node_inputs[model.nodes[-1].name][0]]
    return output if model.columns[TARGET].type == "float" else output[:-1]
