"""MNN's turns: the described network in MNN.nn, float32, on so many threads.

By default MNN's Python trains nothing, silently: the step answers, no parameter moves. It has to be
told to evaluate lazily and in mode 0; whoever believes a time looks at loss and parameters first.
"""

import os
import sys
from typing import Any

import MNN.expr as F  # noqa: N812 - as all of its own examples call it
import numpy as np
from MNN import nn, optim
from speak import batches, check_product, first_values, matrices, multiplier, take_turns, trainer

THREADS = int(os.environ["PEER_THREADS"])


class Network(nn.Module):
    """The nodes in order; what feeds whom is looked up by name."""

    def __init__(self, description: dict[str, Any]) -> None:
        super().__init__()
        self.nodes = description["nodes"][:-1]
        self.made: dict[str, Any] = {}
        for number, node in enumerate(self.nodes):
            layer = _layer(node)
            if layer is not None:
                setattr(self, f"layer{number}", layer)  # that is how MNN learns of it
                self.made[node["name"]] = layer

    def forward(self, image: Any) -> Any:
        done = {"image": image}
        for node in self.nodes:
            feeds = [done[name] for name in node["feeds"]]
            made = self.made.get(node["name"])
            done[node["name"]] = made(feeds[0]) if made else _plain(node, feeds)
        return done[self.nodes[-1]["name"]]


def _layer(node: dict[str, Any]) -> Any:
    kind = node["kind"]
    if kind == "Conv2d":
        into, channels = node["into"][0][0], node["channels"]
        mode, pads = _padding(node)
        depthwise = 1 < node["groups"] == into
        if node["groups"] not in {1, into}:
            raise SystemExit("MNN.nn has no convolution in groups")
        return nn.conv(
            into,
            channels,
            _pair(node["kernel"]),
            stride=_pair(node["stride"]),
            padding=pads,
            depthwise=depthwise,
            bias=node["bias"],
            padding_mode=mode,
        )
    if kind == "Linear":
        return nn.linear(node["into"][0][-1], node["features"], node["bias"])
    if kind == "BatchNorm":
        return nn.batch_norm(node["into"][0][0], 4, node["momentum"], node["epsilon"])
    if kind == "Dropout":
        return nn.dropout(node["share"])
    return None


def _pair(size: Any) -> list[int]:
    return list(size) if isinstance(size, list) else [size, size]


def _padding(node: dict[str, Any]) -> tuple[Any, list[int]]:
    top, bottom, left, right = node["pads"]
    if (top, left) != (bottom, right):
        return F.Padding_Mode.SAME, [0, 0]
    return F.Padding_Mode.CAFFE, [top, left]


def _plain(node: dict[str, Any], feeds: list[Any]) -> Any:
    kind, feed = node["kind"], feeds[0]
    if kind in {"MaxPool", "AvgPool"}:
        pool = F.max_pool if kind == "MaxPool" else F.avg_pool
        mode, pads = _padding(node)
        return pool(feed, _pair(node["kernel"]), _pair(node["stride"]), mode, pads)
    if kind == "GlobalAvgPool":
        return F.avg_pool(feed, node["into"][0][1:], [1, 1])
    if kind == "Flatten":
        return F.reshape(F.convert(feed, F.NCHW), [feed.shape[0], -1])
    if kind == "Concat":
        return F.concat(feeds, node["axis"] + 1)
    if kind == "Add":
        total = feed
        for other in feeds[1:]:
            total = total + other
        return total
    return {"ReLU": F.relu, "ReLU6": F.relu6, "Tanh": F.tanh}[kind](feed)


class MnnPeer:
    """A network and its optimizer."""

    def __init__(self, description: dict[str, Any]) -> None:
        self.network = Network(description)
        self.network.train(True)
        self._set(first_values(description))
        self.classes = description["classes"]
        self.batches = batches(description)
        self.optimizer = optim.SGD(
            self.network,
            description["learning_rate"],
            description["momentum"],
            description["weight_decay"],
        )
        self.parameters = sum(values.size for values in self.values().values())

    def _set(self, first: dict[str, dict[str, np.ndarray]]) -> None:
        for node, values in first.items():
            held = self.network.made[node].parameters
            for value in values.values():
                same = [each for each in held if each.size == value.size]
                if len(same) == 1:
                    same[0].write(value.reshape(same[0].shape))

    def step(self, batch: int) -> float:
        image, label = self.batches[batch]
        shape = list(image.shape)
        fed = F.convert(F.const(image, shape, F.NCHW), F.NC4HW4)
        wanted = F.one_hot(
            F.const(label.astype(np.int32), [len(label)], F.NCHW, F.int), self.classes
        )
        said = F.softmax(self.network.forward(fed), 1)
        loss = nn.loss.cross_entropy(said, wanted)
        if not self.optimizer.step(loss):
            raise SystemExit("MNN's optimizer says that it did nothing")
        return float(loss.read())

    def values(self) -> dict[str, np.ndarray]:
        """The learned tensors; the running mean and variance of a normalisation are not."""
        found = {}
        for name, layer in self.network.made.items():
            held = layer.parameters
            if len(held) == 4:  # scale, shift, mean, variance
                held = held[:2]
            for number, each in enumerate(held):
                found[f"{name}.{number}"] = np.array(each.read()).copy()
        return found


def make(description: dict[str, Any]) -> Any:
    """What the first line asks for."""
    F.lazy_eval(True)
    F.set_lazy_mode(0)
    F.set_thread_number(THREADS)
    if description["kind"] == "sgemm":
        a, b = matrices(description)
        n = len(a)
        left, right = F.const(a, [n, n], F.NCHW), F.const(b, [n, n], F.NCHW)
        product = F.matmul(left, right)  # what is read lives as long as this
        check_product(product.read(), a, b)
        return multiplier(lambda: F.matmul(left, right).ptr)
    return trainer(MnnPeer(description), description["batches"])


if __name__ == "__main__":
    take_turns(make)
    sys.exit(0)
