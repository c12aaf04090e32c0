"""The models in PyTorch, built from their definitions, not from their plans.

Initial values, batches and dropout masks come from a dump; everything else is PyTorch's.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812, as PyTorch's own pages have it

from workloads import layers as our
from workloads.graph import TARGET, Model, Node
from workloads.layers.window_shapes import window_axes
from workloads.training import SGD, Adam, AdamW, Optimizer, TrainingStep

Values = Mapping[str, Tensor]  # by the name of a tensor in the plan


class Peer:
    """A training step in PyTorch, with its optimizer state."""

    def __init__(self, step: TrainingStep, first: Values) -> None:
        self._step = step
        self._parameters: dict[str, Tensor] = {}
        self._optimizers: dict[int, torch.optim.Optimizer] = {}
        for each in step.passes:
            for node in each.model.nodes:
                for name in each.model.parameter_shapes(node):
                    key = f"{node.name}.{name}"
                    if key not in self._parameters:
                        self._parameters[key] = first[key].clone().requires_grad_()
        for at, each in enumerate(step.passes):
            if each.optimizer is not None:
                self._optimizers[at] = _optimizer(each.optimizer, self._learned(each.trained_model))

    @property
    def parameters(self) -> Values:
        """Return the current parameters."""
        return self._parameters

    def step(self, inputs: list[Values], masks: Values) -> float:
        """Run one step on the inputs that the engine loaded; return the loss of the first pass."""
        losses: list[float] = []
        for at, each in enumerate(self._step.passes):
            learned = self._learned(each.trained_model)
            for parameter in self._parameters.values():
                parameter.requires_grad_(any(parameter is one for one in learned))
            loss = self._loss(each.trained_model, inputs[at], masks)
            losses.append(float(loss.detach()))
            loss.backward()  # type: ignore[no-untyped-call]
            if at in self._optimizers:
                for parameter in learned:
                    if self._step.micro_batches > 1 and parameter.grad is not None:
                        parameter.grad /= self._step.micro_batches
                if each.optimizer and each.optimizer.clip_norm:
                    torch.nn.utils.clip_grad_norm_(learned, each.optimizer.clip_norm)
                self._optimizers[at].step()
                for parameter in learned:
                    parameter.grad = None
        return sum(losses) / len(losses) if self._step.micro_batches > 1 else losses[0]

    def _learned(self, model: Model) -> list[Tensor]:
        return [
            self._parameters[f"{node.name}.{name}"]
            for node in model.nodes
            if model.trainable_count(node)
            for name in model.parameter_shapes(node)
        ]

    def _loss(self, model: Model, inputs: Values, masks: Values) -> Tensor:
        values = dict(inputs)
        for node in model.nodes:
            xs = [values[feed] for feed in model.node_inputs[node.name]]
            own = {
                name: self._parameters[f"{node.name}.{name}"]
                for name in model.parameter_shapes(node)
            }
            if node.layer.shared_from:
                own["weight"] = self._parameters[f"{node.layer.shared_from}.weight"]
            if isinstance(node.layer, our.Dropout):
                own["mask"] = masks[f"{node.name}.mask"]
            if isinstance(node.layer, our.Loss) and TARGET in inputs:
                own[TARGET] = inputs[TARGET]
            values[node.name] = _forward(model, node, xs, own)
        return values[model.nodes[-1].name]


def _optimizer(optimizer: Optimizer, parameters: list[Tensor]) -> torch.optim.Optimizer:
    match optimizer:
        case SGD(learning_rate=rate, momentum=momentum, weight_decay=decay):
            return torch.optim.SGD(parameters, rate, momentum, weight_decay=decay)
        case AdamW(beta_1=first, beta_2=second, epsilon=epsilon, weight_decay=decay):
            rate = optimizer.learning_rate
            return torch.optim.AdamW(parameters, rate, (first, second), epsilon, decay)
        case Adam(learning_rate=rate, beta_1=first, beta_2=second, epsilon=epsilon):
            return torch.optim.Adam(parameters, rate, (first, second), epsilon)
        case _:
            raise AssertionError(optimizer)


def _forward(model: Model, node: Node, xs: list[Tensor], own: dict[str, Tensor]) -> Tensor:
    layer: Any = node.layer
    name = type(layer).__name__
    if name in WINDOWED:
        shape = model.shapes[model.node_inputs[node.name][0]]
        size = (shape[1], shape[2])
        turned = getattr(layer, "transposed", False)
        across = window_axes(size, layer.kernel, layer.stride, layer.padding, turned)
        return WINDOWED[name](layer, xs[0], own, across)
    if name in JOINING:
        return JOINING[name](layer, xs, own)
    return PLAIN[name](layer, xs[0], own)


def _conv(layer: our.Conv2d, x: Tensor, own: dict[str, Tensor], across: Any) -> Tensor:
    weight, bias = own["weight"], own.get("bias")
    if layer.transposed:
        full = F.conv_transpose2d(x, weight, None, layer.stride, groups=layer.groups)
        height, width = across
        cut = full[
            :,
            :,
            height.before : height.before + height.positions,
            width.before : width.before + width.positions,
        ]
        return cut if bias is None else cut + bias[:, None, None]
    return F.conv2d(_padded(x, across), weight, bias, layer.stride, groups=layer.groups)


def _padded(x: Tensor, across: Any, value: float = 0.0) -> Tensor:
    height, width = across
    return F.pad(x, (width.before, width.after, height.before, height.after), value=value)


def _max_pool(layer: our.MaxPool, x: Tensor, _: dict[str, Tensor], across: Any) -> Tensor:
    return F.max_pool2d(_padded(x, across, float("-inf")), layer.kernel, layer.stride)


def _avg_pool(layer: our.AvgPool, x: Tensor, _: dict[str, Tensor], across: Any) -> Tensor:
    def total(values: Tensor) -> Tensor:
        return F.avg_pool2d(_padded(values, across), layer.kernel, layer.stride)

    return total(x) / total(torch.ones_like(x))


def _batch_norm(layer: our.BatchNorm, x: Tensor, own: dict[str, Tensor]) -> Tensor:
    return F.batch_norm(x, None, None, own["scale"], own["shift"], True, 0.1, layer.epsilon)


def _lstm(_: our.LSTM, x: Tensor, own: dict[str, Tensor]) -> Tensor:
    wi, ws, bias = own["input_weight"], own["state_weight"], own["bias"]
    state = cell = x.new_zeros(x.shape[0], ws.shape[1])
    moments = []
    for at in range(x.shape[1]):
        i, f, c, o = (x[:, at] @ wi.T + state @ ws.T + bias).chunk(4, dim=1)
        cell = f.sigmoid() * cell + i.sigmoid() * c.tanh()
        state = o.sigmoid() * cell.tanh()
        moments.append(state)
    return torch.stack(moments, dim=1)


def _attention(layer: our.AttentionHeads, x: Tensor, _: dict[str, Tensor]) -> Tensor:
    batch, time, features = x.shape
    q, k, v = (
        part.reshape(batch, time, layer.heads, -1).transpose(1, 2) for part in x.chunk(3, dim=-1)
    )
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=layer.causal)
    return mixed.transpose(1, 2).reshape(batch, time, features // 3)


def _temporal(layer: our.TemporalDifference, xs: list[Tensor], _: dict[str, Tensor]) -> Tensor:
    q, following, action, reward = xs
    goal = q.detach().clone()
    best = reward + layer.discount * following.detach().max(dim=1).values
    goal[torch.arange(len(q)), action] = best
    return F.mse_loss(q, goal)


WINDOWED: dict[str, Callable[..., Tensor]] = {
    "Conv2d": _conv,
    "MaxPool": _max_pool,
    "AvgPool": _avg_pool,
}
JOINING: dict[str, Callable[..., Tensor]] = {
    "Add": lambda _, xs, own: torch.stack(xs).sum(dim=0),
    "Concat": lambda layer, xs, own: torch.cat(xs, dim=layer.axis + 1),
    "TemporalDifference": _temporal,
}
PLAIN: dict[str, Callable[..., Tensor]] = {
    "Linear": lambda _, x, own: F.linear(x, own["weight"], own.get("bias")),
    "TiedLinear": lambda _, x, own: F.linear(x, own["weight"]),
    "ReLU": lambda _, x, own: x.relu(),
    "ReLU6": lambda _, x, own: F.relu6(x),
    "LeakyReLU": lambda layer, x, own: F.leaky_relu(x, layer.negative_slope),
    "Tanh": lambda _, x, own: x.tanh(),
    "Sigmoid": lambda _, x, own: x.sigmoid(),
    "GELU": lambda _, x, own: F.gelu(x),
    "Dropout": lambda layer, x, own: x * own["mask"] / (1 - layer.rate),
    "Softmax": lambda layer, x, own: x.softmax(
        dim=layer.axis if layer.axis < 0 else layer.axis + 1
    ),
    "BatchNorm": _batch_norm,
    "LayerNorm": lambda layer, x, own: F.layer_norm(
        x, x.shape[-1:], own["scale"], own["shift"], layer.epsilon
    ),
    "GlobalAvgPool": lambda _, x, own: x.mean(dim=(2, 3), keepdim=True),
    "Flatten": lambda _, x, own: x.flatten(1),
    "Reshape": lambda layer, x, own: x.reshape(-1, *layer.new_shape),
    "Upsample": lambda layer, x, own: x.repeat_interleave(layer.factor, 2).repeat_interleave(
        layer.factor, 3
    ),
    "Embedding": lambda _, x, own: F.embedding(x, own["weight"]),
    "PositionEmbedding": lambda _, x, own: x + own["weight"],
    "LastTimeStep": lambda _, x, own: x[:, -1],
    "RepeatVector": lambda layer, x, own: x[:, None].expand(-1, layer.time_steps, -1),
    "LSTM": _lstm,
    "AttentionHeads": _attention,
    "SoftmaxCrossEntropy": lambda _, x, own: F.cross_entropy(
        x.reshape(-1, x.shape[-1]), own[TARGET].reshape(-1)
    ),
    "CrossEntropy": lambda _, x, own: F.nll_loss(x.clamp_min(1e-12).log(), own[TARGET]),
    "MeanSquaredError": lambda _, x, own: F.mse_loss(x, own[TARGET]),
    "BinaryCrossEntropy": lambda _, x, own: F.binary_cross_entropy_with_logits(x, own[TARGET]),
}
