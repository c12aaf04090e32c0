"""PyTorch's turns: the described network in torch.nn, eager, float32, on so many threads."""

import os
import sys
from typing import Any

import numpy as np
import torch
from speak import batches, check_product, first_values, matrices, multiplier, take_turns, trainer
from torch import nn
from torch.nn import functional

THREADS = int(os.environ["PEER_THREADS"])
EXACT = os.environ.get("PEER_EXACT") == "1"


class Network(nn.Module):
    """The nodes in order; what feeds whom is looked up by name."""

    def __init__(self, description: dict[str, Any]) -> None:
        super().__init__()
        self.nodes = description["nodes"][:-1]
        self.layers = nn.ModuleDict()
        for node in self.nodes:
            made = _layer(node)
            if made is not None:
                self.layers[node["name"].replace(".", "_")] = made

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        done = {"image": image}
        for node in self.nodes:
            feeds = [done[name] for name in node["feeds"]]
            name = node["name"].replace(".", "_")
            if name in self.layers:
                if EXACT and _uneven(node):
                    top, bottom, left, right = node["pads"]
                    fill = float("-inf") if node["kind"] == "MaxPool" else 0.0
                    feeds = [functional.pad(feeds[0], (left, right, top, bottom), value=fill)]
                done[node["name"]] = self.layers[name](feeds[0])
            else:
                done[node["name"]] = _plain(node, feeds)
        return done[self.nodes[-1]["name"]]


def _uneven(node: dict[str, Any]) -> bool:
    top, bottom, left, right = node.get("pads", (0, 0, 0, 0))
    return top != bottom or left != right


def _pads(node: dict[str, Any]) -> tuple[int, int]:
    """The padding of both sides.

    Torch pads evenly; where ours adds an odd pixel after, evenly padding by the larger share gives
    the same shape from the same arithmetic, without a copy that would be torch's loss alone. When
    losses are to agree to the last digits (EXACT), the copy is made.
    """
    top, bottom, left, right = node["pads"]
    if _uneven(node):
        return (0, 0) if EXACT else (max(top, bottom), max(left, right))
    return top, left


def _layer(node: dict[str, Any]) -> nn.Module | None:
    kind = node["kind"]
    if kind == "Conv2d":
        into = node["into"][0][0]
        return nn.Conv2d(
            into,
            node["channels"],
            node["kernel"],
            node["stride"],
            _pads(node),
            groups=node["groups"],
            bias=node["bias"],
        )
    if kind == "Linear":
        return nn.Linear(node["into"][0][-1], node["features"], bias=node["bias"])
    if kind == "BatchNorm":
        return nn.BatchNorm2d(node["into"][0][0], node["epsilon"], 1 - node["momentum"])
    if kind == "MaxPool":
        if _uneven(node) and not EXACT and node["pads"][0] == 0:
            return nn.MaxPool2d(node["kernel"], node["stride"], ceil_mode=True)
        return nn.MaxPool2d(node["kernel"], node["stride"], _pads(node))
    simple = {
        "AvgPool": lambda: nn.AvgPool2d(node["kernel"], node["stride"], _pads(node)),
        "GlobalAvgPool": lambda: nn.AdaptiveAvgPool2d(1),
        "ReLU": lambda: nn.ReLU(inplace=True),
        "ReLU6": lambda: nn.ReLU6(inplace=True),
        "Tanh": nn.Tanh,
        "Flatten": nn.Flatten,
        "Dropout": lambda: nn.Dropout(0.0 if EXACT else node["share"]),
    }
    return simple[kind]() if kind in simple else None


def _plain(node: dict[str, Any], feeds: list[torch.Tensor]) -> torch.Tensor:
    if node["kind"] == "Concat":
        return torch.cat(feeds, node["axis"] + 1)
    if node["kind"] == "Add":
        total = feeds[0]
        for feed in feeds[1:]:
            total = total + feed
        return total
    raise SystemExit(f"there is no {node['kind']} here")


class TorchPeer:
    """A network and its optimizer."""

    def __init__(self, description: dict[str, Any]) -> None:
        self.network = Network(description)
        self.network.train()
        self._set(first_values(description))
        self.batches = [
            (torch.from_numpy(image), torch.from_numpy(label))
            for image, label in batches(description)
        ]
        self.parameters = sum(each.numel() for each in self.network.parameters())
        self.optimizer = torch.optim.SGD(
            self.network.parameters(),
            description["learning_rate"],
            description["momentum"],
            weight_decay=description["weight_decay"],
            fused=True,
        )

    def _set(self, first: dict[str, dict[str, np.ndarray]]) -> None:
        named = {"scale": "weight", "shift": "bias"}
        with torch.no_grad():
            for node, values in first.items():
                layer = self.network.layers[node.replace(".", "_")]
                for name, value in values.items():
                    getattr(layer, named.get(name, name)).copy_(torch.from_numpy(value))

    def step(self, batch: int) -> float:
        image, label = self.batches[batch]
        self.optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(self.network(image), label)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def values(self) -> dict[str, np.ndarray]:
        return {
            name: each.detach().numpy().copy() for name, each in self.network.named_parameters()
        }


def make(description: dict[str, Any]) -> Any:
    """What the first line asks for."""
    torch.set_num_threads(THREADS)
    torch.manual_seed(1)
    if description["kind"] == "sgemm":
        a, b = matrices(description)
        left, right = torch.from_numpy(a), torch.from_numpy(b)
        out = torch.empty_like(left)
        check_product(torch.mm(left, right, out=out).numpy(), a, b)
        return multiplier(lambda: torch.mm(left, right, out=out))
    return trainer(TorchPeer(description), description["batches"])


if __name__ == "__main__":
    take_turns(make)
    sys.exit(0)
