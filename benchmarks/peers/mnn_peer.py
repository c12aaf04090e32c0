"""The MNN peer: builds the described network with MNN.nn (float32) and trains it.

By default MNN's Python API trains nothing, silently: the step returns, but no parameter changes. It
must be set to lazy evaluation in mode 0. Check the loss and the parameters before using a time.
"""

import os
import sys
from typing import Any

import MNN.expr as F  # noqa: N812 - as in the examples of MNN
import numpy as np
from MNN import nn, optim
from peer_protocol import (
    check_product,
    initial_values,
    load_batches,
    matmul_turns,
    random_matrices,
    serve,
    training_turns,
)

THREADS = int(os.environ["PEER_THREADS"])


class Network(nn.Module):
    """The nodes in order; each node looks up its inputs by name."""

    def __init__(self, description: dict[str, Any]) -> None:
        super().__init__()
        self.nodes = description["nodes"][:-1]
        self.layers_by_name: dict[str, Any] = {}
        for number, node in enumerate(self.nodes):
            layer = make_layer(node)
            if layer is not None:
                setattr(self, f"layer{number}", layer)  # MNN finds layers by attributes
                self.layers_by_name[node["name"]] = layer

    def forward(self, image: Any) -> Any:
        outputs = {"image": image}
        for node in self.nodes:
            inputs = [outputs[name] for name in node["inputs"]]
            layer = self.layers_by_name.get(node["name"])
            outputs[node["name"]] = layer(inputs[0]) if layer else apply_function(node, inputs)
        return outputs[self.nodes[-1]["name"]]


def make_layer(node: dict[str, Any]) -> Any:
    """Return the MNN layer of a node, or None if the node is a function without parameters."""
    kind = node["kind"]
    if kind == "Conv2d":
        channels_in, channels = node["input_shapes"][0][0], node["channels"]
        mode, pads = _padding(node)
        depthwise = 1 < node["groups"] == channels_in
        if node["groups"] not in {1, channels_in}:
            raise SystemExit("MNN.nn has no grouped convolution")
        return nn.conv(
            channels_in,
            channels,
            _pair(node["kernel"]),
            stride=_pair(node["stride"]),
            padding=pads,
            depthwise=depthwise,
            bias=node["bias"],
            padding_mode=mode,
        )
    if kind == "Linear":
        return nn.linear(node["input_shapes"][0][-1], node["features"], node["bias"])
    if kind == "BatchNorm":
        return nn.batch_norm(node["input_shapes"][0][0], 4, node["momentum"], node["epsilon"])
    if kind == "Dropout":
        return nn.dropout(node["rate"])
    return None


def _pair(size: Any) -> list[int]:
    return list(size) if isinstance(size, list) else [size, size]


def _padding(node: dict[str, Any]) -> tuple[Any, list[int]]:
    top, bottom, left, right = node["pads"]
    if (top, left) != (bottom, right):
        return F.Padding_Mode.SAME, [0, 0]
    return F.Padding_Mode.CAFFE, [top, left]


def apply_function(node: dict[str, Any], inputs: list[Any]) -> Any:
    """Apply a node that has no parameters."""
    kind, first = node["kind"], inputs[0]
    if kind in {"MaxPool", "AvgPool"}:
        pool = F.max_pool if kind == "MaxPool" else F.avg_pool
        mode, pads = _padding(node)
        return pool(first, _pair(node["kernel"]), _pair(node["stride"]), mode, pads)
    if kind == "GlobalAvgPool":
        return F.avg_pool(first, node["input_shapes"][0][1:], [1, 1])
    if kind == "Flatten":
        return F.reshape(F.convert(first, F.NCHW), [first.shape[0], -1])
    if kind == "Concat":
        return F.concat(inputs, node["axis"] + 1)
    if kind == "Add":
        total = first
        for other in inputs[1:]:
            total = total + other
        return total
    return {"ReLU": F.relu, "ReLU6": F.relu6, "Tanh": F.tanh}[kind](first)


class MnnPeer:
    """A network and its optimizer in MNN."""

    def __init__(self, description: dict[str, Any]) -> None:
        self.network = Network(description)
        self.network.train(True)
        self._set_values(initial_values(description))
        self.classes = description["classes"]
        self.batches = load_batches(description)
        self.optimizer = optim.SGD(
            self.network,
            description["optimizer"]["learning_rate"],
            description["optimizer"]["momentum"],
            description["optimizer"]["weight_decay"],
        )
        self.parameters = sum(values.size for values in self.values().values())

    def _set_values(self, initial: dict[str, dict[str, np.ndarray]]) -> None:
        for node, values in initial.items():
            parameters = self.network.layers_by_name[node].parameters
            for value in values.values():
                matches = [each for each in parameters if each.size == value.size]
                if len(matches) == 1:
                    matches[0].write(value.reshape(matches[0].shape))

    def step(self, batch: int) -> float:
        image, label = self.batches[batch]
        shape = list(image.shape)
        inputs = F.convert(F.const(image, shape, F.NCHW), F.NC4HW4)
        expected = F.one_hot(
            F.const(label.astype(np.int32), [len(label)], F.NCHW, F.int), self.classes
        )
        predicted = F.softmax(self.network.forward(inputs), 1)
        loss = nn.loss.cross_entropy(predicted, expected)
        if not self.optimizer.step(loss):
            raise SystemExit("MNN's optimizer reports that it did nothing")
        return float(loss.read())

    def values(self) -> dict[str, np.ndarray]:
        """Return the learned tensors: without the running mean and variance of batch norm."""
        tensors = {}
        for name, layer in self.network.layers_by_name.items():
            parameters = layer.parameters
            if len(parameters) == 4:  # scale, shift, mean, variance
                parameters = parameters[:2]
            for number, parameter in enumerate(parameters):
                tensors[f"{name}.{number}"] = np.array(parameter.read()).copy()
        return tensors


def make_turn(description: dict[str, Any]) -> Any:
    """Build what the first line describes."""
    F.lazy_eval(True)
    F.set_lazy_mode(0)
    F.set_thread_number(THREADS)
    if description["kind"] == "sgemm":
        a, b = random_matrices(description)
        n = len(a)
        left, right = F.const(a, [n, n], F.NCHW), F.const(b, [n, n], F.NCHW)
        product = F.matmul(left, right)  # owns the memory that read() returns
        check_product(product.read(), a, b)
        return matmul_turns(lambda: F.matmul(left, right).ptr)
    return training_turns(MnnPeer(description), description["batches"])


if __name__ == "__main__":
    serve(make_turn)
    sys.exit(0)
