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
                layer.requires_grad_(node.get("trainable", True))
                self.layers[node["name"].replace(".", "_")] = layer

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        outputs = {"image": batch, "text": batch}
        for node in self.nodes:
            inputs = [outputs[name] for name in node["inputs"]]
            name = node["name"].replace(".", "_")
            if name in self.layers:
                if EXACT and _has_uneven_padding(node):
                    top, bottom, left, right = node["pads"]
                    fill = float("-inf") if node["kind"] == "MaxPool" else 0.0
                    inputs = [functional.pad(inputs[0], (left, right, top, bottom), value=fill)]
                outputs[node["name"]] = self.layers[name](inputs[0])
            elif node["kind"] == "TiedLinear":
                table = self.layers[node["table"].replace(".", "_")].weight
                outputs[node["name"]] = functional.linear(inputs[0], table)
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


class Positions(nn.Module):
    """A learned row for every time step."""

    def __init__(self, shape: list[int]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.weight


class Heads(nn.Module):
    """Attention over queries, keys and values side by side."""

    def __init__(self, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        samples, steps, width = x.shape
        q, k, v = (
            part.reshape(samples, steps, self.heads, -1).transpose(1, 2)
            for part in x.chunk(3, dim=-1)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return mixed.transpose(1, 2).reshape(samples, steps, width // 3)


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
        "GELU": nn.GELU,
        "Embedding": lambda: nn.Embedding(node["vocabulary"], node["features"]),
        "PositionEmbedding": lambda: Positions(node["shape"]),
        "LayerNorm": lambda: nn.LayerNorm(node["shape"][-1], node["epsilon"]),
        "AttentionHeads": lambda: Heads(node["heads"], node["causal"]),
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
        self.learned = [each for each in self.network.parameters() if each.requires_grad]
        self.clip_norm = description["optimizer"].get("clip_norm", 0.0)
        self.optimizer = make_optimizer(self.learned, description["optimizer"])

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
        output = self.network(image)
        loss = functional.cross_entropy(output.reshape(-1, output.shape[-1]), label.reshape(-1))
        loss.backward()
        if self.clip_norm:
            nn.utils.clip_grad_norm_(self.learned, self.clip_norm)
        self.optimizer.step()
        return loss.item()

    def values(self) -> dict[str, np.ndarray]:
        return {
            name: tensor.detach().numpy().copy()
            for name, tensor in self.network.named_parameters()
            if tensor.requires_grad
        }


def make_optimizer(learned: list[torch.Tensor], rule: dict[str, Any]) -> torch.optim.Optimizer:
    """Return the optimizer that the description names by its settings."""
    rate, decay = rule["learning_rate"], rule["weight_decay"]
    if "beta_1" in rule:
        betas = (rule["beta_1"], rule["beta_2"])
        return torch.optim.AdamW(learned, rate, betas, rule["epsilon"], decay, fused=True)
    return torch.optim.SGD(learned, rate, rule["momentum"], weight_decay=decay, fused=True)


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
