"""Every operation of the engine, on one thread and on two: values against a reference in double
precision, gradients against differences of the loss.

Each layer follows a learned layer, so that its backward pass is part of the test.
"""

from collections.abc import Mapping

import numpy as np
import pytest

from kernels.reference import relative_error
from tests.kernels.dumps import Dumped, some_places
from workloads.data_columns import DataColumn, constant, labels, next_tokens, noise, one_hot, tokens
from workloads.graph import TARGET, Model, Node, PublishedSize
from workloads.layers import (
    GELU,
    LSTM,
    Add,
    AttentionHeads,
    AvgPool,
    BatchNorm,
    BinaryCrossEntropy,
    Concat,
    Conv2d,
    CrossEntropy,
    Dropout,
    Embedding,
    Flatten,
    GlobalAvgPool,
    LastTimeStep,
    Layer,
    LayerNorm,
    LeakyReLU,
    Linear,
    MaxPool,
    MeanSquaredError,
    PositionEmbedding,
    ReLU,
    ReLU6,
    RepeatVector,
    Reshape,
    Shape,
    Sigmoid,
    Softmax,
    SoftmaxCrossEntropy,
    Tanh,
    TemporalDifference,
    TiedLinear,
    Upsample,
)
from workloads.lowering.layer_lowerings import LOWERINGS
from workloads.training import (
    SGD,
    Adam,
    AdamW,
    InferenceStep,
    Optimizer,
    accumulated_step,
    training_step,
)

UNSTATED = PublishedSize(0, 0, "a test")
BATCH = 3


def after_learned_layer(
    shape: Shape, *layers: Layer, loss: Layer | None = None, target: DataColumn | None = None
) -> Model:
    """Return a model with these layers between a learned layer and a loss, fed with noise."""
    # A norm cancels a bias, so the gradient of the bias would only be rounding error.
    bias = not any(isinstance(layer, BatchNorm) for layer in layers)
    first = Conv2d(shape[0], 1, bias=bias) if len(shape) == 3 else Linear(shape[-1])
    nodes = [Node(f"layer{at}", layer) for at, layer in enumerate((first, *layers))]
    last = Node("loss", loss or MeanSquaredError())
    data = {"x": noise(), TARGET: target or noise()}
    return Model("tried", {"x": shape}, (*nodes, last), UNSTATED, data=data)


def model(nodes: list[Node], inputs: Mapping[str, Shape], **data: DataColumn) -> Model:
    """Return a model with these nodes."""
    return Model("tried", inputs, tuple(nodes), UNSTATED, data=data)


MSE = Node("loss", MeanSquaredError())
ODD = (3, 7, 9)

CONVS = {
    "conv 3x3": after_learned_layer(ODD, Conv2d(5, 3)),
    "conv 3x3 same": after_learned_layer(ODD, Conv2d(5, 3, padding="same")),
    "conv 3x3 stride 2 same": after_learned_layer((3, 8, 9), Conv2d(5, 3, 2, "same")),
    "conv 3x3 stride 2 padded by 1": after_learned_layer((4, 9, 8), Conv2d(6, 3, 2, 1)),
    "conv 1x1": after_learned_layer((9, 5, 7), Conv2d(11, 1)),
    "conv 1x1 stride 2": after_learned_layer((6, 7, 6), Conv2d(8, 1, 2)),
    "conv 1x1 no bias": after_learned_layer((16, 8, 8), Conv2d(24, 1, bias=False)),
    "conv 5x5": after_learned_layer((2, 12, 13), Conv2d(4, 5, padding=2)),
    "conv 7x7 stride 2 same": after_learned_layer((3, 15, 14), Conv2d(8, 7, 2, "same")),
    "conv 11x11 stride 4": after_learned_layer((3, 23, 27), Conv2d(6, 11, 4)),
    "conv 1x7": after_learned_layer((4, 5, 9), Conv2d(3, (1, 7), padding="same", bias=False)),
    "conv 5x1 stride 2x3": after_learned_layer((3, 11, 10), Conv2d(4, (5, 1), (2, 3))),
    "conv larger than its image": after_learned_layer((2, 3, 3), Conv2d(3, 5, padding=2)),
    "conv of one pixel": after_learned_layer((20, 1, 1), Conv2d(12, 1)),
    "conv wide": after_learned_layer((40, 17, 19), Conv2d(70, 3, padding=1)),
    "conv deep": after_learned_layer((96, 6, 6), Conv2d(130, 3, padding=1, bias=False)),
    "conv groups": after_learned_layer((6, 7, 7), Conv2d(9, 3, padding=1, groups=3)),
    "conv groups stride 2": after_learned_layer((8, 9, 9), Conv2d(12, 3, 2, 1, groups=2)),
    "depthwise": after_learned_layer((7, 9, 11), Conv2d(7, 3, padding="same", groups=7)),
    "depthwise stride 2": after_learned_layer(
        (8, 10, 9), Conv2d(8, 3, 2, "same", groups=8, bias=False)
    ),
    "depthwise 5x5": after_learned_layer((5, 12, 9), Conv2d(5, 5, padding=2, groups=5)),
    "depthwise wide": after_learned_layer((33, 20, 21), Conv2d(33, 3, 1, 1, groups=33)),
    "depthwise, two out of each": after_learned_layer((4, 7, 7), Conv2d(8, 3, padding=1, groups=4)),
    "transposed": after_learned_layer((5, 4, 6), Conv2d(3, 4, 2, 1, transposed=True)),
    "transposed 3x3 same": after_learned_layer((4, 5, 5), Conv2d(6, 3, 2, "same", transposed=True)),
    "transposed from one pixel": after_learned_layer(
        (9, 1, 1), Conv2d(6, 4, bias=False, transposed=True)
    ),
    "transposed groups": after_learned_layer(
        (6, 4, 4), Conv2d(4, 3, 2, 1, groups=2, transposed=True)
    ),
    "conv frozen": after_learned_layer(ODD, Conv2d(5, 3, trainable=False)),
}
ROWS = {
    "linear": after_learned_layer((13,), Linear(7)),
    "linear no bias": after_learned_layer((13,), Linear(7, bias=False)),
    "linear wide": after_learned_layer((270,), Linear(131)),
    "linear over time": after_learned_layer((5, 6), Linear(9)),
    "linear frozen": after_learned_layer((13,), Linear(7, trainable=False)),
}
ACTIVATIONS = {
    type(layer).__name__: after_learned_layer(ODD, layer)
    for layer in (ReLU(), ReLU6(), LeakyReLU(0.3), Tanh(), Sigmoid(), GELU(), Dropout(0.4))
} | {
    "ReLU6 above six": after_learned_layer((40,), Linear(50), Linear(50), ReLU6()),
    "Softmax of channels": after_learned_layer((6, 3, 4), Softmax(axis=0)),
    "Softmax of rows": after_learned_layer((5, 9), Softmax()),
    "Softmax of one": after_learned_layer((4, 1, 1), Softmax()),
}
NORMS = {
    "batch norm": after_learned_layer(ODD, BatchNorm()),
    "batch norm and ReLU": after_learned_layer(ODD, BatchNorm(momentum=0.7), ReLU()),
    "batch norm and ReLU6": after_learned_layer((5, 6, 6), BatchNorm(epsilon=1e-3), ReLU6()),
    "batch norm wide": after_learned_layer((20, 17, 13), BatchNorm(), ReLU()),
    "batch norm frozen": after_learned_layer(ODD, BatchNorm(trainable=False), ReLU()),
    "batch norm first": model(
        [Node("norm", BatchNorm()), Node("relu", ReLU()), MSE],
        {"x": ODD},
        x=noise(),
        target=noise(),
    ),
    "batch norm read twice": model(
        [
            Node("conv", Conv2d(4, 1, bias=False)),
            Node("norm", BatchNorm()),
            Node("relu", ReLU()),
            Node("sum", Add(), ("norm", "relu")),
            MSE,
        ],
        {"x": ODD},
        x=noise(),
        target=noise(),
    ),
    "layer norm of rows": after_learned_layer((37,), LayerNorm()),
    "layer norm over time": after_learned_layer((5, 12), LayerNorm(epsilon=1e-3)),
    "layer norm frozen": after_learned_layer((5, 12), LayerNorm(trainable=False)),
}
POOLS = {
    "max pool": after_learned_layer((3, 8, 9), MaxPool(2, 2)),
    "max pool 3x3 stride 2 same": after_learned_layer((3, 8, 9), MaxPool(3, 2, "same")),
    "max pool 3x3 stride 1 same": after_learned_layer((5, 7, 6), MaxPool(3, 1, "same")),
    "max pool 3x3 stride 2 padded": after_learned_layer((4, 9, 9), MaxPool(3, 2, 1)),
    "max pool over time": after_learned_layer((4, 11, 1), MaxPool((11, 1), 1)),
    "avg pool": after_learned_layer((3, 8, 9), AvgPool(2, 2)),
    "avg pool 3x3 same": after_learned_layer((3, 8, 9), AvgPool(3, 2, "same")),
    "avg pool 3x3 stride 1 padded": after_learned_layer((4, 7, 7), AvgPool(3, 1, 1)),
    "global avg pool": after_learned_layer((9, 5, 7), GlobalAvgPool()),
}


def two_branches(*join: Node) -> Model:
    """Return a model with two branches that are joined by these nodes."""
    ways = [Node("conv", Conv2d(4, 1)), Node("one", Conv2d(4, 3, padding=1), ("conv",))]
    other = Node("two", Tanh(), ("conv",))
    return model([*ways, other, *join, MSE], {"x": ODD}, x=noise(), target=noise())


PLUMBING = {
    "add": two_branches(Node("add", Add(), ("one", "two"))),
    "add three": two_branches(Node("add", Add(), ("one", "two", "conv"))),
    "add twice the same": two_branches(
        Node("a", Add(), ("one", "one")), Node("b", Add(), ("a", "two"))
    ),
    "concat": two_branches(Node("join", Concat(), ("two", "one", "conv"))),
    "concat with the input": two_branches(
        Node("join", Concat(), ("two", "x")),
        Node("add", Conv2d(4, 1)),
        Node("b", Add(), ("add", "one")),
    ),
    "concat of features": model(
        [
            Node("a", Linear(3)),
            Node("b", Linear(5), ("x",)),
            Node("join", Concat(axis=1), ("a", "b")),
            MSE,
        ],
        {"x": (4, 6)},
        x=noise(),
        target=noise(),
    ),
    "upsample by 2": after_learned_layer(ODD, Upsample(2)),
    "upsample by 3": after_learned_layer((2, 4, 3), Upsample(3)),
    "positions": after_learned_layer((5, 6), PositionEmbedding()),
    "last moment": after_learned_layer((5, 6), LastTimeStep()),
    "repeat moment": after_learned_layer((6,), RepeatVector(4)),
    "reshape": after_learned_layer((6, 4), Reshape((3, 2, 4)), Conv2d(5, 2)),
    "flatten": after_learned_layer(ODD, Flatten(), Linear(4)),
}


def tied(trainable: bool = True) -> Model:
    """Return an embedding whose table is the output layer as well."""
    nodes = [
        Node("rows", Embedding(11, 7, trainable)),
        Node("linear", Linear(7)),
        Node("logits", TiedLinear(11, trainable=trainable, table="rows")),
        Node("loss", SoftmaxCrossEntropy()),
    ]
    return model(nodes, {"x": (9,)}, x=tokens(11), target=next_tokens(11))


def adapted() -> Model:
    """Return a frozen layer with a low-rank adapter beside it."""
    nodes = [
        Node("first", Linear(8)),
        Node("base", Linear(10, trainable=False)),
        Node("a", Linear(2, bias=False), ("first",)),
        Node("b", Linear(10, bias=False), ("a",)),
        Node("sum", Add(), ("base", "b")),
        MSE,
    ]
    return model(nodes, {"x": (6, 5)}, x=noise(), target=noise())


SEQUENCES = {
    "embedding": model(
        [Node("rows", Embedding(11, 7)), MSE], {"x": (9,)}, x=tokens(11), target=noise()
    ),
    "lstm": after_learned_layer((6, 5), LSTM(7)),
    "lstm wide": after_learned_layer((4, 33), LSTM(40)),
    "lstm of one moment": after_learned_layer((1, 5), LSTM(3)),
    "lstm on lstm": after_learned_layer((5, 4), LSTM(6), LSTM(3), LastTimeStep()),
    "lstm first": model([Node("lstm", LSTM(5)), MSE], {"x": (6, 4)}, x=noise(), target=noise()),
    "lstm frozen": after_learned_layer((6, 5), LSTM(7, trainable=False)),
    "attention": after_learned_layer((6, 24), AttentionHeads(1)),
    "attention of two heads": after_learned_layer((7, 36), AttentionHeads(2)),
    "attention, causal": after_learned_layer((9, 45), AttentionHeads(3, causal=True)),
    "attention of the input": model(
        [Node("heads", AttentionHeads(1)), Node("fc", Linear(3)), MSE],
        {"x": (4, 6)},
        x=noise(),
        target=noise(),
    ),
    "attention, longer": after_learned_layer((33, 72), AttentionHeads(4)),
    "tied output": tied(),
    "tied output, frozen": tied(trainable=False),
    "low-rank adapter": adapted(),
}
VALUES = {"values": (4,), "following": (4,), "action": (), "reward": ()}
LOSSES = {
    "softmax cross-entropy": after_learned_layer(
        (9,), loss=SoftmaxCrossEntropy(), target=labels(9)
    ),
    "softmax cross-entropy over time": after_learned_layer(
        (4, 11), loss=SoftmaxCrossEntropy(), target=next_tokens(11)
    ),
    "cross-entropy": after_learned_layer((9,), Softmax(), loss=CrossEntropy(), target=labels(9)),
    "mean squared error": after_learned_layer((9,), target=one_hot(9)),
    "binary cross-entropy": after_learned_layer((9,), loss=BinaryCrossEntropy(), target=one_hot(9)),
    "binary cross-entropy of ones": after_learned_layer(
        (1,), loss=BinaryCrossEntropy(), target=constant(1)
    ),
    "temporal difference": model(
        [
            Node("q", Linear(4), ("values",)),
            Node("next", Linear(4, trainable=False), ("following",)),
            Node("loss", TemporalDifference(0.9), ("q", "next", "action", "reward")),
        ],
        VALUES,
        values=noise(),
        following=noise(),
        action=labels(4),
        reward=noise(),
    ),
}
LARGE = ("wide", "deep", "longer")  # they use paths of the engine that others do not
MODELS = CONVS | ROWS | ACTIVATIONS | NORMS | POOLS | PLUMBING | SEQUENCES | LOSSES


def test_every_layer_that_can_be_lowered_is_tested() -> None:
    tried = {type(node.layer) for each in MODELS.values() for node in each.nodes}
    assert set(LOWERINGS) == tried


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_step_equals_the_reference(name: str, threads: int) -> None:
    dumped = Dumped.of(training_step(MODELS[name], BATCH, SGD(0.1)), threads)
    machine = dumped.reference()
    machine.step(dumped.moments[1])
    for number, found in enumerate(dumped.moments[1]):
        error = relative_error(found, machine[number])
        assert error < 2e-5, f"{dumped.name(number)} is off by {error:.1e} of its size"


@pytest.mark.parametrize("name", [name for name in MODELS if not name.endswith(LARGE)])
def test_a_gradient_is_the_slope_of_the_loss(name: str) -> None:
    dumped = Dumped.of(training_step(MODELS[name], BATCH, SGD(0.1)))
    assert dumped.learned
    for parameter, gradient in dumped.learned:
        found = dumped.moments[1][gradient]
        size = float(np.abs(found).max())
        for index in some_places(found.shape, 3, seed=parameter):
            error = abs(found[index] - dumped.slope(parameter, index)) / max(size, 1e-6)
            assert error < 1e-3, f"{dumped.name(parameter)}{index} is off by {error:.1e}"


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "optimizer",
    [
        SGD(0.1),
        SGD(0.1, weight_decay=0.01),
        SGD(0.05, momentum=0.9),
        SGD(0.05, momentum=0.9, weight_decay=0.01),
        Adam(0.01),
        Adam(0.02, beta_1=0.5, beta_2=0.9, epsilon=1e-3),
        AdamW(0.01),
        AdamW(0.02, beta_1=0.5, beta_2=0.9, epsilon=1e-3, weight_decay=0.3, clip_norm=0.01),
    ],
    ids=str,
)
def test_an_optimizer_follows_its_formula_for_three_steps(
    optimizer: Optimizer, threads: int
) -> None:
    tried = after_learned_layer((37,), Linear(19), Tanh(), Linear(3))
    dumped = Dumped.of(training_step(tried, BATCH, optimizer), threads, steps=3)
    machine = dumped.reference()
    for moment in dumped.moments[1:]:
        machine.step(moment)
        for number, found in enumerate(moment):
            # Adam divides by the size of the gradient, which amplifies rounding errors.
            assert relative_error(found, machine[number]) < 1e-3, dumped.name(number)


@pytest.mark.parametrize("threads", [1, 2])
def test_micro_batches_equal_one_large_batch(threads: int) -> None:
    """The same six samples in one pass and in three: same loss, same parameters."""
    steps = 3
    whole = Dumped.of(training_step(tied(), 6, AdamW(0.01)), steps=steps)
    parts = Dumped.of(accumulated_step(tied(), 2, AdamW(0.01), 3), threads, steps)
    reference = whole.reference()
    for (one, _), (other, _) in zip(whole.learned, parts.learned, strict=True):
        reference[one] = parts.moments[0][other]
    for number in range(1, steps + 1):
        reference.step(whole.moments[number])
        loss = parts.moments[number][parts.plan.loss][0]
        assert loss == pytest.approx(reference[whole.plan.loss][0], rel=1e-5)
        for (one, _), (other, _) in zip(whole.learned, parts.learned, strict=True):
            assert relative_error(parts.moments[number][other], reference[one]) < 1e-4


@pytest.mark.parametrize("name", [*NORMS, "Dropout", "conv 3x3", "attention of two heads", "lstm"])
def test_inference_equals_the_reference(name: str) -> None:
    dumped = Dumped.of(InferenceStep(MODELS[name], BATCH))
    machine = dumped.reference()
    machine.step(dumped.moments[1])
    for number, found in enumerate(dumped.moments[1]):
        assert relative_error(found, machine[number]) < 2e-5, dumped.name(number)


def test_dropout_draws_a_new_mask_in_every_step() -> None:
    dumped = Dumped.of(
        training_step(after_learned_layer((4, 40, 40), Dropout(0.3)), 4, SGD(0.1)), steps=2
    )
    (mask,) = [number for number, tensor in enumerate(dumped.plan.tensors) if tensor.type == "byte"]
    first, second = (dumped.moments[at][mask] for at in (1, 2))
    assert pytest.approx(first.mean(), abs=0.02) == 0.7
    assert pytest.approx((first == second).mean(), abs=0.02) == 0.58  # 0.7 x 0.7 + 0.3 x 0.3
