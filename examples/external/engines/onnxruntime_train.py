"""Trains MobileNetV2 with ONNX Runtime's on-device training API, without PyTorch.

The forward network is written as ONNX; ONNX Runtime generates the gradients and the optimizer (its
SGD has no momentum). engine_steps.py times and prints the steps.
"""

import sys
import tempfile
import types
from pathlib import Path
from typing import Any

from engine_steps import (
    CLASSES,
    IMAGES,
    import_engine,
    make_batches,
    mobilenetv2_blocks,
    read_options,
    run_steps,
)

PACKAGE = "onnxruntime-training-cpu==1.19.2 onnx==1.16.2"
OPSET = 14
np: Any = import_engine("numpy", PACKAGE)
onnx: Any = import_engine("onnx", PACKAGE)
onnxruntime: Any = import_engine("onnxruntime", PACKAGE)
# The package's __init__ imports PyTorch, which on-device training does not need.
training = types.ModuleType("onnxruntime.training")
training.__path__ = [str(Path(onnxruntime.__file__).parent / "training")]
sys.modules["onnxruntime.training"] = training
artifacts: Any = import_engine("onnxruntime.training.artifacts", PACKAGE)
api: Any = import_engine("onnxruntime.training.api", PACKAGE)


class Graph:
    """Nodes and initial values of a network that is written step by step."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.values: list[Any] = []
        self.learned: list[str] = []
        self.rng = np.random.default_rng(11)

    def value(self, array: Any, learned: bool = True) -> str:
        """Add an initial value and return its name."""
        name = f"value{len(self.values)}"
        self.values.append(onnx.numpy_helper.from_array(np.asarray(array, np.float32), name))
        self.learned += [name] if learned else []
        return name

    def node(self, kind: str, *inputs: str, more: int = 0, **attributes: Any) -> str:
        """Add a node and return the name of its first output."""
        name = f"node{len(self.nodes)}"
        outputs = [name, *(f"{name}.{number}" for number in range(more))]
        self.nodes.append(onnx.helper.make_node(kind, list(inputs), outputs, **attributes))
        return name


def build_network(batch: int, side: int) -> tuple[Any, Graph]:
    """Return the forward network."""
    graph = Graph()
    zero, six = graph.value(0.0, learned=False), graph.value(6.0, learned=False)
    x = "image"
    for block in mobilenetv2_blocks():
        first = x
        for conv in block.convolutions:
            shape = (conv.channels, conv.channels_in // conv.groups, conv.kernel, conv.kernel)
            deviation = (2 / np.prod(shape[1:])) ** 0.5
            weights = graph.value(graph.rng.normal(0, deviation, shape))
            x = graph.node(
                *("Conv", x, weights),
                kernel_shape=shape[2:],
                pads=[conv.kernel // 2] * 4,
                strides=[conv.stride] * 2,
                group=conv.groups,
            )
            n = conv.channels
            norm = [graph.value(np.ones(n)), graph.value(np.zeros(n))]
            norm += [graph.value(np.zeros(n), False), graph.value(np.ones(n), False)]
            settings = {"training_mode": 1, "momentum": 0.999}
            x = graph.node("BatchNormalization", x, *norm, more=2, **settings)
            x = graph.node("Clip", x, zero, six) if conv.relu6 else x
        x = graph.node("Add", x, first) if block.residual else x
    x = graph.node("Flatten", graph.node("GlobalAveragePool", x))
    classifier = graph.value(graph.rng.normal(0, 0.01, (CLASSES, 1280)))
    bias = graph.value(np.zeros(CLASSES))
    graph.nodes.append(onnx.helper.make_node("Gemm", [x, classifier, bias], ["scores"], transB=1))
    kind = onnx.TensorProto.FLOAT
    inputs = [onnx.helper.make_tensor_value_info("image", kind, [batch, 3, side, side])]
    outputs = [onnx.helper.make_tensor_value_info("scores", kind, [batch, CLASSES])]
    body = onnx.helper.make_graph(graph.nodes, "mobilenetv2", inputs, outputs, graph.values)
    opset = [onnx.helper.make_opsetid("", OPSET)]
    return onnx.helper.make_model(body, opset_imports=opset, ir_version=8), graph


def main() -> None:
    """Generate the training model and run the steps."""
    options = read_options(*IMAGES)
    onnxruntime.set_default_logger_severity(3)
    batches = make_batches(options.batch_size, options.image_size)
    model, graph = build_network(options.batch_size, options.image_size)
    learned = set(graph.learned)
    frozen = [value.name for value in graph.values if value.name not in learned]
    with tempfile.TemporaryDirectory() as folder:
        artifacts.generate_artifacts(
            model,
            requires_grad=graph.learned,
            frozen_params=frozen,
            loss=artifacts.LossType.CrossEntropyLoss,
            optimizer=artifacts.OptimType.SGD,
            artifact_directory=folder,
        )
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = options.threads
        state = api.CheckpointState.load_checkpoint(f"{folder}/checkpoint")
        module = api.Module(f"{folder}/training_model.onnx", state, session_options=settings)
        optimizer = api.Optimizer(f"{folder}/optimizer_model.onnx", module)
    optimizer.set_learning_rate(0.005)
    module.train()

    def step(number: int) -> float:
        loss = module(*batches[number])
        optimizer.step()
        module.lazy_reset_grad()
        return float(loss)

    run_steps(options, step)


if __name__ == "__main__":
    main()
