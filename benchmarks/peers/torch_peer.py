"""The PyTorch peer: builds the described network with torch.nn (eager, float32) and trains it."""

import os
import sys
from typing import Any

import numpy as np
import torch
from peer_protocol import (
    check_product,
    initial_values,
    load_batches,
    matmul_turns,
    random_matrices,
    serve,
    training_turns,
)
from torch import nn
from torch.nn import functional

THREADS = int(os.environ["PEER_THREADS"])
EXACT = os.environ.get("PEER_EXACT") == "1"


class Network(nn.Module):
    """The nodes in order; each node looks up its inputs by name."""

    def __init__(self, description: dict[str, Any]) -> None:
        super().__init__()
        self.nodes = description["nodes"][:-1]
        self.layers = nn.ModuleDict()
        for node in self.nodes:
            layer = make_layer(node)
            if layer is not None:
                self.layers[node["name"].replace(".", "_")] = layer

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        outputs = {"image": image}
        for node in self.nodes:
            inputs = [outputs[name] for name in node["inputs"]]
            name = node["name"].replace(".", "_")
            if name in self.layers:
                if EXACT and _has_uneven_padding(node):
                    top, bottom, left, right = node["pads"]
                    fill = float("-inf") if node["kind"] == "MaxPool" else 0.0
                    inputs = [functional.pad(inputs[0], (left, right, top, bottom), value=fill)]
                outputs[node["name"]] = self.layers[name](inputs[0])
            else:
                outputs[node["name"]] = apply_function(node, inputs)
        return outputs[self.nodes[-1]["name"]]


def _has_uneven_padding(node: dict[str, Any]) -> bool:
    top, bottom, left, right = node.get("pads", (0, 0, 0, 0))
    return top != bottom or left != right


def _pads(node: dict[str, Any]) -> tuple[int, int]:
    """Return the padding of rows and columns for torch.nn, which pads both sides equally.

    Our engine puts an odd pixel after the image. Padding both sides by the larger amount gives
    the same output shape and the same number of operations without a copy, which only PyTorch
    would have to pay for. With EXACT, when losses must agree to the last digits, the input is
    copied and padded unevenly instead.
    """
    top, bottom, left, right = node["pads"]
    if _has_uneven_padding(node):
        return (0, 0) if EXACT else (max(top, bottom), max(left, right))
    return top, left


def make_layer(node: dict[str, Any]) -> nn.Module | None:
    """Return the layer of a node, or None if the node has several inputs."""
    kind = node["kind"]
    if kind == "Conv2d":
        channels_in = node["input_shapes"][0][0]
        return nn.Conv2d(
            channels_in,
            node["channels"],
            node["kernel"],
            node["stride"],
            _pads(node),
            groups=node["groups"],
            bias=node["bias"],
        )
    if kind == "Linear":
        return nn.Linear(node["input_shapes"][0][-1], node["features"], bias=node["bias"])
    if kind == "BatchNorm":
        return nn.BatchNorm2d(node["input_shapes"][0][0], node["epsilon"], 1 - node["momentum"])
    if kind == "MaxPool":
        if _has_uneven_padding(node) and not EXACT and node["pads"][0] == 0:
            return nn.MaxPool2d(node["kernel"], node["stride"], ceil_mode=True)
        return nn.MaxPool2d(node["kernel"], node["stride"], _pads(node))
    simple = {
        "AvgPool": lambda: nn.AvgPool2d(node["kernel"], node["stride"], _pads(node)),
        "GlobalAvgPool": lambda: nn.AdaptiveAvgPool2d(1),
        "ReLU": lambda: nn.ReLU(inplace=True),
        "ReLU6": lambda: nn.ReLU6(inplace=True),
        "Tanh": nn.Tanh,
        "Flatten": nn.Flatten,
        "Dropout": lambda: nn.Dropout(0.0 if EXACT else node["rate"]),
    }
    return simple[kind]() if kind in simple else None


def apply_function(node: dict[str, Any], inputs: list[torch.Tensor]) -> torch.Tensor:
    """Apply a node that has several inputs."""
    if node["kind"] == "Concat":
        return torch.cat(inputs, node["axis"] + 1)
    if node["kind"] == "Add":
        total = inputs[0]
        for other in inputs[1:]:
            total = total + other
        return total
    raise SystemExit(f"unknown layer {node['kind']}")


class TorchPeer:
    """A network and its optimizer in PyTorch."""

    def __init__(self, description: dict[str, Any]) -> None:
        self.network = Network(description)
        self.network.train()
        self._set_values(initial_values(description))
        self.batches = [
            (torch.from_numpy(image), torch.from_numpy(label))
            for image, label in load_batches(description)
        ]
        self.parameters = sum(tensor.numel() for tensor in self.network.parameters())
        self.optimizer = torch.optim.SGD(
            self.network.parameters(),
            description["learning_rate"],
            description["momentum"],
            weight_decay=description["weight_decay"],
            fused=True,
        )

    def _set_values(self, initial: dict[str, dict[str, np.ndarray]]) -> None:
        torch_names = {"scale": "weight", "shift": "bias"}
        with torch.no_grad():
            for node, values in initial.items():
                layer = self.network.layers[node.replace(".", "_")]
                for name, value in values.items():
                    getattr(layer, torch_names.get(name, name)).copy_(torch.from_numpy(value))

    def step(self, batch: int) -> float:
        image, label = self.batches[batch]
        self.optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(self.network(image), label)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def values(self) -> dict[str, np.ndarray]:
        return {
            name: tensor.detach().numpy().copy() for name, tensor in self.network.named_parameters()
        }


def make_turn(description: dict[str, Any]) -> Any:
    """Build what the first line describes."""
    torch.set_num_threads(THREADS)
    torch.manual_seed(1)
    if description["kind"] == "sgemm":
        a, b = random_matrices(description)
        left, right = torch.from_numpy(a), torch.from_numpy(b)
        out = torch.empty_like(left)
        check_product(torch.mm(left, right, out=out).numpy(), a, b)
        return matmul_turns(lambda: torch.mm(left, right, out=out))
    return training_turns(TorchPeer(description), description["batches"])


if __name__ == "__main__":
    serve(make_turn)
    sys.exit(0)
