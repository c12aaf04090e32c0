"""A step's passes, in order, as the body of a plan: load, forward, backward, update; evaluate."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from workloads.data import Column, Type
from workloads.fault import Refused
from workloads.graph import TARGET, Model, Node
from workloads.layers import BatchNorm, Layer, Loss, ReLU, ReLU6
from workloads.layers.layer import Shape
from workloads.lowering.body import (
    NO_ENTRY,
    Body,
    BodyOp,
    Init,
    Phase,
    Stream,
    Tensor,
)
from workloads.lowering.initial import ZERO, initial
from workloads.lowering.layers import way_of
from workloads.lowering.memory import Memory, memory_of_body, plan_memory
from workloads.lowering.site import Site, Way
from workloads.sgemm import Product
from workloads.training import SGD, Adam, Inference, Optimizer, Pass, Training, op_name
from workloads.work import Backend, Step

Inputs = Mapping[str, Tensor]


def body_of(step: Step, reuse: bool = True, backend: Backend = "cpu") -> Body:
    """Lower a step; without reuse every tensor has memory of its own, for whoever looks inside."""
    match step:
        case Training():
            body = _training(step)
        case Inference():
            body = _inference(step)
        case Product():
            body = _product(step)
        case _:  # nothing to do, and nothing to write down
            body = Body(step.work.samples_per_step, training=False)
    body.backend = backend
    plan_memory(body, reuse)
    return body


def memory_of(step: Step) -> Memory:
    """The memory that a step takes, as its plan lays it out."""
    return memory_of_body(body_of(step))


def _training(step: Training) -> Body:
    evaluation = step.evaluation
    body = Body(step.batch, training=True, evaluate=evaluation.every if evaluation else 0)
    writer = _Writer(body, step)
    samples = step.batch * step.batches
    loaded = [
        writer.load("load", each.taught, each.taught.columns, step.batch, samples)
        for each in step.passes
    ]
    body.inputs = loaded
    for each, inputs in zip(step.passes, loaded, strict=True):
        writer.train(each, inputs)
    if evaluation:
        model = step.passes[0].model
        columns = model.columns | dict(evaluation.data)
        count = evaluation.samples
        inputs = writer.load("evaluate", model, columns, count, count)
        writer.evaluate(model, inputs, count)
    return body


def _inference(step: Inference) -> Body:
    body = Body(step.batch, training=False)
    writer = _Writer(body, step)
    columns = {name: step.model.columns[name] for name in step.model.inputs}
    inputs = writer.load("load", step.model, columns, step.batch, step.batch * step.batches)
    writer.infer("forward", step.model, inputs, step.batch)
    return body


def _product(step: Product) -> Body:
    body = Body(1, training=False)
    values = Init("uniform", 1.0)
    a = body.tensor("a", (step.m, step.k), arena="input", init=values)
    b = body.tensor("b", (step.k, step.n), arena="input", init=values)
    c = body.tensor("c", (step.m, step.n))
    body.ops.append(BodyOp("forward", 0, "sgemm", (a, b), (c,), (0, 0)))
    return body


class _Writer:
    """What the passes of a step share: parameters, state, gradients that wait, header entries."""

    def __init__(self, body: Body, step: Step) -> None:
        self.body = body
        self._entries = {op.name: number for number, op in enumerate(step.work.ops)}
        self._kept: dict[tuple[str, ...], Tensor] = {}
        self._loaded: dict[tuple[Stream, int], Tensor] = {}
        self._waiting: dict[tuple[str, str], Tensor] = {}

    def load(
        self, phase: Phase, model: Model, columns: Mapping[str, Column], batch: int, samples: int
    ) -> dict[str, Tensor]:
        """Load a batch of every column; what two passes read alike is loaded once."""
        loaded = {}
        for name, column in columns.items():
            stream = Stream(_unscaled(column), samples, _sample_shape(model, name))
            number = self.body.stream(stream)
            type: Type = "float" if column.type == "byte" else column.type
            key = (Stream(column, samples, stream.shape), batch)
            if key not in self._loaded:
                made = self.body.tensor(name, (batch, *stream.shape), type, "input")
                values = (column.scale, column.shift)
                op = BodyOp(phase, NO_ENTRY, "load", (), (made,), (number, 0), values)
                self.body.ops.append(op)
                self._loaded[key] = made
            loaded[name] = self._loaded[key]
        return loaded

    def train(self, each: Pass, inputs: Inputs) -> None:
        """Forward, backward and update of one pass."""
        ground = _Ground(self, each.taught, inputs, self.body.samples, before=each.name)
        ground.forward()
        if self.body.loss is None:
            self.body.loss = ground.outputs[each.taught.nodes[-1].name]
        ground.backward()
        learned = [
            (node, name)
            for node in each.taught.nodes
            if each.taught.learned(node)
            for name in each.taught.parameter_shapes(node)
        ]
        for node, name in learned:
            key, found = (node.name, name), ground.gradient(node.name, name)
            if key in self._waiting:
                total = self._waiting.pop(key)
                part = f"{node.name}.gradient_total"
                ground.op("backward", part, "add", (total, found), (total,))
                ground.parameter_gradients[key] = found = total
            if each.optimizer is None:
                self._waiting[key] = found
        if each.optimizer is not None:
            for node, name in learned:
                self._update(ground, node, name, each.optimizer)

    def infer(self, phase: Phase, model: Model, inputs: Inputs, batch: int) -> Inputs:
        """Forward alone, as a trained model is used; answer all outputs."""
        ground = _Ground(self, model, inputs, batch, training=False, phase=phase)
        ground.forward()
        return ground.outputs

    def evaluate(self, model: Model, inputs: Inputs, batch: int) -> None:
        """Compare what the model says by now with what is so."""
        loss = model.nodes[-1].name
        said = self.infer("evaluate", model, inputs, batch)[model.feeds[loss][0]]
        share = self.body.tensor("accuracy", (1,), kept=True)
        right = inputs[TARGET]
        op = BodyOp("evaluate", NO_ENTRY, "accuracy", (said, right), (share,))
        self.body.ops.append(op)

    def kept(self, name: tuple[str, ...], make: Tensor | None = None) -> Tensor | None:
        """What outlives a step, by name."""
        if make is not None:
            self._kept[name] = make
        return self._kept.get(name)

    def entry(self, name: str) -> int:
        """The number of an operation in the header."""
        return self._entries[name]

    def _update(self, ground: "_Ground", node: Node, name: str, optimizer: Optimizer) -> None:
        parameter, gradient = ground.parameter(node.name, name), ground.gradient(node.name, name)
        kind, floats = _update_kind(optimizer)
        kept = [
            ground.state(node.name, f"{name}.update{slot}", parameter.shape, ZERO)
            for slot in range(optimizer.state)
        ]
        ins, outs = (parameter, gradient, *kept), (parameter, *kept)
        ground.op("update", f"{node.name}.update", kind, ins, outs, (), floats)


class _Ground:
    """One pass through one model."""

    def __init__(
        self,
        writer: _Writer,
        model: Model,
        inputs: Inputs,
        batch: int,
        before: str = "",
        training: bool = True,
        phase: Phase | None = None,
    ) -> None:
        self.outputs: dict[str, Tensor] = {name: inputs[name] for name in model.inputs}
        self.parameter_gradients: dict[tuple[str, str], Tensor] = {}
        self._writer = writer
        self._body = writer.body
        self._model = model
        self._inputs = inputs
        self._batch = batch
        self._before = before
        self._training = training
        self._phase = phase
        self._layers = {node.name: node for node in model.nodes}
        self._ways: dict[str, tuple[Site, Way]] = {}
        self._done: set[str] = set()  # nodes that the one before does as well
        self._readers: dict[str, list[Node]] = {}
        for node in model.nodes:
            for feed in model.feeds[node.name]:
                self._readers.setdefault(feed, []).append(node)

    def forward(self) -> None:
        """The way forward of every node, in order."""
        for node in self._model.nodes:
            is_loss = isinstance(node.layer, Loss)
            if is_loss and not self._training:
                continue
            site = self._site(node)
            if is_loss:
                site.y = self._body.tensor(f"{node.name}.loss", (1,), kept=True)
            way = way_of(node.layer, site)
            next(way, None)
            self.outputs[node.name] = site.y
            self._ways[node.name] = (site, way)

    def backward(self) -> None:
        """The way back of every node that learning depends on, in reverse."""
        model = self._model
        came: dict[str, list[Tensor]] = {}
        for node in reversed(model.nodes):
            if node.name not in model.learning:
                continue
            site, way = self._ways.pop(node.name)
            if not isinstance(node.layer, Loss):
                site.dy = self._sum(node, came.pop(node.name, []))
            site.back = True
            next(way, None)
            for index, feed in enumerate(model.feeds[node.name]):
                if feed in model.learning:
                    came.setdefault(feed, []).append(site.gradients[index])

    def tensor(self, name: str, shape: Shape, type: Type, init: Init | None) -> Tensor:
        """A new tensor among the activations."""
        return self._body.tensor(name, shape, type, init=init)

    def view(self, of: Tensor, shape: Shape) -> Tensor:
        """The same values under another shape."""
        return self._body.view(of, shape)

    def state(self, node: str, name: str, shape: Shape, init: Init) -> Tensor:
        """What a node carries from step to step without learning it."""
        key = (node, name, "state")
        made = self._writer.kept(key)
        if made is None:
            made = self._body.tensor(f"{node}.{name}", shape, arena="state", init=init)
            self._writer.kept(key, made)
        return made

    def parameter(self, node: str, name: str) -> Tensor:
        """A parameter of a node; passes share it."""
        key = (node, name)
        made = self._writer.kept(key)
        if made is None:
            layer = self._layers[node]
            shape = self._model.parameter_shapes(layer)[name]
            readers = self._readers.get(node, [])
            init = initial(layer.layer, name, shape, readers[0].layer if readers else None)
            made = self._body.tensor(f"{node}.{name}", shape, arena="parameter", init=init)
            self._writer.kept(key, made)
        return made

    def gradient(self, node: str, name: str) -> Tensor:
        """Where the gradient of a parameter goes; one that nobody learns from is an activation."""
        key = (node, name)
        if key not in self.parameter_gradients:
            shape = self.parameter(node, name).shape
            learned = self._model.learned(self._layers[node])
            made = self._body.tensor(
                f"{node}.{name}.gradient", shape, arena="gradient" if learned else "activation"
            )
            self.parameter_gradients[key] = made
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
        """One more operation."""
        entry = NO_ENTRY
        if self._phase != "evaluate":
            entry = self._writer.entry(op_name(self._before, part))
        op = BodyOp(
            self._phase or phase, entry, kind, tuple(ins), tuple(outs), tuple(ints), tuple(floats)
        )
        self._body.ops.append(op)

    def covers(self, part: str) -> None:
        """An entry of the header that another operation does as well."""
        if self._phase != "evaluate":
            self._body.covered.add(self._writer.entry(op_name(self._before, part)))

    def _site(self, node: Node) -> Site:
        model = self._model
        feeds = model.feeds[node.name]
        return Site(
            ground=self,
            node=node.name,
            place=model.place(node, self._batch),
            xs=tuple(self.outputs[feed] for feed in feeds),
            training=self._training,
            learns=bool(model.learned(node)),
            asks=tuple(feed in model.learning for feed in feeds),
            target=self._inputs.get(TARGET),
            behind=self._behind(node),
            done=node.name in self._done,
        )

    def _behind(self, node: Node) -> Layer | None:
        """The function that a normalisation does in the same go: the only reader of its output."""
        readers = self._readers.get(node.name, [])
        learning = self._model.feeds[node.name][0] in self._model.learning
        if not isinstance(node.layer, BatchNorm) or not (learning or not self._training):
            return None
        if len(readers) != 1 or type(readers[0].layer) not in (ReLU, ReLU6):
            return None
        self._done.add(readers[0].name)
        return readers[0].layer

    def _sum(self, node: Node, gradients: Sequence[Tensor]) -> Tensor:
        """The gradients that meet at a node, added."""
        if not gradients:
            raise Refused(f"{self._model.name}, layer '{node.name}': the loss does not need it.")
        if len(gradients) == 1:
            return gradients[0]
        total = self._body.tensor(f"{node.name}.gradient", gradients[0].shape)
        self.op("backward", f"{node.name}.gradient_sum", "add", gradients, (total,))
        return total


def _update_kind(optimizer: Optimizer) -> tuple[str, tuple[float, ...]]:
    match optimizer:
        case SGD(learning_rate=rate, momentum=momentum, weight_decay=decay) if momentum:
            return "momentum", (rate, momentum, decay)
        case SGD(learning_rate=rate, weight_decay=decay):
            return "sgd", (rate, decay)
        case Adam(learning_rate=rate, beta_1=first, beta_2=second, epsilon=epsilon):
            return "adam", (rate, first, second, epsilon)
        case _:
            name = type(optimizer).__name__
            raise Refused(f"no engine has an operation for the optimizer {name}")


def _unscaled(column: Column) -> Column:
    """A column as it is kept: scaling is done on loading."""
    return replace(column, scale=1.0, shift=0.0)


def _sample_shape(model: Model, name: str) -> Shape:
    """The shape of one sample of an input, or of what the loss compares with."""
    if name != TARGET:
        return model.inputs[name]
    said = model.shapes[model.feeds[model.nodes[-1].name][0]]
    return said if model.columns[TARGET].type == "float" else said[:-1]
