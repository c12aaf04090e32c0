"""A training step as JSON: layers, shapes, paddings, first values; enough to build it elsewhere."""

from dataclasses import fields
from typing import Any

from workloads.graph import Model, Node
from workloads.layers import LeakyReLU, ReLU, ReLU6
from workloads.layers.windows import slides
from workloads.lowering.initial import initial
from workloads.training import SGD, Training


def described(step: Training) -> dict[str, Any]:
    """A step of one pass through one model with plain SGD."""
    (only,) = step.passes
    model, optimizer = only.model, only.optimizer
    assert isinstance(optimizer, SGD)
    (image,) = model.inputs.values()
    return {
        "kind": "training",
        "name": model.name,
        "batch": step.batch,
        "batches": step.batches,
        "image": list(image),
        "classes": model.shapes[model.feeds[model.nodes[-1].name][0]][-1],
        "learning_rate": optimizer.learning_rate,
        "momentum": optimizer.momentum,
        "weight_decay": optimizer.weight_decay,
        "parameters": model.parameters,
        "nodes": [_described(model, node) for node in model.nodes],
    }


def _described(model: Model, node: Node) -> dict[str, Any]:
    layer = node.layer
    said = {each.name: getattr(layer, each.name) for each in fields(layer)}
    feeds = [model.shapes[feed] for feed in model.feeds[node.name]]
    if "kernel" in said:
        tall, wide = slides((feeds[0][1], feeds[0][2]), layer.kernel, layer.stride, layer.padding)
        said["pads"] = [tall.before, tall.after, wide.before, wide.after]
    shapes = layer.parameters(*feeds)
    followed = _is_before_relu(model, node)
    first = {name: initial(layer, name, shape, followed) for name, shape in shapes.items()}
    return said | {
        "name": node.name,
        "kind": type(layer).__name__,
        "feeds": list(model.feeds[node.name]),
        "into": [list(shape) for shape in feeds],
        "shape": list(model.shapes[node.name]),
        "first": {
            name: {"shape": list(shapes[name]), "kind": init.kind, "value": init.value}
            for name, init in first.items()
        },
    }


def _is_before_relu(model: Model, node: Node) -> bool:
    readers = (each.layer for each in model.nodes if node.name in model.feeds[each.name])
    return any(isinstance(layer, ReLU | ReLU6 | LeakyReLU) for layer in readers)
