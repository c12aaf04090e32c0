"""Describe a training step as JSON (layers, shapes, padding, initializers) for other engines."""

from dataclasses import fields
from typing import Any

from workloads.graph import Model, Node
from workloads.layers import Layer
from workloads.layers.window_shapes import window_axes
from workloads.lowering.initializers import initializer_for
from workloads.training import SGD, AdamW, TrainingStep


def describe_step(step: TrainingStep) -> dict[str, Any]:
    """Describe a step that has one pass through one model, with SGD or AdamW."""
    (only_pass,) = step.passes
    model, optimizer = only_pass.model, only_pass.optimizer
    assert isinstance(optimizer, SGD | AdamW)
    (image,) = model.inputs.values()
    return {
        "kind": "training",
        "name": model.name,
        "batch": step.batch,
        "batches": step.batches,
        "image": list(image),
        "classes": model.shapes[model.node_inputs[model.nodes[-1].name][0]][-1],
        "tokens": model.tokens_per_sample > 0,
        "optimizer": {item.name: getattr(optimizer, item.name) for item in fields(optimizer)},
        "parameters": model.parameters,
        "nodes": [_describe_node(model, node) for node in model.nodes],
    }


def _describe_node(model: Model, node: Node) -> dict[str, Any]:
    layer = node.layer
    settings = {item.name: getattr(layer, item.name) for item in fields(layer)}
    input_shapes = [model.shapes[name] for name in model.node_inputs[node.name]]
    if "kernel" in settings:
        size = input_shapes[0][1:3]
        rows, columns = window_axes(size, layer.kernel, layer.stride, layer.padding)
        settings["pads"] = [rows.before, rows.after, columns.before, columns.after]
    shapes = layer.parameter_shapes(*input_shapes)
    reader = _first_reader(model, node)
    first = {name: initializer_for(layer, name, shape, reader) for name, shape in shapes.items()}
    return settings | {
        "name": node.name,
        "kind": type(layer).__name__,
        "inputs": list(model.node_inputs[node.name]),
        "input_shapes": [list(shape) for shape in input_shapes],
        "shape": list(model.shapes[node.name]),
        "initializers": {
            name: {"shape": list(shapes[name]), "kind": init.kind, "value": init.value}
            for name, init in first.items()
        },
    }


def _first_reader(model: Model, node: Node) -> Layer | None:
    readers = (other.layer for other in model.nodes if node.name in model.node_inputs[other.name])
    return next(readers, None)
